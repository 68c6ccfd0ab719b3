"""How neutral integer ops become those of a chip's units, and in words why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intaglio import dtypes
from intaglio.ir import Graph, Node, release
from intaglio.npu.lowering import limits
from intaglio.npu.lowering.builder import Maker
from intaglio.npu.lowering.data_movement import moves
from intaglio.npu.lowering.elementwise import elementwise
from intaglio.npu.lowering.floats import floats
from intaglio.npu.lowering.matmul import matmuls
from intaglio.npu.lowering.products import products
from intaglio.rewrite import No, Rule
from intaglio.targets.chip import Chip

NOWHERE = Graph([], [])
RECURRENT = ("lstm", "gru", "rnn")


def lowering(chip: Chip, halves: bool = False) -> tuple[Rule, ...]:
    """Every rule by which nodes become those of `chip`; with `halves`, f32 is computed in f16."""
    make = Maker(limits.why_not(chip))
    real = floats(make, chip, halves) if "f16" in chip.types else ()
    return (*products(make, chip), *matmuls(make), *elementwise(make), *real, *moves(make))


def why_not(chip: Chip, rules: Sequence[Rule]) -> Callable[[Node], str | None]:
    """None where a unit of the chip does the node as it is; else the reason, in words."""
    by_op: dict[str, list[Rule]] = {}
    of_any = [r for r in rules if not r.pattern.ops]
    for r in rules:
        for op in r.pattern.ops:
            by_op.setdefault(op, []).append(r)
    of_units = limits.why_not(chip)

    def reason(node: Node) -> str | None:
        if node.op.startswith("npu."):
            return of_units(node)
        for r in [*by_op.get(node.op, ()), *of_any]:
            found = r.apply(NOWHERE, node)
            if isinstance(found, No):
                return str(found)
            for v in found or ():
                release(v.producer)
        return _in_general(chip, node)

    return reason


def _words(chip: Chip) -> str:
    return "integers and f16" if "f16" in chip.types else "integers"


def _in_general(chip: Chip, node: Node) -> str:
    """Why no unit does such an op."""
    if node.op == "quantize_linear":
        return "it makes integers of real numbers, which units do not read"
    if node.op == "dequantize_linear":
        return "it makes real numbers of integers, with which units do not work"
    if node.op == "cast":
        return "it makes another type for the NPU, or of what that made"
    if node.op in RECURRENT:
        return (
            f"no unit of {chip.name} keeps a state from step to step: "
            "write its steps as products and functions"
        )
    types = [v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.data is None]
    found = [t for t in types if dtypes.is_float(t)]
    if found and "f16" in chip.types and found[0] == "f32":
        return (
            "it computes in f32, units work on integers and f16: quantise it, or compile it in f16"
        )
    if found and found[0] not in chip.types:
        return f"it computes in {found[0]}, units work on {_words(chip)}: quantise it"
    return f"no unit of {chip.name} does {node.op}"
