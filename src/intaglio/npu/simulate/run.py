"""The op `npu.run`: runs a program on its inputs. The C runtime has a simulator for it."""

from __future__ import annotations

from functools import lru_cache

from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.own.isa import Program
from intaglio.npu.simulate import functional
from intaglio.ops.registry import op


@lru_cache(maxsize=8)
def _decoded(raw: bytes) -> Program:
    import numpy as np

    return Program.decode(np.frombuffer(raw, np.uint8))


def program_of(code: Value | Array | None) -> Program:
    """The program in a constant; BadInput if there is none."""
    data = code.data if isinstance(code, Value) else code
    if data is None:
        raise BadInput("npu.run: the program is computed at run time; it must be a constant")
    try:
        return _decoded(data.tobytes())
    except BadFile as e:
        raise BadInput(f"npu.run: {e}") from None


def _ports(code: Value, weights: Value, *inputs: Value) -> list[Type]:
    program = program_of(code)
    if weights.type != Type("u8", (program.weights,)):
        raise BadInput(
            f"npu.run: weights are {weights.type}; the program has {program.weights} bytes"
        )
    given = [(v.dtype, v.shape) for v in inputs]
    want = [(p.dtype, p.shape) for p in program.inputs]
    if given != want:
        raise BadInput(f"npu.run: inputs are {given}; the program takes {want}")
    return [Type(p.dtype, p.shape) for p in program.outputs]


def _macs(node: Node) -> int:
    """The multiply-accumulates of all instructions, with rows that overlapping tiles repeat."""
    total = 0
    for i in program_of(node.inputs[0]).instructions:
        if i.op in ("conv", "depthwise", "matmul"):
            dst, (kh, kw) = i.fields["dst"], i.fields.get("kernel", (1, 1))
            depth = 1 if i.op == "depthwise" else i.fields["src"].channels
            total += dst.channels * dst.height * dst.width * kh * kw * depth
    return total


@op(_ports, name="npu.run", macs=_macs, foldable=False)
def npu_run(code: Array, weights: Array, *inputs: Array) -> tuple[Array, ...]:
    """The outputs of an NPU program, computed by the functional simulator."""
    return tuple(functional.run(program_of(code), weights, inputs))
