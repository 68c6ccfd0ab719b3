"""The layout of a core's SRAM while a layer group runs: feature maps, weights and tables."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from intaglio.npu.layers import RELAYOUT, ChannelRange, FeatureMap
from intaglio.npu.tiling.tiles import Band, Edges, LayerGroup, TilingContext, tile_layers


@dataclass(eq=False, slots=True)
class Block:
    """Bytes of SRAM in use from layer `first` of a group to layer `last`, both included."""

    size: int
    first: int
    last: int
    offset: int = -1


@dataclass(slots=True)
class Layout:
    """The SRAM blocks of one group: one per feature map (two if double-buffered), and weights."""

    group: LayerGroup
    bands: list[Band]  # by tile
    live_in: dict[FeatureMap, list[ChannelRange]]
    live_out: list[FeatureMap]
    rows: dict[FeatureMap, int]  # of the largest band
    maps: dict[FeatureMap, list[Block]] = field(default_factory=dict)
    first_block: dict[FeatureMap, int] = field(default_factory=dict)  # of channels that SRAM holds
    chunks: dict[int, int] = field(
        default_factory=dict
    )  # by layer: blocks of output channels loaded at once
    weights: dict[int, list[Block]] = field(default_factory=dict)  # by layer
    tables: dict[int, Block] = field(default_factory=dict)
    scratch: dict[int, Block] = field(default_factory=dict)  # temporary results, by layer
    peak: int = 0  # most bytes in use at once
    fullest: int = 0  # the layer at which the peak occurs

    def blocks(self) -> list[Block]:
        every = [b for bs in [*self.maps.values(), *self.weights.values()] for b in bs]
        return list(dict.fromkeys([*every, *self.tables.values(), *self.scratch.values()]))


def layout(
    context: TilingContext,
    group: LayerGroup,
    pinned: frozenset[FeatureMap],
    capacity: int,
    sample: bool = False,
) -> Layout:
    """Sizes and lifetimes of the group's blocks within `capacity` bytes; `pack` places them.

    `pinned` maps have a place already. With `sample`, a few bands stand for all.
    """
    found = tile_layers(context, group.first, group.last, group.tiles, sample)
    edges = found.edges
    result = Layout(group, found.bands, edges.live_in, edges.live_out, found.rows)
    _maps(context, result, edges, pinned)
    for k in group.numbers:
        if size := context.scratch(k, found.made.get(k, 0)):
            result.scratch[k] = Block(size, k, k)
    _weights(context, result, capacity)
    result.peak, result.fullest = fullest(result.blocks(), group.first, group.last)
    return result


def _maps(
    context: TilingContext, made: Layout, edges: Edges, pinned: frozenset[FeatureMap]
) -> None:
    group = made.group
    if context.layers[group.first].op == RELAYOUT:
        return  # nothing of it is in SRAM
    many = group.tiles * group.images > 1
    for s, rows in made.rows.items():
        if s in pinned:
            continue
        first, last = edges.lives[s]
        if s in made.live_out:
            last = group.last
        if s in made.live_in:
            first = group.first if many else max(group.first, first - 1)
        size = s.sram_bytes(rows)
        if group.last == group.first + 1:
            made.first_block[s], blocks = context.held(group.first, s)
            size = s.sram_bytes(rows, blocks)
        twice = many and group.double_buffered and (s in made.live_in or s in made.live_out)
        if twice:
            first, last = group.first, group.last
        made.maps[s] = [Block(size, first, last) for _ in range(2 if twice else 1)]
    _in_place(context, made, pinned)


def _in_place(context: TilingContext, made: Layout, pinned: frozenset[FeatureMap]) -> None:
    """Let an element-wise result overwrite an operand of the same shape that nobody reads later."""
    for k in made.group.numbers:
        dst = context.layers[k].dst.map
        if not context.in_place[k] or dst in pinned:
            continue
        for s in context.in_place[k]:
            if s not in made.maps or s in made.live_in or s in made.live_out:
                continue
            if len(made.maps[s]) != len(made.maps[dst]):
                continue
            if any(b.rows.get(s) != b.rows.get(dst) for b in made.bands):
                continue
            old, new = made.maps[s][0], made.maps[dst][0]
            old.last = max(old.last, new.last)
            made.maps[dst] = made.maps[s]
            break


def _weights(context: TilingContext, made: Layout, capacity: int) -> None:
    group, align = made.group, context.chip.align
    if not group.streams_weights:
        for k in group.numbers:
            c = context.constants[k]
            if c is None:
                continue
            if c.blocks:
                made.chunks[k] = c.blocks
                made.weights[k] = [Block(c.chunk(c.blocks, align), group.first, group.last)]
            if c.table:
                made.tables[k] = Block(context.table(k), group.first, group.last)
        return
    live = _live(made.blocks(), group.first, group.last)
    before = 0  # bytes of weights of the layer before
    for k in group.numbers:
        c = context.constants[k]
        if c is None:
            before = 0
            continue
        start = max(group.first, k - 1)
        free = capacity - live[k - group.first] - context.table(k)
        early = free - before if k > group.first else free
        early = min(early, capacity - live[start - group.first] - before - context.table(k))
        if c.table:
            made.tables[k] = Block(context.table(k), k, k)
        if not c.blocks:
            before = 0
            continue
        whole = c.chunk(c.blocks, align)
        if whole <= early:
            made.chunks[k], made.weights[k] = c.blocks, [Block(whole, start, k)]
            before = whole
            continue
        # with channels in the outer loop weights are loaded rarely: one buffer is enough
        buffers = 1 if group.channels_outer and not context.split_over_cores else 2
        fit = min(max(free // buffers // c.chunk(1, align), 1), c.blocks)
        size = c.chunk(fit, align)
        slots = 2 if buffers == 2 and 2 * size <= free and fit < c.blocks else 1
        made.chunks[k] = fit
        last = group.last if group.channels_outer else k
        made.weights[k] = [Block(size, k, last) for _ in range(slots)]
        before = size * slots


def load_early(context: TilingContext, made: Layout, capacity: int) -> None:
    """Load weights of a group in one band as many layers ahead as its SRAM and the chip allow."""
    group, most = made.group, context.chip_layout.loads_ahead
    if most < 2 or not group.streams_weights or group.channels_outer:
        return
    if group.tiles * group.images > 1:
        return
    early = {k: b[0] for k, b in made.weights.items() if len(b) == 1 and b[0].first < k}
    for ahead in (most, *(d for d in (16, 8, 6, 4, 3, 2) if d < most), 1):
        for k, block in early.items():
            block.first = max(group.first, k - ahead)
        if fullest(made.blocks(), group.first, group.last)[0] > capacity:
            continue
        if pack(made.blocks()) <= capacity:
            return


def reads_whole_bands(
    context: TilingContext, bands: Sequence[Band], pinned: frozenset[FeatureMap] = frozenset()
) -> bool:
    """Do windows and tables read and write all rows of their maps that SRAM holds?

    Rows below the last window do not matter, if there are fewer than its stride.
    """

    def held(s: FeatureMap, one: Band) -> tuple[int, int]:
        return (0, s.height) if s in pinned else one.rows[s]

    for one in bands:
        for k, (low, high) in one.made.items():
            layer = context.layers[k]
            if not layer.is_window and layer.op != "lut":
                continue
            first, last = layer.rows(0, low, high)
            top, bottom = held(layer.reads[0].map, one)
            unread = bottom - last
            if first != top or (unread and (layer.op == "lut" or unread >= layer.stride[0])):
                return False
            if held(layer.dst.map, one) != (low, high):
                return False
    return True


def _live(blocks: Sequence[Block], first: int, last: int) -> list[int]:
    """Bytes in use at each layer first .. last, and after the last one."""
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
    """The most bytes in use at once, and the layer at which that is."""
    live = _live(blocks, first, last)
    at = max(range(len(live)), key=live.__getitem__)
    return live[at], min(first + at, last - 1)


def _offset(b: Block) -> int:
    return b.offset


def pack(blocks: Sequence[Block], sort: bool = True) -> int:
    """Give each block the lowest offset that is free during its lifetime; returns the total size.

    The largest block is placed first; without `sort`, the first of the list.
    """
    done: list[Block] = []
    end = 0
    for b in sorted(blocks, key=lambda b: (-b.size, b.first, b.last)) if sort else blocks:
        at, size, first, last = 0, b.size, b.first, b.last
        for o in done:  # in the order of their offsets
            if o.first <= last and first <= o.last:
                if o.offset - at >= size:
                    break
                if (high := o.offset + o.size) > at:
                    at = high
        b.offset = at
        insort(done, b, key=_offset)
        end = max(end, at + size)
    return end
