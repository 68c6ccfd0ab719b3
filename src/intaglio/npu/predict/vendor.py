"""The one predictor of a vendor's program, with which published speeds were measured.

`intaglio perf --as-vendor` and `benchmarks.npu_fit` call `predict`. A network is compiled as the
vendor's compiler does, and these are added to the time of its layers: the start of the program, the
conversion of pictures that arrive in floats, and the ops that the layers of the units leave over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Value
from intaglio.npu.compile import build
from intaglio.npu.metadata import layers_of
from intaglio.npu.own.isa import QUEUES, Program
from intaglio.npu.predict import bands
from intaglio.npu.predict.cycles import constants, wide_rate
from intaglio.npu.predict.element_types import as_bytes
from intaglio.npu.predict.timeline import timeline
from intaglio.ops.registry import REGISTRY
from intaglio.targets.chip import Chip
from intaglio.targets.host import family, nanoseconds

# whether the vendor's compiler fuses layers into groups, by chip family
GROUPS_LAYERS = {"rknpu": False, "kpu": True, "sophgo": True}
# Ops that cost nothing between a network and its inputs, outputs and other parts.
FREE = ("reshape", "bitcast", "quantize_linear", "dequantize_linear")
MOVES = ("transpose", "slice", "concat")  # of heads, between products of activations
PICTURE_CHANNELS = 12  # an input with at most so many is a picture


# ---- what is predicted ---------------------------------------------------------------------------
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


@dataclass(frozen=True)
class Others:
    """Ops between two programs, before the first, or after the last one."""

    after: int  # programs before them
    moved: int  # elements that they take from programs, and give to programs
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Layers:
    """A compiled program, and what a report says about its layers."""

    code: Array
    about: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Part:
    """A network, or a part of one, whose products have one type, compiled as by the vendor."""

    dtype: str
    programs: tuple[Layers, ...]
    others: tuple[Others, ...] = ()
    pixels: int = 0  # of its picture
    native: bool = False  # its programs are of this type; else their bytes stand for its elements
    one_core: tuple[Layers, ...] = ()  # its programs for one core, if `programs` are for several


@dataclass(frozen=True)
class Cost:
    """Time that is not a layer's."""

    what: str  # start, picture, other ops
    microseconds: float
    part: int = 0
    others: Others | None = None


