"""Addresses of operands: rows and channels of a feature map as boxes in SRAM, DDR or a port."""

from __future__ import annotations

from dataclasses import dataclass, field

from intaglio import dtypes
from intaglio.npu.layers import ChannelRange, FeatureMap, Layer
from intaglio.npu.ops.relayout import BOX_AXES, Box
from intaglio.npu.own.isa import Feature
from intaglio.npu.tiling.pinning import MemoryPlan
from intaglio.npu.tiling.placement import Layout
from intaglio.npu.tiling.tiles import Band


@dataclass(slots=True)
class Cursor:
    """The band of a group that instructions are being emitted for; it knows all addresses."""

    plan: MemoryPlan
    layout: Layout
    band: Band = field(default_factory=Band)
    image: int = 0
    tile: int = 0
    turn: int = 0  # bands before it on this core: double buffers alternate by it
    planar: bool = False  # maps in internal memory are plain C x H x W
    exact: bool = False  # planes have the rows of the band, not those of the largest band

    def move(self, turn: int, tile: tuple[int, int]) -> None:
        """Go to a band of an image."""
        self.turn, (self.image, self.tile) = turn, tile
        self.band = self.layout.bands[self.tile]

    def rows_read(self, layer: Layer, low: int, high: int) -> tuple[int, int]:
        """Rows of operand 0 for rows low .. high of the result; if exact, all below them, too."""
        first, last = layer.rows(0, low, high)
        fm = layer.reads[0].map
        if self.exact and layer.is_window:
            last = fm.height if fm in self.plan.pinned else self.band.rows[fm][1]
        return first, last

    def in_sram(self, r: ChannelRange, low: int, high: int) -> Feature:
        """Rows low .. high of some channels in SRAM."""
        fm = r.map
        if fm in self.plan.pinned:
            offset = self.plan.pinned[fm] + self.image * fm.sram_bytes(fm.height)
            top, rows = 0, fm.height
        else:
            blocks = self.layout.maps[fm]
            offset, top = blocks[self.turn % len(blocks)].offset, self.band.rows[fm][0]
            low_row, high_row = self.band.rows[fm]
            rows = high_row - low_row if self.exact else self.layout.rows[fm]
        plane = fm.plane(rows)
        block = r.first // fm.c2 - self.layout.first_block.get(fm, 0)
        at = offset + block * plane + (low - top) * fm.pitch
        return _blocked("sram", at, r, high - low, plane, fm.pitch, fm.spread)

    def in_ddr(self, r: ChannelRange, low: int, high: int) -> Feature:
        """The same rows in an input of the program, or in internal memory."""
        fm = r.map
        if fm.input_slot >= 0:
            at = (self.image * fm.channels + r.first) * fm.height + low
            return _nchw("input", fm.input_slot, fm, at, r.channels, high - low)
        if self.planar:
            at = (self.image * fm.channels + r.first) * fm.height + low
            result = _nchw("internal", 0, fm, at, r.channels, high - low)
            result.offset += self.plan.spilled[fm]
            return result
        plane = fm.height * fm.row
        at = self.plan.spilled[fm] + self.image * fm.ddr_bytes(fm.height)
        at += r.first // fm.c2 * plane + low * fm.row
        return _blocked("internal", at, r, high - low, plane, fm.row)

    def whole_in_ddr(self, fm: FeatureMap) -> Feature:
        """All images of a map that lies in DDR as plain N x C x H x W."""
        if fm.input_slot >= 0:
            return Feature("input", 0, fm.dtype, 1, 1, 1, 1, 1, 1, 1, slot=fm.input_slot)
        return Feature("internal", self.plan.spilled[fm], fm.dtype, 1, 1, 1, 1, 1, 1, 1)

    def whole_in_output(self, fm: FeatureMap, slot: int) -> Feature:
        """The same of a map that is an output."""
        return Feature("output", 0, fm.dtype, 1, 1, 1, 1, 1, 1, 1, slot=slot)

    def in_output(
        self,
        fm: FeatureMap,
        slot: int,
        total: int,
        first: int,
        channels: int,
        rows: tuple[int, int],
    ) -> Feature:
        """Rows and channels of an output of the program that has `total` channels."""
        at = (self.image * total + first) * fm.height + rows[0]
        return _nchw("output", slot, fm, at, channels, rows[1] - rows[0])


def _blocked(
    space: str, at: int, r: ChannelRange, rows: int, plane: int, pitch: int, spread: int = 1
) -> Feature:
    """A box of a map in blocks of c2 channels; a pixel takes `spread` times its bytes."""
    fm = r.map
    size = r.channels, rows, fm.width
    strides = plane, pitch, fm.c2 * fm.item * spread
    return Feature(space, at, fm.dtype, *size, fm.c2, *strides, r.first % fm.c2)


def _nchw(
    space: str, slot: int, fm: FeatureMap, row_number: int, channels: int, rows: int
) -> Feature:
    """A box of a tensor in plain N C H W order that starts at row `row_number` of all its rows."""
    row = fm.width * fm.item
    size, strides = (channels, rows, fm.width), (fm.height * row, row, fm.item)
    return Feature(space, row_number * row, fm.dtype, *size, 1, *strides, slot=slot)


def transfer_of(box: Box, source: Feature, target: Feature) -> dict[str, Feature]:
    """The two sides of a copy of a box of whole maps."""
    item = dtypes.TABLE[target.dtype].numpy.itemsize
    more = BOX_AXES - len(box.sizes)
    channels, height, width = (*(1,) * more, *box.sizes)
    result = {}
    for name, f, offset, strides in (
        ("src", source, box.source, box.source_strides),
        ("dst", target, box.target, box.target_strides),
    ):
        plane, row, pixel = (n * item for n in (*(0,) * more, *strides))
        at = f.offset + offset * item
        sizes = channels, height, width
        result[name] = Feature(f.space, at, f.dtype, *sizes, 1, plane, row, pixel, slot=f.slot)
    return result


def broadcast(f: Feature, over: Feature) -> Feature:
    """An operand with one row or column, repeated over the size of another by strides of 0."""
    if f.height == 1 and over.height > 1:
        f.row, f.height = 0, over.height
    if f.width == 1 and over.width > 1:
        f.pixel, f.width = 0, over.width
    return f
