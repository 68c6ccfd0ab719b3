"""Where things lie in a core's memory while a group runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from intaglio.npu.layers import Layer, Range, Store
from intaglio.npu.tiling.tiles import Band, Facts, Group, cut


@dataclass(eq=False, slots=True)
class Block:
    """Bytes that are taken from layer `first` of a group to layer `last`, both included."""

    size: int
    first: int
    last: int
    offset: int = -1


@dataclass(slots=True)
class Layout:
    """The memory of one group: a block for each map (two where they alternate) and weights."""

    group: Group
    bands: list[Band]  # by tile
    incoming: dict[Store, list[Range]]
    kept: list[Store]
    rows: dict[Store, int]  # most rows of a tile
    maps: dict[Store, list[Block]] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)  # blocks of output channels at a time
    weights: dict[int, list[Block]] = field(default_factory=dict)  # by layer
    tables: dict[int, Block] = field(default_factory=dict)
    peak: int = 0  # bytes at the fullest moment
    fullest: int = 0  # the layer at which that is

    def blocks(self) -> list[Block]:
        every = [b for bs in [*self.maps.values(), *self.weights.values()] for b in bs]
        return list(dict.fromkeys([*every, *self.tables.values()]))


def layout(
    facts: Facts, group: Group, pinned: frozenset[Store], room: int, sample: bool = False
) -> Layout:
    """Sizes and lifetimes of what the group needs; `pinned` maps have a place already.

    `room` bytes may be used. With `sample`, only a few tiles are looked at: good for an estimate.
    """
    layers = facts.layers[group.first : group.last]
    found = cut(facts, group.first, group.last, group.tiles, sample)
    made = Layout(group, found.bands, found.incoming, found.kept, found.rows)
    _maps(facts, made, layers, pinned)
    _weights(facts, made, room)
    made.peak, made.fullest = fullest(made.blocks(), group.first, group.last)
    return made


def _maps(facts: Facts, made: Layout, layers: Sequence[Layer], pinned: frozenset[Store]) -> None:
    group = made.group
    many = group.tiles * group.images > 1
    for s, rows in made.rows.items():
        if s in pinned:
            continue
        inside = [k for k in facts.users[s] if group.first <= k < group.last]
        first, last = inside[0], inside[-1]
        if s in made.kept:
            last = group.last
        if s in made.incoming:
            first = group.first if many else max(group.first, first - 1)
        size = s.room(rows)
        twice = many and group.double and (s in made.incoming or s in made.kept)
        if twice:
            first, last = group.first, group.last
        made.maps[s] = [Block(size, first, last) for _ in range(2 if twice else 1)]
    _in_place(facts, made, layers, pinned)


def _in_place(
    facts: Facts, made: Layout, layers: Sequence[Layer], pinned: frozenset[Store]
) -> None:
    """A sum may lie on what it adds to, where nobody reads that afterwards."""
    inside = set(made.maps) - set(made.incoming) - set(made.kept)
    for layer in layers:
        dst = layer.dst.store
        if layer.op not in ("conv", "depthwise", "eltwise", "lut") or dst in pinned:
            continue
        if len(facts.writers[dst]) != 1 or layer.dst.channels != dst.channels:
            continue
        reads = layer.reads[layer.residual :] if layer.is_product else layer.reads
        if layer.is_product and layer.residual < 0:
            continue
        for r in reads:
            s = r.store
            same = (s.dtype, s.channels, s.height, s.width, s.images) == (
                dst.dtype,
                dst.channels,
                dst.height,
                dst.width,
                dst.images,
            )
            uses = sum(o.store is s for o in layer.reads)
            if not same or s not in inside or r.channels != s.channels or uses != 1:
                continue
            if max(facts.readers[s]) != layer.number or len(made.maps[s]) != len(made.maps[dst]):
                continue
            if any(b.rows.get(s) != b.rows.get(dst) for b in made.bands):
                continue
            old, new = made.maps[s][0], made.maps[dst][0]
            old.last = max(old.last, new.last)
            made.maps[dst] = made.maps[s]
            break


def _weights(facts: Facts, made: Layout, room: int) -> None:
    group, align = made.group, facts.chip.align
    if not group.streamed:
        for k in group.numbers:
            c = facts.constants[k]
            if c is None:
                continue
            if c.blocks:
                made.chunks[k] = c.blocks
                made.weights[k] = [Block(c.chunk(c.blocks, align), group.first, group.last)]
            if c.table:
                made.tables[k] = Block(facts.table(k), group.first, group.last)
        return
    live = _live(made.blocks(), group.first, group.last)
    before = 0  # what the layer before it has taken
    for k in group.numbers:
        c = facts.constants[k]
        if c is None:
            before = 0
            continue
        start = max(group.first, k - 1)
        free = room - live[k - group.first] - facts.table(k)
        early = free - before if k > group.first else free
        early = min(early, room - live[start - group.first] - before - facts.table(k))
        if c.table:
            made.tables[k] = Block(facts.table(k), k, k)
        if not c.blocks:
            before = 0
            continue
        whole = c.chunk(c.blocks, align)
        if whole <= early:
            made.chunks[k], made.weights[k] = c.blocks, [Block(whole, start, k)]
            before = whole
            continue
        twice = 1 if group.turned and not facts.spread else 2  # those that stay are few
        fit = min(max(free // twice // c.chunk(1, align), 1), c.blocks)
        size = c.chunk(fit, align)
        slots = 2 if twice == 2 and 2 * size <= free and fit < c.blocks else 1
        made.chunks[k] = fit
        last = group.last if group.turned else k
        made.weights[k] = [Block(size, k, last) for _ in range(slots)]
        before = size * slots


def _live(blocks: Sequence[Block], first: int, last: int) -> list[int]:
    """Bytes taken at each layer first .. last (included: what follows the last layer)."""
    change = [0] * (last - first + 2)
    for b in blocks:
        change[b.first - first] += b.size
        change[b.last - first + 1] -= b.size
    live, total = [], 0
    for c in change[:-1]:
        total += c
        live.append(total)
    return live


def fullest(blocks: Sequence[Block], first: int, last: int) -> tuple[int, int]:
    """The most bytes that are taken at once, and at which layer."""
    live = _live(blocks, first, last)
    at = max(range(len(live)), key=live.__getitem__)
    return live[at], min(first + at, last - 1)


def pack(blocks: Sequence[Block], sort: bool = True) -> int:
    """Give each block the lowest place that is free while it is needed; returns the end.

    The largest goes first, or, without `sort`, the first.
    """
    done: list[Block] = []
    end = 0
    for b in sorted(blocks, key=lambda b: (-b.size, b.first, b.last)) if sort else blocks:
        taken = sorted(
            (o.offset, o.offset + o.size) for o in done if o.first <= b.last and b.first <= o.last
        )
        at = 0
        for low, high in taken:
            if low - at >= b.size:
                break
            at = max(at, high)
        b.offset = at
        done.append(b)
        end = max(end, at + b.size)
    return end
