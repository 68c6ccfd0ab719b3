"""The ops of a network that the layers of an NPU's units leave over, as its vendor would run them.

They are the ops beside the programs, without those that only serve our own layouts, and windows
that the documented limits of the units exclude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from intaglio.ir import Graph, Node, Value
from intaglio.npu.predict.cycles import one_engine
from intaglio.ops.registry import REGISTRY
from intaglio.targets.chip import Chip
from intaglio.targets.host import family, nanoseconds

# whether a float model computes in f16 throughout; else an int8 program stands for it
FLOAT_UNITS = {"rknpu": True, "kpu": False, "sophgo": False}
# Ops that cost nothing between a network and its inputs, outputs and other parts.
FREE = ("reshape", "bitcast", "cast", "quantize_linear", "dequantize_linear")
POOLS = ("max_pool", "avg_pool")
MOVES = ("transpose", "slice", "concat")  # of heads, between products of activations
PICTURE_CHANNELS = 12  # an input with at most so many is a picture


@dataclass(frozen=True)
class Op:
    """An op that is no layer of the NPU's units."""

    op: str
    name: str
    dtype: str
    inputs: str
    output: str
    elements: int
    macs: int
    functions: bool  # exponentials and similar functions, which take many instructions
    host: float  # microseconds on the chip's CPU
    loops: float = 0.0  # microseconds of plain loops on one core, if that is how it runs


@dataclass(frozen=True)
class Others:
    """Ops between two programs, before the first, or after the last one."""

    after: int  # programs before them
    moved: int  # elements that they take from programs, and give to programs
    ops: tuple[Op, ...]


def others_of(graph: Graph, chip: Chip) -> list[Others]:
    """The ops of a graph beside its programs, in runs between them, with the elements they move.

    If one engine computes everything, it takes the heads of an attention as a batch: tpu-mlir's
    MatMul has the attribute hdim_is_batch for it. No op moves them.
    """
    runs: dict[int, list[Node]] = {}
    programs = 0
    heads = _moves_of_heads(graph) if one_engine(chip) else set()
    for node in graph.nodes():
        if node.op == "npu.program":
            programs += 1
        elif node.op not in FREE and node not in heads and not _turns_tokens(node, chip):
            runs.setdefault(programs, []).append(node)
    run_of = {n: k for k, nodes in runs.items() for n in nodes}
    moved = dict.fromkeys(runs, 0)
    for v, run in _crossing(graph, run_of).items():
        moved[run] += v.type.size
    return [Others(k, moved[k], tuple(_op(n, chip) for n in nodes)) for k, nodes in runs.items()]


def beyond_units(graph: Graph, chip: Chip) -> tuple[Others, ...]:
    """Convolutions with windows beyond the documented limits of the unit.

    Our compiler makes others of them; the vendor's runs them in plain loops, which load two numbers
    for each product.
    """
    if not FLOAT_UNITS[chip.family]:
        return ()
    limits, found = chip.units["conv"].limits, []
    for node in graph.nodes():
        if node.op not in ("conv", "qlinear_conv"):
            continue
        w = node.inputs[3 if node.op == "qlinear_conv" else 1]
        kernel, stride = (limits.get(k, math.inf) for k in ("kernel", "stride"))
        over = max(w.shape[2:]) > kernel or max(node.attrs["stride"]) > stride  # type: ignore[union-attr,operator]
        if over:
            op = _op(node, chip)
            loops = op.macs / (chip.host.moves / 2 * chip.host.clock)
            found.append(replace(op, loops=loops))
    return (Others(0, 0, tuple(found)),) if found else ()


def _turns_tokens(node: Node, chip: Chip) -> bool:
    """Does it only turn rows of tokens into the channels of our linear layers, or back?

    It exchanges two axes, and none lies between them or behind them. The vendors' compilers
    multiply matrices as they lie. On Rockchip's chips all exchanges of two axes count as such: the
    constants of their files were fitted with it.
    """
    if node.op != "transpose":
        return False
    shape, perm = node.inputs[0].shape, node.attrs["perm"]  # type: ignore[union-attr]
    moved = [k for k, axis in enumerate(perm) if axis != k and shape[axis] > 1]
    kept = [k for k, axis in enumerate(perm) if axis == k and shape[axis] > 1]
    if moved and kept and kept[-1] > moved[0] and not FLOAT_UNITS[chip.family]:
        return False
    ends = [_origin(node.inputs[0])] if node.inputs[0] is not None else []
    near = {v.producer.op for v in ends if v.producer is not None}
    near |= {user.op for user in _users(node.outputs[0])}
    return len(moved) <= 2 and "npu.program" in near


