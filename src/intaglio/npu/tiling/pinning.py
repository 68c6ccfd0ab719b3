"""Pinning: which feature maps stay in SRAM between groups, and where the other ones are spilled."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.npu.layers import RELAYOUT, FeatureMap, Network
from intaglio.npu.tiling.placement import Block, Layout, layout, load_early, pack, reads_whole_bands
from intaglio.npu.tiling.search import attempt, cheapest
from intaglio.npu.tiling.tiles import (
    LayerGroup,
    TilingContext,
    candidate_tile_counts,
    ddr_bytes_read,
    ddr_bytes_written,
    tile_layers,
)


@dataclass(slots=True)
class MemoryPlan:
    """The memory layout of all groups, and the addresses of the maps that pass between them."""

    layouts: list[Layout]
    pinned: dict[FeatureMap, int]  # maps that stay in SRAM, with their offset
    spilled: dict[FeatureMap, int]  # maps in internal memory, with their offset
    internal: int  # bytes of internal memory


def plan_memory(
    net: Network, context: TilingContext, groups: list[LayerGroup], pin: bool = True
) -> MemoryPlan:
    """Exact addresses for the groups that the search has chosen."""
    layouts = [result for group in groups for result in _exact(context, group)]
    ceiling = [context.chip.sram] * len(layouts)
    pinned = _pin(context, layouts, ceiling) if pin else {}
    for result, top in zip(layouts, ceiling, strict=True):
        load_early(context, result, top)
    spilled, internal = _spill(context, layouts, pinned)
    return MemoryPlan(layouts, pinned, spilled, internal)


def _exact(context: TilingContext, group: LayerGroup) -> list[Layout]:
    """The layout over all bands; tiles the group finer, or splits it, if it does not fit."""
    result = attempt(context, group, sample=False)
    if result is not None:
        return [result]
    most = min(s.height for s in tile_layers(context, group.first, group.last, 1).edges.live_out)
    for tiles in candidate_tile_counts(most):
        if tiles <= group.tiles:
            continue
        for streams_weights, double_buffered in ((False, True), (False, False), (True, False)):
            finer = LayerGroup(
                group.first,
                group.last,
                tiles,
                group.images,
                streams_weights,
                False,
                double_buffered,
            )
            if (result := attempt(context, finer, sample=False)) is not None:
                return [result]
    assert group.last - group.first > 1, "the search chose a single layer that does not fit"
    half = (group.first + group.last) // 2
    parts = []
    for first, last in ((group.first, half), (half, group.last)):
        found = cheapest(context, first, last)
        singles = [found] if found else [cheapest(context, k, k + 1) for k in range(first, last)]
        parts += [result for g in singles if g for result in _exact(context, g)]
    return parts


def _pin(
    context: TilingContext, layouts: list[Layout], ceiling: list[int]
) -> dict[FeatureMap, int]:
    """Pin maps in SRAM, those first that save the most traffic for their size.

    `ceiling` is the SRAM below pinned maps that each group has.
    """
    capacity, align = context.chip.sram, context.chip.align
    exact = context.chip_layout.exact_rows
    group_of = {k: g for g, result in enumerate(layouts) for k in result.group.numbers}
    candidates: list[tuple[float, int, FeatureMap, int, int, int]] = []
    for s in dict.fromkeys(s for result in layouts for s in result.live_out):
        users = [group_of[k] for k in [*context.writers[s], *context.readers.get(s, ())]]
        later = {group_of[k] for k in context.readers.get(s, ())} - {
            group_of[context.writers[s][-1]]
        }
        if s.output_ranges or not later:  # outputs are written to DDR in any case
            continue
        if any(context.layers[k].op == RELAYOUT for k in context.users[s]):
            continue
        saved = ddr_bytes_written(s, False, s.height) * s.images
        saved += len(later) * ddr_bytes_read(s, s.channels, s.height) * s.images
        size = s.sram_bytes(s.height) * s.images
        if size < capacity:
            candidates.append((-saved / size, len(candidates), s, size, min(users), max(users)))
    pinned: dict[FeatureMap, int] = {}
    alive: list[tuple[int, int, int, int]] = []  # offset, end, first and last group
    inside: list[set[FeatureMap]] = [set() for _ in layouts]
    for _, _, s, size, first, last in sorted(candidates, key=lambda c: c[:2]):
        taken = sorted((o, e) for o, e, a, b in alive if a <= last and first <= b)
        offset = capacity - size
        for low, high in reversed(taken):
            if offset >= high:
                break
            offset = min(offset, low - size)
        offset = offset // align * align
        if offset < 0:
            continue
        trial: dict[int, Layout] = {}
        for g in range(first, last + 1):
            top = min(ceiling[g], offset)
            there = frozenset(inside[g] | {s})
            result = layout(context, layouts[g].group, there, top)
            if result.peak > top or pack(result.blocks()) > top:
                break
            if exact and not reads_whole_bands(context, result.bands, there):
                break
            trial[g] = result
        else:
            for g, result in trial.items():
                layouts[g] = result
                ceiling[g] = min(ceiling[g], offset)
                inside[g].add(s)
            alive.append((offset, offset + size, first, last))
            pinned[s] = offset
    return pinned


def _spill(
    context: TilingContext, layouts: list[Layout], pinned: dict[FeatureMap, int]
) -> tuple[dict[FeatureMap, int], int]:
    """Addresses in internal memory for maps that later groups read, the busiest ones lowest."""
    group_of = {k: g for g, result in enumerate(layouts) for k in result.group.numbers}
    blocks: dict[FeatureMap, Block] = {}
    busy: dict[Block, float] = {}  # bytes moved per byte of memory
    for result in layouts:
        for s in result.live_out:
            readers = {group_of[k] for k in context.readers.get(s, ())}
            writers = {group_of[k] for k in context.writers[s]}
            if s in pinned or s in blocks or not readers or max(readers) <= min(writers):
                continue
            b = blocks[s] = Block(
                -(-s.ddr_bytes(s.height) * s.images // 64) * 64, min(writers), max(readers)
            )
            busy[b] = 1.0 + len(readers - {min(writers)})
    order = sorted(blocks.values(), key=lambda b: (b.size > context.chip.shared, -busy[b], -b.size))
    end = pack(order, sort=False)
    return {s: b.offset for s, b in blocks.items()}, end
