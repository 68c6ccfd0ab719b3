"""Tasks of an RK3576's DPU alone; their numbers lie in memory (`settings_rk3576.stage`)."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.arithmetic import Pair
from intaglio.npu.chips.rockchip.dpu_tasks import BLOCKS, MapSize, Settings, before_end, both_halves
from intaglio.npu.chips.rockchip.geometry import (
    RK3576,
    SURFACE_PIXELS,
    Convolution,
    Rows,
    Table,
    round_up,
    surface_pixels,
)
from intaglio.npu.chips.rockchip.settings import END, IN_TURN, TABLE_SET
from intaglio.npu.chips.rockchip.settings_rk3576 import (
    ADDEND,
    ADDS,
    EW_BOUNDS,
    FACTOR,
    LOOKS_UP,
    MOST,
    MULTIPLIES,
    NOTHING,
    SCALED,
    SHIFT,
    bounds,
    dpu,
    reader,
    settings,
    stage,
)
from intaglio.npu.chips.rockchip.words import ENABLE

ADDS_ZERO, BYPASS = 0x100012, 0x53  # BS_CFG
PLAIN = {0x4038: BYPASS, 0x4044: 2, 0x4050: 0x20000}  # the first map is not multiplied
READS = 9  # FEATURE_MODE_CFG of the reader
REPEATS = 1 << 17  # the same: pixels are repeated
LOADS, LOOKS_UP_MAP = 0xFF0000, 0x10  # LUT_CFG of a task that loads; 0x40cc of one that looks up
BURST = 16  # pixels, of which repeated rows have a share each


def numbers(pair: Pair) -> bytes:
    """What the first stage of a sum or product reads from memory."""
    if pair.multiplies:
        return stage(-pair.a_zero, None, None)
    return stage(-pair.a_zero, pair.a_scale, pair.a_shift)


def pair(size: MapSize, made: Pair, one_pixel: bool) -> Settings:
    """The sum or product of two maps; `one_pixel`: the second one has one for all."""
    values = {0x4038: ADDS_ZERO, 0x407C: ADDS}
    second = made.second
    values[0x4084] = second.shift << 16 | second.scale
    if made.multiplies:
        values |= PLAIN | {0x4038: ADDS_ZERO, 0x407C: MULTIPLIES}
    if made.bounds.relu:
        values |= bounds(0, made.bounds.limit or MOST, EW_BOUNDS)
    values |= {0x4080: -second.zero & 0xFFFF, 0x40AC: made.zero}
    values |= {0x40B0: SCALED | made.scale, 0x40B4: made.shift}
    reads = {0x501C: ADDEND if made.multiplies else ADDEND | FACTOR | SHIFT}
    if one_pixel:
        reads |= {0x5034: 0x44, 0x5040: 1}
    else:
        reads |= {0x5034: 0x40000044, 0x5040: size.pixels, 0x506C: _skipped(size)}
    return _task(size, values, reads)


def copy(size: MapSize) -> Settings:
    """A map as it is, at another address."""
    return _task(size, PLAIN, {0x5034: 1})


def look_up(size: MapSize, table: Table) -> Settings:
    """Bytes through the table that is loaded."""
    return _task(size, PLAIN | {0x407C: LOOKS_UP, 0x40CC: LOOKS_UP_MAP}, {0x5034: 1}, table)


def load_table(table: Table, _: object = None) -> list[Settings]:
    """Both halves of the table, in one task; the map that it copies is one of its own."""
    whole = _task(MapSize(RK3576.atom, 1, 1, RK3576), PLAIN | {0x401C: 1}, {0x5034: 1})
    whole = [(block, r, LOADS if r == 0x4108 else v) for block, r, v in whole]
    return [before_end(whole, both_halves(table))]


def repeat(size: MapSize, factor: tuple[int, int]) -> Settings:
    """One block of channels, with every pixel written `factor` times down and across."""
    down, across = factor
    wide = size.width * across
    notch = (down - 1) * wide
    values = PLAIN | {0x401C: wide, 0x4020: wide - 1, 0x4028: notch << 16 | notch}
    values[0x402C] = size.atom - 1
    values[0x4030] = (size.atom - 1) << 16 | (BURST // down - 1) << 8
    values |= {0x4034: (size.height - 1) << 16 | wide - 1}
    values[0x4050] = 0x20000 | (down - 1) * 0x111
    values[0x40B8] = round_up(notch, SURFACE_PIXELS)
    window = (down - 1) << 9 | (across - 1) << 6 | (down - 1) << 3 | across - 1
    reads = {0x5014: size.atom // 4 - 1, 0x5034: 1, 0x5044: REPEATS | READS}
    reads |= {0x5048: 1 << 12 | window}
    return _task(MapSize(size.atom, size.height, size.width, RK3576), values, reads)


def clear() -> Settings:
    """The convolution of a pixel of zeros that stands twice around tasks that repeat pixels."""
    conv = Convolution(16, 1, 1, 16, (1, 1), zero_in=0, blocks=True, design=RK3576)
    given = {0x1038: 0xC0000007, 0x4038: 0x20040, 0x4044: 0, 0x4050: 0x80021011, 0x40B0: 0x4000}
    given |= {0x40B4: 14, 0x40B8: 1, 0x5014: 0, 0x501C: 0x14}
    made = settings(conv, Rows(0, 1, 0, 1, 0), RK3576.least_banks, False)
    return [(block, r, given.get(r, v)) for block, r, v in made]


def _skipped(size: MapSize) -> int:
    return surface_pixels(size.height, size.width) - size.height * size.width


def _task(
    size: MapSize, values: dict[int, int], reads: dict[int, int], table: Table | None = None
) -> Settings:
    turns = TABLE_SET if table else IN_TURN
    skipped = _skipped(size)
    given = {
        0x400C: 5,
        0x401C: size.pixels,
        0x4020: size.width - 1,
        0x4024: size.height - 1,
        0x402C: size.channels - 1,
        0x4030: (size.channels - 1) << 16 | (BURST - 1) << 8,
        0x4034: (size.height - 1) << 16 | size.width - 1,
        0x407C: NOTHING,
        0x40B0: SCALED | 1,
        0x40B8: skipped,
        0x40C0: 0x4440000,
    }
    source = {
        0x500C: size.width - 1,
        0x5010: size.height - 1,
        0x5014: size.channels - 1,
        0x5044: READS,
        0x504C: skipped,
    }
    return [
        ("DPU", 0x4004, turns),
        ("DPU_RDMA", 0x5004, turns),
        *dpu(given | values, table),
        *reader(source | reads),
        *END,
        ("ENABLE", ENABLE, BLOCKS),
    ]
