"""Layers that run together, tile by tile: which rows each tile needs, and what that costs.

A group is a run of consecutive layers. Its results are cut into `tiles` bands of rows; each band
is computed through the whole group before the next, so that what lies between its layers never
leaves the core's memory. Bands of windows overlap: the rows they share are computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from intaglio.npu.layers import Layer, Network, Range, Store
from intaglio.npu.weight_packing import Constants, constants
from intaglio.targets.chip import Chip

Rows = dict[Store, tuple[int, int]]
# Of time in which DDR is busy, beside time in which somebody waits for it: one after the other,
# until groups move no more than layers by themselves.
PRICES = (3.0, 12.0)
SPREAD = 0.5  # the same where cores would idle otherwise


@dataclass(slots=True)
class Facts:
    """What all groups of a network ask for, worked out once."""

    chip: Chip
    layers: list[Layer]
    constants: list[Constants | None]
    cores: int = 1
    price: float = PRICES[0]
    spread: bool = False  # work goes to all cores, though each reads the weights for itself
    writers: dict[Store, list[int]] = field(default_factory=dict)
    readers: dict[Store, list[int]] = field(default_factory=dict)
    users: dict[Store, list[int]] = field(default_factory=dict)  # both
    cuts: dict[tuple[int, int, int, bool], Cut] = field(default_factory=dict)  # made so far

    @classmethod
    def of(cls, net: Network, chip: Chip, cores: int = 1) -> Facts:
        made = cls(chip, net.layers, [constants(layer, chip) for layer in net.layers], cores)
        for layer in net.layers:
            made.writers.setdefault(layer.dst.store, []).append(layer.number)
            for r in layer.reads:
                made.readers.setdefault(r.store, []).append(layer.number)
            for s in {r.store for r in [*layer.reads, layer.dst]}:
                made.users.setdefault(s, []).append(layer.number)
        return made

    def weights(self, k: int) -> int:
        """Bytes of all that layer k reads from the weights, in SRAM."""
        c = self.constants[k]
        if c is None:
            return 0
        return (c.chunk(c.blocks, self.chip.align) if c.blocks else 0) + self.table(k)

    def table(self, k: int) -> int:
        c = self.constants[k]
        align = self.chip.align
        return -(-len(c.table) // align) * align if c else 0

    def cycles(self, k: int, rows: int) -> float:
        """An estimate for `rows` rows of one image; the cycle model of simulate/ is finer."""
        layer = self.layers[k]
        dtype = layer.reads[0].store.dtype
        unit = self.chip.units.get(layer.op)
        rate = unit.rate.get(dtype, 16.0) if unit else 16.0
        c = self.constants[k]
        if layer.is_product and c is not None:
            a = c.atoms
            deep = -(-layer.reads[0].channels // a.inputs) * a.inputs if layer.op == "conv" else 1
            work = c.blocks * a.outputs * deep * layer.kernel[0] * layer.kernel[1]
        elif layer.op == "matmul":
            work = layer.dst.channels * layer.reads[0].channels
        else:
            work = layer.dst.channels * layer.kernel[0] * layer.kernel[1]
        return rows * layer.dst.store.width * work / rate


@dataclass(slots=True)
class Group:
    """Layers first .. last (excluded), in `tiles` bands for each image."""

    first: int
    last: int
    tiles: int = 1
    images: int = 1
    streamed: bool = True  # weights come in with each band, else they stay
    turned: bool = False  # one layer: all bands for some channels, then for the next ones
    double: bool = False  # maps from outside have two places each, to load while computing
    time: float = 0.0  # nanoseconds, about
    cost: float = 0.0  # the same, and the price of its traffic
    traffic: int = 0  # bytes to and from outside

    @property
    def numbers(self) -> range:
        return range(self.first, self.last)


def edges(facts: Facts, first: int, last: int) -> tuple[dict[Store, list[Range]], list[Store]]:
    """What layers first .. last read from before them, by store, and which stores outlive them."""
    incoming: dict[Store, list[Range]] = {}
    made: dict[Store, None] = {}
    wanted: dict[Store, list[Range]] = {}
    for layer in facts.layers[first:last]:
        for r in layer.reads:
            wanted.setdefault(r.store, []).append(r)
        made[layer.dst.store] = None
    for s, reads in wanted.items():
        before = [facts.layers[w].dst for w in facts.writers.get(s, ()) if w < first]
        if s.slot >= 0:
            before = [Range(s, 0, s.channels)]
        if found := _read(s, before, reads):
            incoming[s] = found
    kept = [s for s in made if s.ports or any(r >= last for r in facts.readers.get(s, ()))]
    return incoming, kept


def _read(s: Store, made: Sequence[Range], reads: Sequence[Range]) -> list[Range]:
    """Of the ranges of a store that were made before, the blocks that are read."""
    low = min(r.first for r in reads) // s.c2 * s.c2
    high = -(-max(r.first + r.channels for r in reads) // s.c2) * s.c2
    cut = [(max(m.first, low), min(m.first + m.channels, high)) for m in made]
    return [Range(s, a, b - a) for a, b in cut if b > a]


@dataclass(slots=True)
class Band:
    """One tile of a group: the rows of each store that it touches, and those each layer makes."""

    rows: Rows = field(default_factory=dict)
    made: dict[int, tuple[int, int]] = field(default_factory=dict)  # by layer


def band(layers: Sequence[Layer], kept: Iterable[Store], tile: int, tiles: int) -> Band:
    """Band `tile` of `tiles` of a group."""
    found = Band()
    need = found.rows
    for s in kept:
        low, high = s.height * tile // tiles, s.height * (tile + 1) // tiles
        if high > low:
            need[s] = low, high
    for layer in reversed(layers):
        if layer.dst.store not in need:
            continue
        # what earlier layers will need of this store is no concern of this one
        low, high = found.made[layer.number] = need[layer.dst.store]
        for k, r in enumerate(layer.reads):
            a, b = layer.rows(k, low, high)
            if r.store in need:
                c, d = need[r.store]
                a, b = min(a, c), max(b, d)
            need[r.store] = a, b
    return found


@dataclass(slots=True)
class Cut:
    """Some layers in so many bands: what comes in, what is kept, and the rows of each band."""

    incoming: dict[Store, list[Range]]
    kept: list[Store]
    bands: list[Band]
    rows: dict[Store, int] = field(default_factory=dict)  # of the largest band


SHOWN = 5  # bands that stand for all


def cut(facts: Facts, first: int, last: int, tiles: int, sample: bool = False) -> Cut:
    """Layers first .. last in `tiles` bands; with `sample`, a few of them stand for all."""
    key = first, last, tiles, sample and tiles > SHOWN
    if key not in facts.cuts:
        incoming, kept = edges(facts, first, last)
        numbers = range(tiles) if not key[3] else (0, 1, tiles // 2, tiles - 2, tiles - 1)
        layers = facts.layers[first:last]
        made = Cut(incoming, kept, [band(layers, kept, t, tiles) for t in numbers])
        for one in made.bands:
            for s, (low, high) in one.rows.items():
                made.rows[s] = max(made.rows.get(s, 0), high - low)
        facts.cuts[key] = made
    return facts.cuts[key]


def outside(store: Store, channels: int, rows: int) -> int:
    """Bytes that those rows and channels take outside of the core."""
    if store.slot >= 0:
        return channels * rows * store.width * store.item
    return -(-channels // store.c2) * store.c2 * rows * store.width * store.item


def stored(store: Store, kept_inside: bool, rows: int) -> int:
    """Bytes written when `rows` rows of a store leave the core."""
    made = sum(c * rows * store.width * store.item for _, _, c in store.ports)
    return made if kept_inside else made + store.bytes(rows)


def usual_tiles(most: int) -> list[int]:
    """Numbers of bands worth trying for maps of `most` rows."""
    every = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112]
    more = [128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 2048, 4096]
    return [t for t in [*every, *more] if t < most] + [most]
