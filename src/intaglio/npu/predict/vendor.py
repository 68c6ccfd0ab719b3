"""The one predictor of a vendor's program, with which published speeds were measured.

`intaglio perf --as-vendor` and `benchmarks.npu_fit` call `predict`. A network is compiled as the
vendor's compiler does, and these are added to the time of its layers: the start of the program, the
conversion of pictures that arrive in floats, and the ops that the layers of the units leave over.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from intaglio.errors import BadInput
from intaglio.ir import Array, Graph
from intaglio.npu.compile import build
from intaglio.npu.metadata import layers_of
from intaglio.npu.own.isa import QUEUES, Program
from intaglio.npu.predict import bands
from intaglio.npu.predict.arithmetic import arithmetic_functions as arithmetic_functions
from intaglio.npu.predict.cycles import constants, one_engine, wide_rate
from intaglio.npu.predict.element_types import as_bytes
from intaglio.npu.predict.leaky import without_tables
from intaglio.npu.predict.leftovers import FLOAT_UNITS as FLOAT_UNITS
from intaglio.npu.predict.leftovers import POOLS, Op, Others, others_of, pixels_of
from intaglio.npu.predict.leftovers import beyond_units as beyond_units
from intaglio.npu.predict.timeline import timeline
from intaglio.targets.chip import Chip

# whether the vendor's compiler fuses layers into groups, by chip family
GROUPS_LAYERS = {"rknpu": False, "kpu": True, "sophgo": True}
TURNED = ("transpose", "space_to_depth", "depth_to_space")  # ops that move each element alone
COPIES = ("concat", "slice", "split", "pad")  # ops that move runs of elements
COPIED = 0.1  # of the time per element of others: a run is copied at once
CONVERTED = 5  # 32-bit instructions that convert a pixel: factor, offset, rounding, limits


# ---- what is predicted ---------------------------------------------------------------------------
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
    each: tuple[float, ...] = ()  # the microseconds of these ops


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
        if p.pixels and p.dtype != "f32" and one_engine(chip):  # converted in three lanes
            work = p.pixels * chip.c2["i8"] / wide_rate(chip)
            found.append(Cost("picture", work * CONVERTED / chip.clock, k))
        for o in p.others:  # one op after the other
            each = tuple(microseconds(op, p.dtype, chip) for op in o.ops)
            found.append(Cost("other ops", sum(each), k, o, each))
    return found


def microseconds(op: Op, dtype: str, chip: Chip) -> float:
    """The time of an op: on the units if one engine computes everything, else beside them.

    `turn` is its time per element, `exp` what exponentials add to it, `call` its overhead. Where
    one engine computes everything, only ops that move data have a `turn`; the others take the time
    of its instructions.
    """
    if op.loops:
        return op.loops
    constant = constants(chip)
    alone = one_engine(chip)
    unit = chip.units.get("matmul", chip.units["conv"])
    rate = (unit.rate.get(dtype) or max(unit.rate.values())) * constant.get(f"use.{dtype}", 1.0)
    each = constant["turn"] * (COPIED if op.op in COPIES else 1.0)
    each += constant["exp"] if op.functions else 0.0
    if alone and op.op in POOLS:
        rates = chip.units["pool"].rate
        each = 1 / rates.get(dtype, rates["i8"])
    elif alone and op.op not in TURNED:
        floats = wide_rate(chip)
        each = 1 / (chip.units["lut"].rate.get("f32", floats) if op.functions else floats)
    layer = constant["layer"] if alone else 0.0
    return constant["call"] + (op.macs / rate + op.elements * each + layer) / chip.clock


# ---- compiling as the vendor ---------------------------------------------------------------------
def as_used(chip: Chip) -> Chip:
    """The chip as its vendor's runtime uses it: Rockchip's does not use shared SRAM."""
    return chip if GROUPS_LAYERS[chip.family] else replace(chip, shared=0)


def part(
    graph: Graph,
    chip: Chip,
    dtype: str = "i8",
    cores: int = 1,
    native: bool = False,
    more: tuple[Others, ...] = (),
    arithmetic: Container[str] = (),
) -> Part:
    """A graph whose NPU layers are gathered in `npu.program` nodes, compiled for a chip.

    `more` are ops that the vendor's compiler leaves over, besides those of the graph; layers with
    names in `arithmetic` have functions without exponentials, which cost little where one engine
    computes everything.
    """
    few = arithmetic if one_engine(chip) else ()
    programs = [n for n in graph.nodes() if n.op == "npu.program"]
    bodies = [without_tables(n.attrs["body"], few) for n in programs]
    others = [*more, *others_of(graph, chip)]
    return part_of(bodies, others, pixels_of(graph), chip, dtype, cores, native)


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
