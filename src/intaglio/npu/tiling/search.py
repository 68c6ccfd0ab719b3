"""The search for layer groups and tile counts: dynamic programming over group boundaries.

The cheapest schedule of the first j layers is that of the first i layers, followed by layers i .. j
as one group, for the best i. A group's time is the larger of its compute and its transfer time,
plus a share of the smaller one. Its cost adds weighted transfer time, because DDR is slower than
its peak and other devices use it, too.
"""

from __future__ import annotations

from intaglio import progress
from intaglio.errors import Unsupported
from intaglio.npu.layers import RELAYOUT, Network
from intaglio.npu.tiling.placement import Layout, layout, pack, reads_whole_bands
from intaglio.npu.tiling.tiles import (
    LayerGroup,
    TilingContext,
    candidate_tile_counts,
    ddr_bytes_read,
    ddr_bytes_written,
    sampled,
    tile_layers,
)

MAX_TILED_LAYERS = 16  # layers of a group in several bands
MAX_WHOLE_LAYERS = 48  # layers of a group in one band
MAX_WORSE_TILE_COUNTS = 3  # stop after this many tile counts without a lower cost
MAX_MISFITS = 2  # stop to grow a group after this many lengths that do not fit in memory
LAUNCH_CYCLES = 200  # overhead of an instruction
# Share of the shorter of compute and transfer time that adds to the longer.
OVERLAPPED, SERIAL = 0.3, 0.8


def choose_groups(net: Network, context: TilingContext, grouped: bool = True) -> list[LayerGroup]:
    """The layers of a network in groups; with `grouped` False, one layer per group."""
    n = len(net.layers)
    best: list[float] = [0.0] + [float("inf")] * n
    last_group: list[LayerGroup | None] = [None] * (n + 1)
    misfits = [0] * n  # lengths in a row that do not fit, by first layer
    for j in progress.counted("tiling layers", range(1, n + 1)):
        # first layers in descending order: a group's bands are those of the shorter one, and more
        for i in range(j - 1, max(j - (MAX_WHOLE_LAYERS if grouped else 1), 0) - 1, -1):
            if misfits[i] > MAX_MISFITS:
                continue
            found = cheapest(context, i, j)
            if found is None and j == i + 1:
                context.hold_less(i)
                found = cheapest(context, i, j)
                if found is None:
                    _raise_too_large(context, i)
            if found is None:
                misfits[i] += 1
                continue
            misfits[i] = 0
            if best[i] + found.cost <= best[j]:
                best[j], last_group[j] = best[i] + found.cost, found
    results: list[LayerGroup] = []
    at = n
    while at:
        group = last_group[at]
        assert group is not None
        results.append(group)
        at = group.first
    return results[::-1]


def cheapest(context: TilingContext, first: int, last: int) -> LayerGroup | None:
    """Layers first .. last as one group with the cheapest tiling; None if they do not fit."""
    layers = context.layers[first:last]
    images = layers[0].dst.map.images
    if any(layer.dst.map.images != images for layer in layers):
        return None  # bands run image by image
    if len(layers) > 1 and any(layer.op == RELAYOUT for layer in layers):
        return None  # these run in DDR
    live_out = tile_layers(context, first, last, 1).edges.live_out
    most = min(s.height for s in live_out)  # every band makes at least one row of each result
    whole = last - first > MAX_TILED_LAYERS
    best: LayerGroup | None = None
    worse = 0
    for tiles in [1] if whole else candidate_tile_counts(most):
        found = None
        for option in _buffering_options(tiles * images, last - first, layers[0].op):
            group = LayerGroup(first, last, tiles, images, *option)
            if (result := _sized(context, group)) is None:
                continue
            cost(context, group, result)
            if found is not None and group.cost >= found.cost:
                continue
            if not _packs(context, result):
                continue
            if len(result.bands) < tiles:  # bands outside the sample may be larger
                every = _sized(context, group, sample=False)
                if every is None or not _packs(context, every):
                    continue
            found = group
        if found is None:
            continue
        if best is None or found.cost < best.cost:
            best, worse = found, 0
        else:
            worse += 1
        if worse >= MAX_WORSE_TILE_COUNTS:
            break
    return best


def _buffering_options(bands: int, layers: int, op: str) -> list[tuple[bool, bool, bool]]:
    """Triples of streams_weights, channels_outer, double_buffered that the group may use."""
    if bands == 1:
        return [(True, False, False)]
    options = [(False, False, True), (False, False, False)]
    if layers == 1 and op == "conv":
        options += [(True, True, True), (True, True, False)]
    return [*options, (True, False, False)] if layers <= 2 else options


def attempt(context: TilingContext, group: LayerGroup, sample: bool = True) -> Layout | None:
    """The group's memory layout; None if it does not fit in the core's SRAM."""
    result = _sized(context, group, sample)
    fits = result is not None and pack(result.blocks()) <= context.chip.sram
    return result if fits else None


