"""Commands of the DMA engine: boxes of channels x height x width between DDR and local memory."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio import dtypes
from intaglio.npu.chips.bm1684x.tiu import Fields
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.own.isa import Feature, Instruction

FORMAT = {1: 0, 2: 3, 4: 4}  # codes of i8, i16 and i32, by the bytes of an element
MAX_SIZE = 0xFFFF  # of an axis


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the memories of a program lie in DDR."""

    chip: Variant
    weights: int
    internal: int
    inputs: list[int]
    outputs: list[int]

    def of(self, f: Feature) -> int:
        """The first byte of a box in DDR."""
        bases = {"weights": [self.weights], "internal": [self.internal]}
        bases |= {"input": self.inputs, "output": self.outputs}
        return bases[f.space][f.slot] + f.offset


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a transfer: its address, and strides of channel, row and column in bytes."""

    address: int
    strides: tuple[int, int, int]


def move(given: Instruction, addresses: Addresses) -> tuple[str, Fields]:
    """The command of a load, a store or a copy between lanes."""
    src, dst = given.fields["src"], given.fields["dst"]
    if src.space == "weights" and dst.space == "sram":
        return _constants(src, dst, addresses)
    item = dtypes.TABLE[dst.dtype].numpy.itemsize
    sizes = dst.channels, dst.height, dst.width
    sides = [_side(f, addresses) for f in (src, dst)]
    runs = all(s.strides[1] == dst.width * item and s.strides[2] == item for s in sides)
    if runs and dst.height * dst.width <= MAX_SIZE:
        sizes = dst.channels, 1, dst.height * dst.width
    return transfer(addresses.chip, sides[0], sides[1], sizes, item)


def _side(f: Feature, addresses: Addresses) -> Side:
    if f.space != "sram":
        return Side(addresses.of(f), (f.plane, f.row, f.pixel))
    chip, lanes = addresses.chip, addresses.chip.lanes
    address = chip.local + f.first * chip.lane_bytes + f.offset // lanes
    return Side(address, (f.plane // lanes, f.row // lanes, f.pixel // lanes))


def _constants(src: Feature, dst: Feature, addresses: Addresses) -> tuple[str, Fields]:
    """Load constants that are stored lane by lane."""
    chip = addresses.chip
    lane = dst.width * dst.pixel // chip.lanes
    rows = 1
    while lane // rows > MAX_SIZE or lane % rows:
        rows += 1
    wide = lane // rows
    return transfer(
        chip,
        Side(addresses.of(src), (lane, wide, 1)),
        Side(chip.local + dst.offset // chip.lanes, (lane, wide, 1)),
        (chip.lanes, rows, wide),
        1,
    )


def transfer(
    chip: Variant, src: Side, dst: Side, sizes: tuple[int, int, int], item: int
) -> tuple[str, Fields]:
    """A copy of a box; strides of the command are in elements."""
    fields = {
        "stride_enable": 1,
        "nchw_copy": 1,
        "cmd_special_function": 0,
        "src_data_format": FORMAT[item],
    }
    for name, side in (("src", src), ("dst", dst)):
        fields |= {f"{name}_{a}size": n for a, n in zip("nchw", (1, *sizes), strict=True)}
        strides = (0, *(s // item for s in side.strides))
        fields |= {f"{name}_{a}stride": n for a, n in zip("nchw", strides, strict=True)}
        fields[f"{name}_start_addr_l32"] = side.address & 0xFFFFFFFF
        fields[f"{name}_start_addr_h{chip.high_bits}"] = side.address >> 32
    return "DMA_tensor", fields
