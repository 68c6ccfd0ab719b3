"""What a program takes of the chip's memories, and where every feature map lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from intaglio.npu.compile import Compiled
from intaglio.npu.layers import Store


@dataclass(frozen=True, slots=True)
class MapRow:
    """A feature map that has bytes of its own: an input, or what a layer makes."""

    layer: int  # that makes it first; -1: it is an input
    user: str  # the op of that layer
    name: str
    dtype: str
    shape: tuple[int, ...]
    native: tuple[int, ...]  # images, blocks, height, width, channels of a block
    place: str  # "input", "stays" (in the core), "tiles" (never whole), "shared" or "ddr"
    start: int  # in that memory
    size: int
    hit: int  # bytes that are in on-chip memory
    first: int  # layer that touches it; of what waits outside, from that group's first one on
    last: int
    read: int = -1  # the last layer that reads it


@dataclass(slots=True)
class Memory:
    """The bytes of one NPU module."""

    chip: str
    weights: int
    internal: int
    shared: int  # of internal: in the chip's shared SRAM
    inputs: int
    outputs: int
    commands: int
    sram: int  # of each core
    peak: int  # most of that in use
    fullest: str  # the layer at which that is
    traffic: int  # bytes to and from DDR in one run
    least_traffic: int  # weights, inputs and outputs once
    maps: list[MapRow] = field(default_factory=list)

    @property
    def total(self) -> int:
        """DDR that has to be there: all but what lies in shared SRAM."""
        outside = self.weights + self.internal - self.shared
        return outside + self.inputs + self.outputs + self.commands

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"total": self.total}


def memory(made: Compiled) -> Memory:
    """The memory of a program, with a row for each of its feature maps."""
    program, where = made.program, made.arrangement
    fullest = max(where.layouts, key=lambda one: one.peak)
    return Memory(
        chip=program.chip,
        weights=program.weights,
        internal=program.internal,
        shared=min(program.near, program.internal),
        inputs=sum(v.type.bytes for v in made.net.inputs),
        outputs=sum(v.type.bytes for v in made.net.outputs),
        commands=program.encode().nbytes,
        sram=program.sram,
        peak=fullest.peak,
        fullest=made.net.layers[fullest.fullest].name,
        traffic=made.traffic,
        least_traffic=made.least_traffic,
        maps=list(_maps(made)),
    )


def _maps(made: Compiled) -> Iterator[MapRow]:
    near, where = made.program.near, made.arrangement
    group_of = {k: one.group for one in where.layouts for k in one.group.numbers}
    for s in made.net.stores:
        writers = made.facts.writers.get(s)
        layer = writers[0] if writers else -1
        user = made.net.layers[layer].op if writers else "input"
        size = s.bytes(s.height) * s.images
        place, start, hit = "tiles", 0, size
        if s.slot >= 0:
            place, hit = "input", 0
        elif s in where.pinned:
            place, start, size = "stays", where.pinned[s], s.room(s.height) * s.images
            hit = size
        elif s in where.homes:
            start = where.homes[s]
            hit = max(0, min(size, near - start))
            place = "shared" if hit == size else "ddr"
        used = made.facts.users.get(s, [0])
        read = used[-1]
        if s in where.homes:  # as long as the groups that touch it run, band by band
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


def _native(s: Store) -> tuple[int, ...]:
    return s.images, s.blocks, s.height, s.width, s.c2


SUMS = (
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
WIDTHS = ("{:>5}", "{:10}", "{:5}", "{:20}", "{:22}", "{:>10}", "{:>10}", "{:>10}", "{:6}", "{}")


def table(found: Memory) -> Iterator[str]:
    """The report as lines of text."""
    for words, name in SUMS:
        more = f"  ({found.shared} in shared SRAM)" if name == "internal" and found.shared else ""
        yield f"{words:12} {getattr(found, name):>12} bytes{more}"
    share = found.traffic / max(found.least_traffic, 1)
    yield f"{'moved':12} {found.traffic:>12} bytes in a run, {share:.2f} times the least"
    yield f"{'core':12} {found.peak:>12} of {found.sram} bytes of SRAM, at {found.fullest}"
    yield ""
    line = " ".join(WIDTHS)
    yield line.format(*COLUMNS)
    for r in found.maps:
        shape, native = (",".join(map(str, t)) for t in (r.shape, r.native))
        yield line.format(
            r.layer, r.user, r.dtype, shape, native, f"{r.start:#x}", r.size, r.hit, r.place, r.name
        ).rstrip()
