"""Tensors in local memory: channels over the lanes, a word for each pixel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.npu.chips.bm1684.variant import BM1684, WORD
from intaglio.npu.own.isa import Feature

SIGNED = ("i8", "i16")


@dataclass(frozen=True, slots=True)
class Local:
    """A box of channels x height x width, from lane 0 on. Strides are in bytes of a lane."""

    address: int
    dtype: str
    channels: int
    height: int
    width: int
    plane: int  # from one block of channels to the next
    row: int
    pixel: int = WORD

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def signed(self) -> int:
        return int(self.dtype in SIGNED)

    @property
    def blocks(self) -> int:
        return BM1684.blocks(self.channels)

    @property
    def aligned(self) -> bool:
        """Whether each plane starts at a whole vector, and its rows follow each other."""
        runs = self.row == self.width * self.pixel or self.height == 1
        planes = self.blocks == 1 or self.plane % BM1684.eu_bytes == 0
        return runs and planes and self.address % BM1684.eu_bytes == 0

    @property
    def regular(self) -> bool:
        """Whether commands without strides take it: planes follow each other."""
        plane = _plane(self.height * self.width, self.pixel)
        return self.aligned and (self.blocks == 1 or self.plane == plane)

    def some_blocks(self, first: int, count: int) -> Local:
        """Blocks first .. first + count of the channels."""
        lanes = BM1684.lanes
        channels = min(count * lanes, self.channels - first * lanes)
        return replace(self, address=self.address + first * self.plane, channels=channels)

    def strides(self, name: str) -> dict[str, int]:
        """The strides of an operand, in words."""
        steps = self.plane * self.blocks, self.plane, self.row, self.pixel
        return {f"{name}_{a}_str": n // WORD for a, n in zip("nchw", steps, strict=True)}


def _plane(pixels: int, pixel: int) -> int:
    """Bytes of a plane; one of two words for each pixel is as large as two planes of words."""
    return BM1684.aligned(pixels * WORD) * (pixel // WORD)


def packed(address: int, dtype: str, like: Local, pixel: int = WORD) -> Local:
    """A tensor of the same size without gaps but those of the alignment."""
    plane = _plane(like.height * like.width, pixel)
    sizes = like.channels, like.height, like.width
    return Local(address, dtype, *sizes, plane, like.width * pixel, pixel)


def local(f: Feature) -> Local:
    """The place of a box of the schedule's memory, which interleaves the lanes' bytes."""
    assert f.space == "sram"
    assert f.first == 0
    strides = [n // BM1684.lanes for n in (f.plane, f.row, f.pixel)]
    sizes = f.channels, f.height, f.width
    return Local(f.offset // BM1684.lanes, f.dtype, *sizes, *strides)
