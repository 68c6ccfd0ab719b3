"""Layer groups and their tiles: the rows that each tile reads and makes.

A layer group is a run of consecutive layers. Its results are cut into `tiles` bands of rows. Each
band is computed through the whole group before the next one, so the feature maps between the
group's layers never leave the core's memory. Windows make bands overlap: the rows that two bands
share are computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from intaglio.npu.chip_layout import ChipLayout
from intaglio.npu.layers import RELAYOUT, ChannelRange, FeatureMap, Layer, Network
from intaglio.npu.weight_packing import Constants
from intaglio.targets.chip import Chip

Rows = dict[FeatureMap, tuple[int, int]]
MULTI_CORE_TRAFFIC_WEIGHT = 0.5  # the weight of DDR traffic if cores would idle otherwise


@dataclass(slots=True)
class TilingContext:
    """Facts about a network on a chip that the search asks for again and again."""

    chip: Chip
    layers: list[Layer]
    constants: list[Constants | None]
    cores: int = 1
    chip_layout: ChipLayout = field(default_factory=ChipLayout)
    traffic_weight: float = ChipLayout.traffic_weights[0]
    split_over_cores: bool = False  # use all cores, although each loads the weights for itself
    writers: dict[FeatureMap, list[int]] = field(default_factory=dict)
    readers: dict[FeatureMap, list[int]] = field(default_factory=dict)
    users: dict[FeatureMap, list[int]] = field(default_factory=dict)  # writers and readers
    in_place: list[list[FeatureMap]] = field(default_factory=list)  # operands, by layer
    # layers that fit only if SRAM holds no more of their maps than they touch; each runs alone
    narrow: set[int] = field(default_factory=set)
    # caches
    tilings: dict[tuple[int, int, int, bool], Tiling] = field(default_factory=dict)
    edges: dict[tuple[int, int], Edges] = field(default_factory=dict)
    _weights: dict[int, int] = field(default_factory=dict)
    _scratch: dict[tuple[int, int], int] = field(default_factory=dict)
    _cycles: dict[tuple[int, int], float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, net: Network, chip: Chip, cores: int = 1, chip_layout: ChipLayout | None = None
    ) -> TilingContext:
        chip_layout = chip_layout or ChipLayout()
        constants = [chip_layout.constants(layer, chip) for layer in net.layers]
        result = cls(chip, net.layers, constants, cores, chip_layout)
        for layer in net.layers:
            result.writers.setdefault(layer.dst.map, []).append(layer.number)
            for r in layer.reads:
                result.readers.setdefault(r.map, []).append(layer.number)
            for s in {r.map for r in [*layer.reads, layer.dst]}:
                result.users.setdefault(s, []).append(layer.number)
        result.in_place = [_overwritable(result, layer) for layer in net.layers]
        return result

    def hold_less(self, k: int) -> None:
        """Let SRAM hold only the blocks of channels that layer k touches, if it runs alone."""
        self.narrow.add(k)
        for key in [key for key in self.tilings if key[:2] == (k, k + 1)]:
            del self.tilings[key]

    def held(self, k: int, s: FeatureMap) -> tuple[int, int]:
        """The first block of channels of a map that SRAM holds for layer k alone, and how many."""
        layer = self.layers[k]
        if k not in self.narrow:
            return 0, s.blocks
        touched = [r for r in (*layer.reads, layer.dst) if r.map is s]
        low = min(r.first for r in touched) // s.c2
        return low, -(-max(r.first + r.channels for r in touched) // s.c2) - low

    def weights(self, k: int) -> int:
        """Bytes of SRAM for all weights, parameters and tables of layer k."""
        if k not in self._weights:
            c = self.constants[k]
            whole = c.chunk(c.blocks, self.chip.align) if c and c.blocks else 0
            self._weights[k] = whole + self.table(k)
        return self._weights[k]

    def table(self, k: int) -> int:
        """Bytes of SRAM for the lookup table of layer k."""
        c = self.constants[k]
        align = self.chip.align
        return -(-len(c.table) // align) * align if c else 0

    def scratch(self, k: int, rows: int) -> int:
        """Bytes of SRAM for temporary results of layer k while it makes `rows` rows."""
        if (k, rows) not in self._scratch:
            align = self.chip.align
            size = self.chip_layout.scratch(self.layers[k], rows)
            self._scratch[k, rows] = -(-size // align) * align
        return self._scratch[k, rows]

    def cycles(self, k: int, rows: int) -> float:
        """An estimate for `rows` rows of one image; npu.predict has the finer model."""
        if (k, rows) not in self._cycles:
            self._cycles[k, rows] = self._estimated(k, rows)
        return self._cycles[k, rows]

    def _estimated(self, k: int, rows: int) -> float:
        layer = self.layers[k]
        if (exact := self.chip_layout.cycles(layer, rows, self.chip)) is not None:
            return exact
        dtype = (layer.reads or [layer.dst])[0].map.dtype
        unit = self.chip.units.get(layer.op)
        rate = unit.rate.get(dtype, 16.0) if unit else 16.0
        c = self.constants[k]
        outputs: float = rows * layer.dst.map.width
        if layer.is_product and c is not None:
            a, timing = c.atoms, self.chip.timing
            taps = layer.kernel[0] * layer.kernel[1]
            if layer.op == "conv":
                steps = max(-(-layer.reads[0].channels // a.inputs) * taps, timing.get("steps", 1))
                at_once = timing.get("pixels", 1)
                outputs = -(-outputs // at_once) * at_once
            else:
                steps = taps
            work = c.blocks * a.outputs * steps * (a.inputs if layer.op == "conv" else 1)
        elif layer.op == "matmul":
            work = layer.dst.channels * layer.reads[0].channels
        else:
            work = layer.dst.channels * layer.kernel[0] * layer.kernel[1]
        return outputs * work / rate


@dataclass(slots=True)
class LayerGroup:
    """Layers first .. last (excluded), in `tiles` bands per image."""

    first: int
    last: int
    tiles: int = 1
    images: int = 1
    streams_weights: bool = True  # load weights for each band; else load them once
    channels_outer: bool = False  # one layer: loop over output channels, inside over bands
    double_buffered: bool = False  # live-in maps have two buffers: load while computing
    time: float = 0.0  # estimated nanoseconds
    cost: float = 0.0  # time, plus the weighted time of its DDR transfers
    traffic: int = 0  # bytes to and from DDR

    @property
    def numbers(self) -> range:
        return range(self.first, self.last)


def _overwritable(context: TilingContext, layer: Layer) -> list[FeatureMap]:
    """Operands of the same shape as an element-wise result, which nobody else reads later."""
    dst = layer.dst.map
    if layer.op not in ("conv", "depthwise", "eltwise", "lut"):
        return []
    if len(context.writers[dst]) != 1 or layer.dst.channels != dst.channels:
        return []
    if layer.is_product and layer.residual < 0:
        return []
    if not context.chip_layout.overwrites(layer):
        return []
    found = []
    shape = dst.dtype, dst.channels, dst.height, dst.width, dst.images
    for r in layer.reads[layer.residual :] if layer.is_product else layer.reads:
        s = r.map
        same = (s.dtype, s.channels, s.height, s.width, s.images) == shape
        uses = sum(o.map is s for o in layer.reads)
        whole = r.channels == s.channels and uses == 1
        if same and whole and max(context.readers[s]) == layer.number:
            found.append(s)
    return found


@dataclass(slots=True)
class Edges:
    """What a group of layers needs from outside, and what is needed of it.

    Live-in: maps made before the group, with the channels that it reads. Live-out: maps that the
    group makes and that later layers, or the program's outputs, need.
    """

    live_in: dict[FeatureMap, list[ChannelRange]]
    live_out: list[FeatureMap]
    lives: dict[FeatureMap, tuple[int, int]]  # the first and the last layer that uses a map


def boundary(context: TilingContext, first: int, last: int) -> Edges:
    """The edges of layers first .. last."""
    if (first, last) not in context.edges:
        context.edges[first, last] = _edges(context, first, last)
    return context.edges[first, last]


def _edges(context: TilingContext, first: int, last: int) -> Edges:
    live_in: dict[FeatureMap, list[ChannelRange]] = {}
    results: dict[FeatureMap, None] = {}
    wanted: dict[FeatureMap, list[ChannelRange]] = {}
    lives: dict[FeatureMap, tuple[int, int]] = {}
    for layer in context.layers[first:last]:
        for r in layer.reads:
            wanted.setdefault(r.map, []).append(r)
            lives[r.map] = lives.get(r.map, (layer.number, 0))[0], layer.number
        dst = layer.dst.map
        lives[dst] = lives.get(dst, (layer.number, 0))[0], layer.number
        results[dst] = None
    for s, reads in wanted.items():
        before = [context.layers[w].dst for w in context.writers.get(s, ()) if w < first]
        if s.input_slot >= 0:
            before = [ChannelRange(s, 0, s.channels)]
        if found := _blocks_read(s, before, reads):
            live_in[s] = found
    live_out = [
        s for s in results if s.output_ranges or any(r >= last for r in context.readers.get(s, ()))
    ]
    return Edges(live_in, live_out, lives)


def _blocks_read(
    s: FeatureMap, made: Sequence[ChannelRange], reads: Sequence[ChannelRange]
) -> list[ChannelRange]:
    """The channels of `made` that lie in blocks of c2 channels that `reads` touch."""
    low = min(r.first for r in reads) // s.c2 * s.c2
    high = -(-max(r.first + r.channels for r in reads) // s.c2) * s.c2
    overlaps = [(max(m.first, low), min(m.first + m.channels, high)) for m in made]
    return [ChannelRange(s, a, b - a) for a, b in overlaps if b > a]


@dataclass(slots=True)
class Band:
    """One tile of a group: the rows that it touches, by feature map, and makes, by layer."""

    rows: Rows = field(default_factory=dict)
    made: dict[int, tuple[int, int]] = field(default_factory=dict)

    def precede(self, layer: Layer) -> None:
        """Add the layer before those that are in the band already."""
        need = self.rows
        if layer.dst.map not in need:
            return
        # rows that earlier layers will read are not made by this one
        low, high = self.made[layer.number] = need[layer.dst.map]
        for k, r in enumerate(layer.reads):
            a, b = layer.rows(k, low, high)
            if r.map in need:
                c, d = need[r.map]
                a, b = min(a, c), max(b, d)
            need[r.map] = a, b


def band(layers: Sequence[Layer], live_out: Iterable[FeatureMap], tile: int, tiles: int) -> Band:
    """Band `tile` of `tiles` of a group."""
    found = Band()
    need = found.rows
    for s in live_out:
        low, high = s.height * tile // tiles, s.height * (tile + 1) // tiles
        if high > low:
            need[s] = low, high
    for layer in reversed(layers):
        found.precede(layer)
    return found


@dataclass(slots=True)
class Tiling:
    """Consecutive layers cut into bands of rows."""

    edges: Edges
    bands: list[Band]
    rows: dict[FeatureMap, int] = field(default_factory=dict)  # of the largest band
    made: dict[int, int] = field(default_factory=dict)  # rows of the largest band, by layer
    least: int = 0  # bytes: the maps of one layer, at least
    # what `placement` and `search` find out
    whole_bands: bool | None = None
    work: tuple[float, float, float] | None = None  # bytes loaded and stored, cycles

    def measure(self, context: TilingContext, layers: Sequence[Layer]) -> None:
        """Find the largest bands of all maps and layers."""
        rows, made = self.rows, self.made
        for one in self.bands:
            for s, (low, high) in one.rows.items():
                if high - low > rows.get(s, 0):
                    rows[s] = high - low
            for k, (low, high) in one.made.items():
                if high - low > made.get(k, 0):
                    made[k] = high - low
        for layer in layers:
            if layer.number in made and layer.op != RELAYOUT:  # which is done in DDR
                maps = {r.map for r in layer.reads}
                if not context.in_place[layer.number]:
                    maps.add(layer.dst.map)
                k = layer.number
                held = sum(s.sram_bytes(rows[s], context.held(k, s)[1]) for s in maps)
                self.least = max(self.least, held)


SAMPLED_BANDS = 5  # bands that stand for all in an estimate


def sampled(tiles: int) -> tuple[int, ...]:
    """The bands that stand for all; that in the middle stands for those not in the sample."""
    return 0, 1, tiles // 2, tiles - 2, tiles - 1


def tile_layers(
    context: TilingContext, first: int, last: int, tiles: int, sample: bool = False
) -> Tiling:
    """Layers first .. last in `tiles` bands; with `sample`, only a few of the bands."""
    few = sample and tiles > SAMPLED_BANDS
    found = context.tilings.get((first, last, tiles, few))
    if found is not None:
        return found
    edges, layers = boundary(context, first, last), context.layers[first:last]
    shorter = context.tilings.get((first + 1, last, tiles, few))
    if shorter is not None and shorter.edges.live_out == edges.live_out:
        result = Tiling(edges, [Band(dict(b.rows), dict(b.made)) for b in shorter.bands])
        for one in result.bands:
            one.precede(layers[0])
        result.least = shorter.least  # the same maps have as many rows, or more
        result.measure(context, layers[:1])
    else:
        numbers = sampled(tiles) if few else range(tiles)
        result = Tiling(edges, [band(layers, edges.live_out, t, tiles) for t in numbers])
        result.measure(context, layers)
    context.tilings[first, last, tiles, few] = result
    return result


def ddr_bytes_read(fm: FeatureMap, channels: int, rows: int) -> int:
    """Bytes of DDR traffic for reading these rows and channels."""
    if fm.input_slot >= 0:
        return channels * rows * fm.width * fm.item
    return -(-channels // fm.c2) * fm.c2 * rows * fm.width * fm.item


def ddr_bytes_written(fm: FeatureMap, pinned: bool, rows: int) -> int:
    """Bytes of DDR traffic for writing `rows` rows: outputs, and unless `pinned` the map itself."""
    result = sum(c * rows * fm.width * fm.item for _, _, c in fm.output_ranges)
    return result if pinned else result + fm.ddr_bytes(rows)


def candidate_tile_counts(most: int) -> list[int]:
    """The numbers of bands to try for feature maps of `most` rows."""
    every = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112]
    more = [128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 2048, 4096]
    return [t for t in [*every, *more] if t < most] + [most]
