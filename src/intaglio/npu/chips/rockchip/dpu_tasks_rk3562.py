"""Tasks of an RK3562's DPU alone."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.arithmetic import Pair
from intaglio.npu.chips.rockchip.dpu_tasks import BLOCKS, MapSize, Settings, before_end, both_halves
from intaglio.npu.chips.rockchip.geometry import RK3562, Table, round_up, surface_pixels
from intaglio.npu.chips.rockchip.settings import END, IN_TURN, LUT_CFG, TABLE_SET, table_registers
from intaglio.npu.chips.rockchip.settings_rk3562 import (
    ADDS,
    LOOKS_UP,
    MULTIPLIES,
    TABLES,
    TAIL,
    dpu,
    reader,
)
from intaglio.npu.chips.rockchip.settings_rk3576 import EW_BOUNDS, MOST, SCALED, bounds
from intaglio.npu.chips.rockchip.words import ENABLE

ADDS_ZERO, BYPASS = 0x100012, 0x53  # BS_CFG
PLAIN = {0x4038: BYPASS, 0x4050: 2}  # the first map is not multiplied
READS, REPEATS = 0x7809, 1 << 17  # FEATURE_MODE_CFG of the reader


def pair(size: MapSize, made: Pair, one_pixel: bool) -> Settings:
    """The sum or product of two maps; `one_pixel`: the second one has one for all."""
    second = made.second
    values = {0x4038: ADDS_ZERO | made.a_shift << 8, 0x407C: ADDS, 0x4044: made.a_scale << 16}
    values |= {0x4054: made.a_shift << 16}
    if made.multiplies:
        values = {0x4038: ADDS_ZERO, 0x4050: 2, 0x407C: MULTIPLIES}
    if made.bounds.relu:
        values |= bounds(0, made.bounds.limit or MOST, EW_BOUNDS)
    values |= {0x4040: -made.a_zero, 0x4080: -second.zero & 0xFFFF, 0x40AC: made.zero}
    values |= {0x4084: second.shift << 16 | second.scale}
    values |= {0x40B0: SCALED | made.scale, 0x40B4: made.shift}
    if one_pixel:
        reads = {0x5034: 4, 0x5040: 1}
    else:
        reads = {0x5034: 0x40000004, 0x5040: size.pixels, 0x506C: _skipped(size)}
    return _task(size, values, reads)


def copy(size: MapSize) -> Settings:
    """A map as it is, at another address."""
    return _task(size, PLAIN, {})


def look_up(size: MapSize, table: Table) -> Settings:
    """Bytes through the table that is loaded."""
    return _task(size, PLAIN | {0x407C: LOOKS_UP, 0x40CC: 0x10}, {}, table)


def load_table(table: Table, _: object = None) -> list[Settings]:
    """Both halves of the table, in one task; the map that it copies is one of its own."""
    whole = copy(MapSize(RK3562.atom, 1, 1, RK3562))
    whole = [(block, r, 1 if r == LUT_CFG else v) for block, r, v in whole]
    return [before_end(whole, both_halves(table))]


def repeat(size: MapSize, factor: tuple[int, int]) -> Settings:
    """One block of channels, with every pixel written `factor` times down and across."""
    down, across = factor
    wide, high = size.width * across, size.height * down
    values = PLAIN | {0x401C: wide, 0x4020: wide - 1, 0x4028: (down - 1) * wide}
    values |= {0x4030: (size.atom - 1) << 16, 0x4034: (size.height - 1) << 16 | wide - 1}
    values |= {0x4050: (down - 1) * 0x24 | 2, 0x40B8: surface_pixels(high, wide)}
    window = (down - 1) << 9 | (across - 1) << 6 | (down - 1) << 3 | across - 1
    reads = {0x5014: size.atom // 4 - 1, 0x5044: REPEATS | READS, 0x5048: 1 << 12 | window}
    return _task(MapSize(size.atom, size.height, size.width, RK3562), values, reads)


def _skipped(size: MapSize) -> int:
    return size.pixels - size.height * size.width


def _task(
    size: MapSize, values: dict[int, int], reads: dict[int, int], table: Table | None = None
) -> Settings:
    turns = TABLE_SET if table else IN_TURN
    given = {
        0x400C: 0x1E5,
        0x401C: size.pixels,
        0x4020: size.width - 1,
        0x4024: size.height - 1,
        0x402C: size.channels - 1,
        0x4030: (size.channels - 1) << 16 | 3,
        0x4034: (size.height - 1) << 16 | size.width - 1,
        0x40B0: SCALED | 1,
        0x40B8: size.pixels,
        0x40C0: 0x4440002,
    }
    source = {
        0x500C: size.width - 1,
        0x5010: size.height - 1,
        0x5014: round_up(size.channels, size.atom) - 1,
        0x5044: READS,
        0x504C: _skipped(size),
    }
    tables = [(b, r, TABLES if r == LUT_CFG and v else v) for b, r, v in table_registers(table)]
    return [
        ("DPU", 0x4004, turns),
        ("DPU_RDMA", 0x5004, turns),
        *dpu(given | values),
        *tables,
        *reader(source | reads),
        *TAIL,
        *END,
        ("ENABLE", ENABLE, BLOCKS),
    ]