def _users(v: Value) -> list[Node]:
    """The ops that read a value, behind ops that cost nothing."""
    found: list[Node] = []
    for user in v.uses:
        free = user.op in FREE
        found += [u for out in user.outputs for u in _users(out)] if free else [user]
    return found


def _moves_of_heads(graph: Graph) -> set[Node]:
    """Moves between attention and programs, and nothing else."""
    found: set[Node] = set()
    for node in graph.nodes():
        if node.op not in MOVES or node in found:
            continue
        part, ends = {node}, [node]
        around: list[Node] = []
        while ends:
            n = ends.pop()
            near = [v.producer for v in n.inputs if v is not None and v.producer is not None]
            near += [user for v in n.outputs for user in v.uses]
            for x in near:
                if x.op in (*MOVES, *FREE):
                    ends += [x] if x not in part else []
                    part.add(x)
                else:
                    around.append(x)
        if all(x.op in ("npu.program", "attention") for x in around) and any(map(_attends, around)):
            found |= {x for x in part if _takes_heads(x)}
    return found


def _takes_heads(node: Node) -> bool:
    """Whether tpu-mlir makes the heads a batch, or multiplies a transposed matrix.

    It knows transposes of [samples, tokens, heads, ...] and of the last two axes. Those of [tokens,
    samples * heads, ...], which PyTorch's MultiheadAttention has, stay.
    """
    if node.op != "transpose":
        return True
    perm = tuple(node.attrs["perm"])
    last = len(perm) - 2
    return perm == (*range(last), last + 1, last) or (len(perm) == 4 and perm[:2] == (0, 2))


def _attends(node: Node) -> bool:
    """Is it an attention, or a program with products of activations?"""
    if node.op == "attention":
        return True
    return any(b.op == "npu.matmul" for b in node.attrs["body"].nodes())


def _crossing(graph: Graph, run_of: dict[Node, int]) -> dict[Value, int]:
    """The values between programs and other ops, with the run of ops that they belong to."""
    found: dict[Value, int] = {}
    for node in graph.nodes():
        for read in node.inputs:
            v = read and _origin(read)
            if v is None or v.producer is None or v in found:
                continue
            if node in run_of and v.producer.op == "npu.program":
                found[v] = run_of[node]
            elif node.op == "npu.program" and v.producer in run_of:
                found[v] = run_of[v.producer]
    return found


def _origin(v: Value) -> Value:
    """The value behind ops that cost nothing."""
    while v.producer is not None and v.producer.op in FREE:
        read = v.producer.inputs[0]
        assert read is not None
        v = read
    return v


def _is_table(node: Node, chip: Chip) -> bool:
    """Whether the units look a function up: one of bytes, element by element."""
    if FLOAT_UNITS[chip.family] or one_engine(chip) or "lut" not in chip.units:
        return False
    return bool(REGISTRY[node.op].elementwise)


def _op(node: Node, chip: Chip) -> Op:
    out = node.outputs[0]
    read = [v for v in node.inputs if v is not None]
    macs = REGISTRY[node.op].macs(node)
    elements = max(v.type.size for v in (*read, *node.outputs) if v.data is None)
    if node.op in POOLS and one_engine(chip):  # tap by tap, with a channel in each lane
        n, c, *space = node.outputs[0].shape
        lanes = chip.c2["i8"]
        elements = n * -(-c // lanes) * lanes * math.prod((*space, *node.attrs["kernel"]))
    if node.op == "attention":  # its scores
        q, v = node.inputs[0], node.inputs[2]
        elements = max(elements, macs // (q.shape[-1] + v.shape[-1]))  # type: ignore[union-attr]
    return Op(
        node.op,
        node.origin or out.name,
        out.dtype,
        ",".join("x".join(map(str, v.shape)) for v in read if v.shape),
        "x".join(map(str, out.shape)),
        elements,
        macs,
        node.op == "attention" or (family(node) == "functions" and not _is_table(node, chip)),
        nanoseconds(node, chip.host) / 1e3,
    )


def pixels_of(graph: Graph) -> int:
    """The pixels of the pictures that a graph reads; 0 if it reads none."""
    shapes = [v.shape for v in graph.inputs if len(v.shape) == 4]
    return sum(
        n * h * w
        if c <= PICTURE_CHANNELS
        else n * c * h  # channels are the second or the last axis
        for n, c, h, w in shapes
        if min(c, w) <= PICTURE_CHANNELS
    )
