"""The memory report of a program: bytes of each memory, and the address of every feature map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from intaglio.npu.compile import Compiled
from intaglio.npu.layers import FeatureMap
from intaglio.text_table import aligned, terminal_width


@dataclass(frozen=True, slots=True)
class MapRow:
    """A feature map with memory of its own: an input, or a layer's result."""

    layer: int  # the first layer that writes it; -1: it is an input
    user: str  # that layer's op
    name: str
    dtype: str
    shape: tuple[int, ...]
    native: tuple[int, ...]  # images, blocks, height, width, channels of a block
    place: str  # "input", "stays" (pinned in SRAM), "tiles" (never whole), "shared" or "ddr"
    start: int  # address in that memory
    size: int
    hit: int  # bytes in on-chip memory
    first: int  # first layer of its lifetime; if spilled, of the group that writes it
    last: int  # last layer of its lifetime
    read: int = -1  # the last layer that reads it


@dataclass(slots=True)
class Memory:
    """The memory of one NPU program, in bytes."""

    chip: str
    weights: int
    internal: int
    shared: int  # part of `internal` in the chip's shared SRAM
    inputs: int
    outputs: int
    commands: int
    sram: int  # SRAM of each core
    peak: int  # the most SRAM in use at once
    fullest: str  # the layer at which that is
    traffic: int  # to and from DDR in one run
    least_traffic: int  # its lower bound: weights, inputs and outputs once
    maps: list[MapRow] = field(default_factory=list)

    @property
    def total(self) -> int:
        """DDR that the program needs: everything except the part in shared SRAM."""
        outside = self.weights + self.internal - self.shared
        return outside + self.inputs + self.outputs + self.commands

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"total": self.total}


def memory(made: Compiled, commands: int | None = None) -> Memory:
    """The memory of a program, with one row per feature map; `commands`: their bytes, if other."""
    program, where = made.program, made.memory_plan
    fullest = max(where.layouts, key=lambda one: one.peak)
    return Memory(
        chip=program.chip,
        weights=program.weights,
        internal=program.internal,
        shared=min(program.near, program.internal),
        inputs=sum(v.type.bytes for v in made.net.inputs),
        outputs=sum(v.type.bytes for v in made.net.outputs),
        commands=program.encode().nbytes if commands is None else commands,
        sram=program.sram,
        peak=fullest.peak,
        fullest=made.net.layers[fullest.fullest].name,
        traffic=made.traffic,
        least_traffic=made.least_traffic,
        maps=list(_maps(made)),
    )


def _maps(made: Compiled) -> Iterator[MapRow]:
    near, where = made.program.near, made.memory_plan
    group_of = {k: one.group for one in where.layouts for k in one.group.numbers}
    for s in made.net.maps:
        writers = made.context.writers.get(s)
        layer = writers[0] if writers else -1
        user = made.net.layers[layer].op if writers else "input"
        size = s.ddr_bytes(s.height) * s.images
        place, start, hit = "tiles", 0, size
        if s.input_slot >= 0:
            place, hit = "input", 0
        elif s in where.pinned:
            place, start, size = "stays", where.pinned[s], s.sram_bytes(s.height) * s.images
            hit = size
        elif s in where.spilled:
            start = where.spilled[s]
            hit = max(0, min(size, near - start))
            place = "shared" if hit == size else "ddr"
        used = made.context.users.get(s, [0])
        read = used[-1]
        if s in where.spilled:  # bands interleave: it lives while any group that touches it runs
            used = [group_of[used[0]].first, group_of[used[-1]].last - 1]
        yield MapRow(
            layer,
            user,
            s.name,
            s.dtype,
            (s.images, s.channels, s.height, s.width),
            _native(s),
            place,
            start,
            size,
            hit,
            used[0],
            used[-1],
            read,
        )


def _native(s: FeatureMap) -> tuple[int, ...]:
    return s.images, s.blocks, s.height, s.width, s.c2


TOTALS = (
    ("weights", "weights"),
    ("internal", "internal"),
    ("inputs", "inputs"),
    ("outputs", "outputs"),
    ("commands", "commands"),
    ("DDR in all", "total"),
)
COLUMNS = (
    "layer",
    "made by",
    "type",
    "shape",
    "native shape",
    "start",
    "size",
    "on chip",
    "place",
    "name",
)
NUMBERS = (0, 5, 6, 7)  # right-aligned columns
DROPPED = (4, 2, 5, 1)  # columns that a narrow terminal leaves out, the first ones first


INDENT = 2  # of the table in a report


def table(found: Memory) -> Iterator[str]:
    """The memory report as lines of text."""
    for words, name in TOTALS:
        more = f"  ({found.shared} in shared SRAM)" if name == "internal" and found.shared else ""
        yield f"{words:12} {getattr(found, name):>12} bytes{more}"
    share = found.traffic / max(found.least_traffic, 1)
    yield f"{'moved':12} {found.traffic:>12} bytes in one run, {share:.2f} times the lower bound"
    yield f"{'core':12} {found.peak:>12} of {found.sram} bytes of SRAM, at {found.fullest}"
    yield ""
    rows = [COLUMNS]
    for r in found.maps:
        shape, native = (",".join(map(str, t)) for t in (r.shape, r.native))
        figures = (f"{r.start:#x}", str(r.size), str(r.hit))
        rows.append((str(r.layer), r.user, r.dtype, shape, native, *figures, r.place, r.name))
    width = terminal_width()
    yield from aligned(rows, NUMBERS, DROPPED, width and width - INDENT)
