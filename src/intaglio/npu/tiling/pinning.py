"""Which maps stay in the core's memory from one group to the next, and where the others wait."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.npu.layers import Network, Store
from intaglio.npu.tiling.placement import Block, Layout, layout, pack
from intaglio.npu.tiling.search import attempt, cheapest
from intaglio.npu.tiling.tiles import Facts, Group, cut, outside, stored, usual_tiles


@dataclass(slots=True)
class Arrangement:
    """Groups with all their places: in SRAM, and outside for maps that do not stay."""

    layouts: list[Layout]
    pinned: dict[Store, int]  # maps that stay, by offset in SRAM
    homes: dict[Store, int]  # maps that wait outside, by offset in internal memory
    internal: int  # bytes of that


def arrange(net: Network, facts: Facts, groups: list[Group], stay: bool = True) -> Arrangement:
    """Exact places for groups that a search has found."""
    layouts = [made for group in groups for made in _exact(facts, group)]
    pinned = _pin(facts, layouts) if stay else {}
    homes, internal = _homes(facts, layouts, pinned)
    return Arrangement(layouts, pinned, homes, internal)


def _exact(facts: Facts, group: Group) -> list[Layout]:
    """The group's layout over all of its tiles; it is cut further where an estimate was too low."""
    made = attempt(facts, group, sample=False)
    if made is not None:
        return [made]
    most = min(s.height for s in cut(facts, group.first, group.last, 1).kept)
    for tiles in usual_tiles(most):
        if tiles <= group.tiles:
            continue
        for streamed, double in ((False, True), (False, False), (True, False)):
            finer = Group(group.first, group.last, tiles, group.images, streamed, False, double)
            if (made := attempt(facts, finer, sample=False)) is not None:
                return [made]
    assert group.last - group.first > 1, "a search that found a layer to fit was wrong"
    half = (group.first + group.last) // 2
    parts = []
    for first, last in ((group.first, half), (half, group.last)):
        found = cheapest(facts, first, last)
        singles = [found] if found else [cheapest(facts, k, k + 1) for k in range(first, last)]
        parts += [made for g in singles if g for made in _exact(facts, g)]
    return parts


def _pin(facts: Facts, layouts: list[Layout]) -> dict[Store, int]:
    """Maps that stay: those that save most for their size first."""
    room, align = facts.chip.sram, facts.chip.align
    group_of = {k: g for g, made in enumerate(layouts) for k in made.group.numbers}
    candidates: list[tuple[float, int, Store, int, int, int]] = []
    for s in dict.fromkeys(s for made in layouts for s in made.kept):
        users = [group_of[k] for k in [*facts.writers[s], *facts.readers.get(s, ())]]
        later = {group_of[k] for k in facts.readers.get(s, ())} - {group_of[facts.writers[s][-1]]}
        if s.ports or not later:  # what leaves the program goes out in any case
            continue
        saved = stored(s, False, s.height) * s.images
        saved += len(later) * outside(s, s.channels, s.height) * s.images
        size = s.room(s.height) * s.images
        if size < room:
            candidates.append((-saved / size, len(candidates), s, size, min(users), max(users)))
    pinned: dict[Store, int] = {}
    alive: list[tuple[int, int, int, int]] = []  # offset, end, first and last group
    ceiling = [room] * len(layouts)
    inside: list[set[Store]] = [set() for _ in layouts]
    for _, _, s, size, first, last in sorted(candidates, key=lambda c: c[:2]):
        taken = sorted((o, e) for o, e, a, b in alive if a <= last and first <= b)
        offset = room - size
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
            made = layout(facts, layouts[g].group, frozenset(inside[g] | {s}), top)
            if made.peak > top or pack(made.blocks()) > top:
                break
            trial[g] = made
        else:
            for g, made in trial.items():
                layouts[g] = made
                ceiling[g] = min(ceiling[g], offset)
                inside[g].add(s)
            alive.append((offset, offset + size, first, last))
            pinned[s] = offset
    return pinned


def _homes(
    facts: Facts, layouts: list[Layout], pinned: dict[Store, int]
) -> tuple[dict[Store, int], int]:
    """Places outside for maps that later groups read, the busiest lowest."""
    group_of = {k: g for g, made in enumerate(layouts) for k in made.group.numbers}
    blocks: dict[Store, Block] = {}
    busy: dict[Block, float] = {}  # bytes moved for each byte taken
    for made in layouts:
        for s in made.kept:
            readers = {group_of[k] for k in facts.readers.get(s, ())}
            writers = {group_of[k] for k in facts.writers[s]}
            if s in pinned or s in blocks or not readers or max(readers) <= min(writers):
                continue
            b = blocks[s] = Block(
                -(-s.bytes(s.height) * s.images // 64) * 64, min(writers), max(readers)
            )
            busy[b] = 1.0 + len(readers - {min(writers)})
    order = sorted(blocks.values(), key=lambda b: (b.size > facts.chip.shared, -busy[b], -b.size))
    end = pack(order, sort=False)
    return {s: b.offset for s, b in blocks.items()}, end
