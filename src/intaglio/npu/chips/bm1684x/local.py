"""Tensors in the lanes' local memory: where their bytes lie, and whether commands take them so.

Channel c lies in lane c % lanes, in block c // lanes. Addresses and strides are bytes of one lane.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio import dtypes
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.own.isa import Feature


@dataclass(frozen=True, slots=True)
class Local:
    """A box of channels x height x width in local memory, from lane 0 on."""

    chip: Variant
    address: int
    dtype: str
    channels: int
    height: int
    width: int
    plane: int  # from one block of channels to the next
    row: int
    pixel: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def item(self) -> int:
        return dtypes.TABLE[self.dtype].numpy.itemsize

    @property
    def blocks(self) -> int:
        return self.chip.blocks(self.channels)

    @property
    def packed(self) -> bool:
        """Whether each plane is one run of bytes that starts at a whole vector."""
        item = self.item
        runs = self.pixel == item and (self.row == self.width * item or self.height == 1)
        return runs and self.address % self.chip.eu_bytes == 0

    @property
    def regular(self) -> bool:
        """Whether commands without strides take it: packed, and planes follow each other."""
        plane = self.chip.aligned(self.height * self.width * self.item)
        return self.packed and (self.blocks == 1 or self.plane == plane)

    def some_blocks(self, first: int, count: int) -> Local:
        """Blocks first .. first + count of the channels."""
        lanes = self.chip.lanes
        channels = min(count * lanes, self.channels - first * lanes)
        return replace(self, address=self.address + first * self.plane, channels=channels)

    def strides(self) -> dict[str, int]:
        """Strides in elements, by the letter of their axis; of one block, none for channels."""
        item = self.item
        c = self.plane // item if self.blocks > 1 else 0
        return {"n": 0, "c": c, "h": self.row // item, "w": self.pixel // item}


def packed(
    chip: Variant, address: int, dtype: str, channels: int, height: int, width: int
) -> Local:
    """A tensor without gaps but those of the alignment."""
    item = dtypes.TABLE[dtype].numpy.itemsize
    plane = chip.aligned(height * width * item)
    return Local(chip, address, dtype, channels, height, width, plane, width * item, item)


def local(f: Feature, chip: Variant) -> Local:
    """The place of a box of the schedule's memory, which interleaves the lanes' bytes."""
    assert f.space == "sram"
    assert f.first == 0
    sizes = f.channels, f.height, f.width
    strides = [n // chip.lanes for n in (f.plane, f.row, f.pixel)]
    return Local(chip, f.offset // chip.lanes, f.dtype, *sizes, *strides)


def per_channel(chip: Variant, address: int, dtype: str, channels: int, plane: int) -> Local:
    """One number per channel, `plane` bytes from block to block, repeated over the plane."""
    return Local(chip, address, dtype, channels, 1, 1, plane, 0, 0)