def kind(parts: Sequence[Part], batch: int = 1) -> str:
    """The kind of network that these parts are."""
    layers = [layer["op"] for p in parts for x in p.programs for layer in x.about]
    others = [o for p in parts for o in p.others]
    ops = [*layers, *(op.op for o in others for op in o.ops)]
    return bands.kind(ops, sum(o.moved for o in others) // batch)


class HasCycles(Protocol):
    """The timeline of a program, or what is kept of it."""

    @property
    def cycles(self) -> float: ...


@dataclass(frozen=True)
class Prediction:
    """The time of a network in one run."""

    milliseconds: float
    programs: list[tuple[Layers, ...]]  # by part: those for several cores, or those for one
    lines: list[list[Any]]  # by part: the timelines of its programs
    costs: list[Cost]


def _timeline(code: Array, chip: Chip, dtype: str) -> HasCycles:
    return timeline(code, chip)


def predict(
    parts: Sequence[Part], chip: Chip, run: Callable[[Array, Chip, str], HasCycles] = _timeline
) -> Prediction:
    """The time of a network that consists of these parts.

    A compiler that may use several cores uses one if the others do not help. `run` gives the
    cycles of a program of a chip scaled to a type.
    """
    options = [[p.programs for p in parts]]
    if any(p.one_core for p in parts):
        options.append([p.one_core or p.programs for p in parts])
    tried = []
    for programs in options:
        lines = [
            [run(x.code, chip if p.native else as_bytes(chip, p.dtype), p.dtype) for x in each]
            for p, each in zip(parts, programs, strict=True)
        ]
        cycles = sum(line.cycles for each in lines for line in each)
        tried.append((cycles, programs, lines))
    cycles, programs, lines = min(tried, key=lambda x: x[0])
    costs = list(_costs(parts, chip))
    microseconds = cycles / chip.clock + sum(c.microseconds for c in costs)
    return Prediction(microseconds / 1e3, programs, lines, costs)


def _costs(parts: Sequence[Part], chip: Chip) -> list[Cost]:
    constant = constants(chip)
    found = [Cost("start", constant["start"])]
    for k, p in enumerate(parts):
        if p.pixels and p.dtype != "f32" and constant["apart"]:  # converted in three lanes
            work = p.pixels * chip.c2["i8"] / wide_rate(chip)
            found.append(Cost("picture", work * constant["apart"] / chip.clock, k))
        found += [Cost("other ops", _others(o, p.dtype, chip), k, o) for o in p.others]
    return found


def _others(others: Others, dtype: str, chip: Chip) -> float:
    """Microseconds of ops between programs.

    `turn` is the time per element that they take from a program or give to one, for all of them
    together: it was fitted to whole networks. Without it, or if their work takes longer, their
    work counts.
    """
    constant = constants(chip)
    work = sum(microseconds(op, dtype, chip) for op in others.ops)
    turned = others.moved * constant["turn"] / chip.clock
    return len(others.ops) * constant["call"] + max(work, turned)


def microseconds(op: Op, dtype: str, chip: Chip) -> float:
    """The work of an op: on the units if one engine computes everything, else on the CPU."""
    constant = constants(chip)
    if not constant["apart"]:
        return op.host
    unit = chip.units.get("matmul", chip.units["conv"])
    rate = (unit.rate.get(dtype) or max(unit.rate.values())) * constant.get(f"use.{dtype}", 1.0)
    floats = wide_rate(chip)
    each = chip.units["lut"].rate.get("f32", floats) if op.functions else floats
    return (op.macs / rate + op.elements / each + constant["layer"]) / chip.clock


# ---- compiling as the vendor ---------------------------------------------------------------------
def as_used(chip: Chip) -> Chip:
    """The chip as its vendor's runtime uses it: Rockchip's does not use shared SRAM."""
    return chip if GROUPS_LAYERS[chip.family] else replace(chip, shared=0)


def part(graph: Graph, chip: Chip, dtype: str = "i8", cores: int = 1) -> Part:
    """A graph whose NPU layers are gathered in `npu.program` nodes, compiled for a chip."""
    bodies = [n.attrs["body"] for n in graph.nodes() if n.op == "npu.program"]
    return part_of(bodies, others_of(graph, chip), pixels_of(graph), chip, dtype, cores)


def part_of(
    bodies: Sequence[Graph],
    others: Sequence[Others],
    pixels: int,
    chip: Chip,
    dtype: str = "i8",
    cores: int = 1,
    native: bool = False,
) -> Part:
    """Programs of these bodies for a chip, and what is beside them.

    With `native` they compute in `dtype`; else each byte stands for an element of it.
    """
    if not 1 <= cores <= chip.cores:
        raise BadInput(f"{chip.name}: {cores} cores are requested; it has {chip.cores}")
    used = as_used(chip if native else as_bytes(chip, dtype))
    return Part(
        dtype,
        tuple(_compiled(b, used, cores) for b in bodies),
        tuple(others),
        pixels,
        native,
        tuple(_compiled(b, used, 1) for b in bodies) if cores > 1 else (),
    )


def _compiled(body: Graph, chip: Chip, cores: int) -> Layers:
    grouped = GROUPS_LAYERS[chip.family]
    made = build(body, chip, grouped, cores)
    code = made.program.encode()
    return Layers(code if grouped else serial(code), tuple(layers_of(made)))


def serial(code: Array) -> Array:
    """The program with each layer starting when the one before it has ended, like driver tasks.

    Programs for several cores have barriers already and stay unchanged.
    """
    result = Program.decode(code)
    if result.cores > 1:
        return code
    done, barrier, now = [0, 0, 0], [0, 0, 0], -1
    for i in result.instructions:
        if i.layer != now:
            now, barrier = i.layer, list(done)
        i.wait = tuple(max(a, b) for a, b in zip(i.wait, barrier, strict=True))  # type: ignore[assignment]
        done[QUEUES.index(i.queue)] += 1
    return result.encode()


# ---- what the programs leave over ----------------------------------------------------------------
def others_of(graph: Graph, chip: Chip) -> list[Others]:
    """The ops of a graph beside its programs, in runs between them, with the elements they move.

    If one engine computes everything, it takes the heads of an attention as a batch: tpu-mlir's
    MatMul has the attribute hdim_is_batch for it. No op moves them.
    """
    runs: dict[int, list[Node]] = {}
    programs = 0
    heads = _moves_of_heads(graph) if constants(chip)["apart"] else set()
    for node in graph.nodes():
        if node.op == "npu.program":
            programs += 1
        elif node.op not in FREE and node not in heads:
            runs.setdefault(programs, []).append(node)
    run_of = {n: k for k, nodes in runs.items() for n in nodes}
    moved = dict.fromkeys(runs, 0)
    for v, run in _crossing(graph, run_of).items():
        moved[run] += v.type.size
    return [Others(k, moved[k], tuple(_op(n, chip) for n in nodes)) for k, nodes in runs.items()]


def _moves_of_heads(graph: Graph) -> set[Node]:
    """Moves between programs, some of which have products of activations, and nothing else."""
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
        inner = all(x.op == "npu.program" for x in around)
        if inner and any(b.op == "npu.matmul" for x in around for b in x.attrs["body"].nodes()):
            found |= part
    return found


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


def _op(node: Node, chip: Chip) -> Op:
    out = node.outputs[0]
    read = [v for v in node.inputs if v is not None]
    return Op(
        node.op,
        node.origin or out.name,
        out.dtype,
        ",".join("x".join(map(str, v.shape)) for v in read if v.shape),
        "x".join(map(str, out.shape)),
        max(v.type.size for v in (*read, *node.outputs)),
        REGISTRY[node.op].macs(node),
        family(node) == "functions",
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
