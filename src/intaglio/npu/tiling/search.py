"""Which layers run together and in how many bands: a bounded search for the cheapest cut.

The best way to run the first j layers is the best way to run the first i, and then layers i .. j as
one group, for the best i. A group's cost is the larger of its work and its traffic, with some of
the smaller on top, and traffic again: DDR is never as fast as its name, and others use it, too.
"""

from __future__ import annotations

from collections.abc import Callable

from intaglio.errors import Unsupported
from intaglio.npu.layers import Network
from intaglio.npu.tiling.placement import Layout, layout, pack
from intaglio.npu.tiling.tiles import Facts, Group, cut, outside, stored, usual_tiles

LONGEST = 16  # layers of a group in several bands
LONGEST_WHOLE = 48  # of one whose maps fit as a whole
TRIALS = 3  # numbers of bands tried beyond the first that fits
LAUNCH = 200  # cycles of each instruction beside its work
HIDDEN, SHOWN = 0.3, 0.8  # of the shorter of work and traffic, that adds to the longer


def groups(
    net: Network,
    facts: Facts,
    together: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Group]:
    """The layers of a network as groups; with `together` False, each layer by itself."""
    n = len(net.layers)
    best: list[float] = [0.0] + [float("inf")] * n
    came: list[Group | None] = [None] * (n + 1)
    for i in range(n):
        if progress:
            progress(i, n)
        misses = 0
        for j in range(i + 1, min(n, i + (LONGEST_WHOLE if together else 1)) + 1):
            found = cheapest(facts, i, j)
            if found is None:
                misses += 1
                if j == i + 1:
                    _too_small(facts, i)
                if misses > 2:
                    break
                continue
            misses = 0
            if best[i] + found.cost < best[j]:
                best[j], came[j] = best[i] + found.cost, found
    made: list[Group] = []
    at = n
    while at:
        group = came[at]
        assert group is not None
        made.append(group)
        at = group.first
    return made[::-1]


def cheapest(facts: Facts, first: int, last: int) -> Group | None:
    """The cheapest way to run layers first .. last as one group; None: they do not fit."""
    layers = facts.layers[first:last]
    images = layers[0].dst.store.images
    if any(layer.dst.store.images != images for layer in layers):
        return None  # bands are those of one image after the other
    kept = cut(facts, first, last, 1).kept
    most = min(s.height for s in kept)  # every band has a row of each result
    whole = last - first > LONGEST
    best: Group | None = None
    beyond = 0
    for tiles in [1] if whole else usual_tiles(most):
        found = None
        for streamed, turned, double in _ways(tiles * images, last - first, layers[0].op):
            group = Group(first, last, tiles, images, streamed, turned, double)
            if (made := attempt(facts, group)) is None:
                continue
            cost(facts, group, made)
            if found is not None and group.cost >= found.cost:
                continue
            # bands that were not looked at may be larger than those that were
            if len(made.bands) == tiles or attempt(facts, group, sample=False) is not None:
                found = group
        if found is None:
            continue
        if best is None or found.cost < best.cost:
            best, beyond = found, 0
        else:
            beyond += 1
        if beyond >= TRIALS:
            break
    return best


def _ways(bands: int, layers: int, op: str) -> list[tuple[bool, bool, bool]]:
    """How weights and maps may come in: streamed, turned, double."""
    if bands == 1:
        return [(True, False, False)]
    ways = [(False, False, True), (False, False, False)]
    if layers == 1 and op == "conv":
        ways += [(True, True, True), (True, True, False)]
    return [*ways, (True, False, False)] if layers <= 2 else ways


def attempt(facts: Facts, group: Group, sample: bool = True) -> Layout | None:
    """The group's memory, if it fits the core's."""
    room = facts.chip.sram
    if not group.streamed:
        fixed = sum(facts.weights(k) for k in group.numbers)
        if fixed > room:
            return None
    made = layout(facts, group, frozenset(), room, sample)
    if made.peak > room or pack(made.blocks()) > room:
        return None
    return made


def cost(facts: Facts, group: Group, made: Layout) -> None:
    """Fill in what the group costs, in nanoseconds, and the bytes that it moves."""
    chip, layers = facts.chip, facts.layers[group.first : group.last]
    shown = len(made.bands)
    # of a few tiles that were looked at, the one in the middle stands for all that were not
    times = [1.0] * shown
    if shown < group.tiles:
        times[2] += group.tiles - shown
    loads = saves = 0.0
    cycles = 0.0
    for one, count in zip(made.bands, times, strict=True):
        for s, ranges in made.incoming.items():
            if s in one.rows:
                low, high = one.rows[s]
                loads += count * sum(outside(s, r.channels, high - low) for r in ranges)
        for s in made.kept:
            if s in one.rows:
                later = any(r >= group.last for r in facts.readers.get(s, ()))
                saves += count * stored(s, not later, 1) * s.height / group.tiles
        for k, (low, high) in one.made.items():
            cycles += count * facts.cycles(k, high - low)
    weights = sum(facts.weights(k) for k in group.numbers)
    if group.turned:
        c = facts.constants[group.first]
        assert c is not None
        loads *= -(-c.blocks // made.chunks[group.first])
    elif group.streamed:
        weights *= group.tiles * group.images
    bands = group.tiles * group.images
    sharing = min(facts.cores, bands)
    if not group.streamed or group.turned:
        weights *= sharing
    group.traffic = int((loads + saves) * group.images + weights)
    moving = group.traffic / chip.ddr
    most = -(-bands // sharing) / bands  # of the bands, on the core that has most of them
    working = cycles * group.images * most * 1000.0 / chip.clock
    parts = bands * most * len(layers)
    beside = HIDDEN if group.double or bands == 1 else SHOWN
    longer, shorter = max(moving, working), min(moving, working)
    launches = parts * LAUNCH * 1000.0 / chip.clock
    group.time = longer + beside * shorter + launches
    group.cost = group.time + facts.price * moving


def _too_small(facts: Facts, k: int) -> None:
    """Unsupported: one layer does not fit by itself, however it is cut."""
    layer, room = facts.layers[k], facts.chip.sram
    most = layer.dst.store.height
    ways = [Group(k, k + 1, tiles, layer.dst.store.images) for tiles in (most, 1)]
    needs = [(pack(layout(facts, way, frozenset(), room).blocks()), way.tiles) for way in ways]
    least, tiles = min(needs)
    raise Unsupported(
        f"{facts.chip.name}: {layer.op} '{layer.name}' needs {least} bytes of the core's "
        f"{room} even in {tiles} bands of rows: {least - room} are missing; "
        "make its rows narrower or its channels fewer, or leave it to the CPU in floats "
        "(in the scheme file of `intaglio quantize`)"
    )
