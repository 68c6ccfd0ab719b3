"""Commands of the DMA engine: boxes of channels x height x width between DDR and local memory."""

from __future__ import annotations

from intaglio.npu.chips.bm1684.tiu import Made
from intaglio.npu.chips.bm1684.variant import BM1684, TABLE, TABLE_ENTRIES, WORD
from intaglio.npu.chips.bm1684x.transfers import MAX_SIZE, Addresses, Side
from intaglio.npu.own.isa import Feature, Instruction

WORDS, BYTES = 0, 3  # codes of the elements that are moved
DIRECTIONS = {  # by whether source and destination lie in local memory
    (False, True): 0,
    (True, False): 1,
    (False, False): 2,
    (True, True): 3,
}


def move(given: Instruction, addresses: Addresses) -> Made:
    """The command of a load, a store or a copy between lanes."""
    src, dst = given.fields["src"], given.fields["dst"]
    local = src.space == "sram", dst.space == "sram"
    if src.space == "weights" and local[1]:
        return _constants(src, dst, addresses)
    sizes = dst.channels, dst.height, dst.width
    sides = [_side(f, addresses) for f in (src, dst)]
    if all(s.strides[1] == dst.width * s.strides[2] for s in sides):
        pixels = dst.height * dst.width
        if pixels <= MAX_SIZE:
            sizes = dst.channels, 1, pixels
    return transfer(sides, sizes, 1, DIRECTIONS[local])


def _side(f: Feature, addresses: Addresses) -> Side:
    if f.space != "sram":
        return Side(addresses.of(f), (f.plane, f.row, f.pixel))
    lanes = BM1684.lanes
    address = BM1684.local + f.first * BM1684.lane_bytes + f.offset // lanes
    return Side(address, (f.plane // lanes, f.row // lanes, f.pixel // lanes))


def _constants(src: Feature, dst: Feature, addresses: Addresses) -> Made:
    """Load constants that are stored lane by lane, in whole vectors."""
    lane = dst.width * dst.pixel // BM1684.lanes
    rows = 1
    while lane // rows // WORD > MAX_SIZE or lane % (rows * WORD):
        rows += 1
    wide = lane // rows
    ends = addresses.of(src), BM1684.local + dst.offset // BM1684.lanes
    sides = [Side(at, (lane, wide, WORD)) for at in ends]
    return transfer(sides, (BM1684.lanes, rows, wide // WORD), WORD, 0)


def table_to_l2(address: int) -> Made:
    """Move a lookup table, of which each lane has a share, to L2 memory."""
    share = TABLE_ENTRIES * WORD // BM1684.lanes
    ends = BM1684.local + address, BM1684.l2 + TABLE
    sides = [Side(at, (share, share, WORD)) for at in ends]
    return transfer(sides, (BM1684.lanes, 1, share // WORD), WORD, DIRECTIONS[True, False])


def transfer(sides: list[Side], sizes: tuple[int, int, int], item: int, direction: int) -> Made:
    """A copy of a box; strides of the command are in elements."""
    code = {1: BYTES, WORD: WORDS}[item]
    fields = {"direction": direction, "src_data_format": code, "dst_data_format": code}
    for name, side in zip(("src", "dst"), sides, strict=True):
        fields |= {f"{name}_{a}size": n for a, n in zip("nchw", (1, *sizes), strict=True)}
        strides = (0, *(s // item for s in side.strides))
        fields |= {f"{name}_{a}stride": n for a, n in zip("nchw", strides, strict=True)}
        fields[f"{name}_start_addr_l32"] = side.address & 0xFFFFFFFF
        fields[f"{name}_start_addr_h8"] = side.address >> 32
    return "DMA_tensor", fields