def _sized(context: TilingContext, group: LayerGroup, sample: bool = True) -> Layout | None:
    """The group's blocks of memory; None if too many bytes are in use at once."""
    capacity, fixed = context.chip.sram, 0
    if not group.streams_weights:
        fixed = sum(context.weights(k) for k in group.numbers)
        if fixed > capacity:
            return None
    found = tile_layers(context, group.first, group.last, group.tiles, sample)
    if fixed + found.least > capacity:
        return None
    if context.chip_layout.exact_rows:
        if found.whole_bands is None:
            found.whole_bands = reads_whole_bands(context, found.bands)
        if not found.whole_bands:
            return None
    result = layout(context, group, frozenset(), capacity, sample)
    return result if result.peak <= capacity else None


def _packs(context: TilingContext, made: Layout) -> bool:
    """Whether the blocks have offsets within the core's memory."""
    blocks, capacity = made.blocks(), context.chip.sram
    return sum(b.size for b in blocks) <= capacity or pack(blocks) <= capacity


def cost(context: TilingContext, group: LayerGroup, made: Layout) -> None:
    """Set the group's time and cost, in nanoseconds, and its DDR traffic."""
    chip = context.chip
    found = tile_layers(
        context, group.first, group.last, group.tiles, len(made.bands) < group.tiles
    )
    if found.work is None:
        found.work = _work(context, group, made)
    loads, saves, cycles = found.work
    weights = sum(context.weights(k) for k in group.numbers)
    if group.channels_outer:
        c = context.constants[group.first]
        assert c is not None
        loads *= -(-c.blocks // made.chunks[group.first])
    elif group.streams_weights:
        weights *= group.tiles * group.images
    bands = group.tiles * group.images
    sharing = min(context.cores, bands)
    if not group.streams_weights or group.channels_outer:
        weights *= sharing
    group.traffic = int((loads + saves) * group.images + weights)
    moving = group.traffic / chip.ddr
    most = -(-bands // sharing) / bands  # share of the bands on the busiest core
    working = cycles * group.images * most * 1000.0 / chip.clock
    parts = bands * most * (group.last - group.first)
    rest = OVERLAPPED if group.double_buffered or bands == 1 else SERIAL
    longer, shorter = max(moving, working), min(moving, working)
    launches = parts * LAUNCH_CYCLES * 1000.0 / chip.clock
    group.time = longer + rest * shorter + launches
    group.cost = group.time + context.traffic_weight * moving


def _work(context: TilingContext, group: LayerGroup, made: Layout) -> tuple[float, float, float]:
    """Bytes of maps that all bands of an image load and store, and their cycles."""
    shown = len(made.bands)
    # the band in the middle of a sample stands for all that are not in it
    times = [1.0] * shown
    if shown < group.tiles:
        times[2] += group.tiles - shown
        if context.chip_layout.exact_rows:
            times = _times_by_rows(made, times)
    loads = saves = 0.0
    cycles = 0.0
    for one, count in zip(made.bands, times, strict=True):
        for s, ranges in made.live_in.items():
            if s in one.rows:
                low, high = one.rows[s]
                loads += count * sum(ddr_bytes_read(s, r.channels, high - low) for r in ranges)
        for s in made.live_out:
            if s in one.rows:
                later = any(r >= group.last for r in context.readers.get(s, ()))
                saves += count * ddr_bytes_written(s, not later, 1) * s.height / group.tiles
        for k, (low, high) in one.made.items():
            cycles += count * context.cycles(k, high - low)
    return loads, saves, cycles


def _times_by_rows(made: Layout, times: list[float]) -> list[float]:
    """The same, scaled so that the bands of the sample make as many rows as all bands do."""
    tiles, counted = made.group.tiles, 0.0
    for tile, count in zip(sampled(tiles), times, strict=True):
        counted += count * sum(_share(s.height, tile, tiles) for s in made.live_out)
    share = sum(s.height for s in made.live_out) / max(counted, 1)
    return [t * share for t in times]


def _share(height: int, tile: int, tiles: int) -> int:
    """Rows of a result that a band makes."""
    return height * (tile + 1) // tiles - height * tile // tiles


def _raise_too_large(context: TilingContext, k: int) -> None:
    """Raise Unsupported: one layer alone does not fit in SRAM, in any number of bands."""
    layer, capacity = context.layers[k], context.chip.sram
    most = layer.dst.map.height
    options = [LayerGroup(k, k + 1, tiles, layer.dst.map.images) for tiles in (most, 1)]
    needs = [
        (pack(layout(context, option, frozenset(), capacity).blocks()), option.tiles)
        for option in options
    ]
    # bands that would read rows of the map that they write do not count
    least, tiles = min([need for need in needs if need[0] > capacity] or needs)
    raise Unsupported(
        f"{context.chip.name}: {layer.op} '{layer.name}' needs {least} bytes of on-chip memory "
        f"in {tiles} bands of rows; a core has {capacity}, {least - capacity} are missing; "
        "use narrower rows or fewer channels, or keep the layer in float on the CPU "
        "(in the scheme file of `intaglio quantize`)"
    )
