"""The registers of one task on the RK3562: places of the RK3576, meanings of the RV1106."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import ATOM, Convolution, Rows, round_up, row_entries
from intaglio.npu.chips.rockchip.settings import (
    CONVOLUTION_BLOCKS,
    END,
    IN_TURN,
    LUT_CFG,
    TABLE_SET,
    apart_steps,
    feature_grains,
    kernel_count,
    table_registers,
)
from intaglio.npu.chips.rockchip.settings_rk3576 import (
    BN_BOUNDS,
    BS_BOUNDS,
    EW_BOUNDS,
    LEAST,
    MOST,
    SCALED,
    Settings,
    bounds,
)
from intaglio.npu.chips.rockchip.settings_rv110x import ADDS, LOOKS_UP, MULTIPLIES, NOTHING, TAIL
from intaglio.npu.chips.rockchip.words import ENABLE

__all__ = ["ADDS", "LOOKS_UP", "MULTIPLIES", "NOTHING", "TAIL", "dpu", "reader", "settings"]

ROWS_AHEAD = 1 << 28  # CONV_CON1: sums begin before all rows are there
GRAINS, ALL_ROWS = 0x180000, 0x3FF  # with it; without it
ENTRIES = 512  # of a bank
TABLES = 0x160  # LUT_CFG: one table behind the other
CHANNEL_BITS = 14
DPU = [*range(0x400C, 0x402D, 4), *range(0x4030, 0x40C1, 4), 0x40C8, 0x40CC]
RDMA = [*range(0x500C, 0x5021, 4), 0x5028, 0x502C, *range(0x5034, 0x503C, 4), 0x5040, 0x5044]
RDMA += [0x5048, 0x504C, 0x5064, 0x506C, 0x5078, 0x507C]


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> Settings:
    """Block, register and value."""
    weights = reuse << 13 | 8
    turns = TABLE_SET if conv.table else IN_TURN
    return [
        ("CNA", 0x1004, turns),
        ("CORE", 0x3004, turns),
        ("CNA", 0x1038, weights),
        ("DPU", 0x4004, turns),
        ("DPU_RDMA", 0x5004, turns),
        *_input(conv, rows, banks, weights),
        *_sums(conv, rows),
        *_bytes(conv, rows),
        *_reads(conv, rows),
        *TAIL,
        *END,
        ("ENABLE", ENABLE, CONVOLUTION_BLOCKS),
    ]


def _input(conv: Convolution, rows: Rows, banks: int, weights: int) -> Settings:
    (ky, kx), (sy, sx), (dy, dx) = conv.kernel, conv.steps, conv.dilations
    kernels, entries = kernel_count(conv), row_entries(conv)
    size = conv.width << 16 | rows.count
    high, wide = (
        (n - 1) * step + 1 for n, step in zip((rows.count, conv.width), conv.apart, strict=True)
    )
    below = (rows.out_count - 1) * sy + conv.reach[0] - rows.pad_top - high
    right = (conv.out_width - 1) * sx + conv.reach[1] - conv.pads[1] - wide
    edges = max(0, right) << 24 | max(0, below) << 16 | conv.pads[1] << 8 | rows.pad_top
    ahead = max(conv.apart) == 1
    read, most = rows.count - rows.held, banks * ENTRIES  # rows go around the buffer
    start, end = rows.first * entries % most, (rows.first + rows.held) * entries % most
    if not rows.held:
        start = end = 0
    surface = conv.in_surface or conv.height * conv.width
    return [
        ("CNA", 0x100C, (ROWS_AHEAD if ahead else 0) | (5 if conv.depthwise else 0)),
        ("CNA", 0x1010, feature_grains(conv, rows, banks) << 2 if ahead else ALL_ROWS),
        ("CNA", 0x1014, apart_steps(conv) | (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
        ("CNA", 0x1018, (rows.held > 0) << 31 | (GRAINS if ahead else 0) | banks << 8 | banks),
        ("CNA", 0x101C, kernels * conv.kernel_bytes),
        ("CNA", 0x1020, 1 << 29 | conv.kernel_bytes),
        ("CNA", 0x1024, kx << 24 | ky << 16 | kernels),
        ("CNA", 0x1028, conv.channels),
        ("CNA", 0x102C, size),
        ("CNA", 0x1030, conv.out_width),
        ("CNA", 0x1034, conv.out_width * rows.out_count),
        ("CNA", 0x1038, weights),
        ("CNA", 0x103C, entries << 16 | start),
        ("CNA", 0x1040, banks << 25 | end),
        ("CNA", 0x1044, conv.width << 16 | entries),
        ("CNA", 0x1048, 0xB),  # bytes are signed and not converted
        ("CNA", 0x104C, 0x10001),
        ("CNA", 0x1050, 0x10001),
        *(("CNA", r, 0x20 if r == 0x106C else 0) for r in range(0x1054, 0x1078, 4)),
        ("CNA", 0x1078, conv.width << 16 | read),
        ("CNA", 0x107C, conv.channels),
        ("CNA", 0x1080, edges),
        ("CNA", 0x1084, conv.zero_in & 0xFFFFFFFF),
        ("CNA", 0x1088, 0),
        ("CNA", 0x108C, 0xF400F),  # bursts
        ("CNA", 0x1090, 4 * conv.width),
        ("CNA", 0x1094, surface),
        ("CNA", 0x1098, surface),
        *(("CNA", register, 0) for register in (0x1100, 0x1104, 0x1110, 0x1140, 0x1144)),
        ("CNA", 0x118C, (conv.width - 1) * 0x10001),
    ]


def _sums(conv: Convolution, rows: Rows) -> Settings:
    return [
        ("CORE", 0x3018, 0xA if conv.depthwise else 1),
        ("CORE", 0x301C, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("CORE", 0x3020, round_up(conv.outputs, conv.out_block) - 1),
        ("CORE", 0x3024, 0),
    ]


def _bytes(conv: Convolution, rows: Rows) -> Settings:
    deep = conv.depthwise
    relu, most = conv.relu or conv.limit > 0 or conv.relu_after, conv.limit or MOST
    ends = EW_BOUNDS if conv.relu_after else BN_BOUNDS
    values = bounds(0, most, ends) if relu else {}
    before = relu and not conv.relu_after
    values |= {
        0x400C: 0x1EC if deep else 0x1E4,
        0x4010: conv.shift << 10 if conv.table else 0,
        0x401C: conv.out_surface,
        0x4020: conv.out_width - 1,
        0x4024: rows.out_count - 1,
        0x402C: conv.outputs - 1,
        0x4030: (conv.outputs - 1) << 16 | (7 if deep else 3),
        0x4034: (rows.out_count - 1) << 16 | conv.out_width - 1,
        0x4038: (0x100092 if deep else 0x120080) | CHANNEL_BITS << 8,  # bias from memory
        0x4044: 0 if deep else 1,
        0x4050: 0x125 if deep else 1,
        0x4054: (0 if deep else 1 << 31) | CHANNEL_BITS << 16,
        0x4060: 0x20000 if conv.table else 0x12 if before else 0x13,
        0x4068: conv.scale << 16 | conv.shift << 8 if conv.table else 0,
        0x407C: LOOKS_UP if conv.table else ADDS if conv.added else NOTHING,
        0x40AC: 0 if conv.table else conv.zero_out,
        0x40B0: 1 if conv.table else conv.scale | (SCALED if conv.added else 0),
        0x40B4: 0 if conv.table else conv.shift,
        0x40B8: conv.out_block // ATOM * conv.out_surface,
        0x40C0: 0x4440102,
    }
    if conv.added:
        values[0x4080] = -conv.added.zero & 0xFFFF
        values[0x4084] = conv.added.shift << 16 | conv.added.scale
    tables = [
        (b, r, TABLES if r == LUT_CFG and v else v) for b, r, v in table_registers(conv.table)
    ]
    return [*dpu(values), *tables]


def dpu(values: dict[int, int]) -> Settings:
    """The registers of the DPU in their order, but for those of tables."""
    usual = bounds(LEAST, MOST, BS_BOUNDS + BN_BOUNDS + EW_BOUNDS)
    given = usual | {0x4060: 0x13, 0x407C: NOTHING, 0x4084: 1} | values
    return [("DPU", place, given.get(place, 0) & 0xFFFFFFFF) for place in DPU]


def reader(values: dict[int, int]) -> Settings:
    """All registers of the DPU's reader in their order."""
    given = {0x5034: 1} | values
    return [("DPU_RDMA", place, given.get(place, 0)) for place in RDMA]


def _reads(conv: Convolution, rows: Rows) -> Settings:
    deep = conv.depthwise
    values = {
        0x500C: conv.out_width - 1,
        0x5010: rows.out_count - 1,
        0x5014: round_up(conv.outputs, conv.out_block) - 1,
        0x501C: 0xA if deep else 0xE,  # without zero points, or with
        0x5044: 0x7812 if deep else 0x7818 if conv.added else 0x7810,
    }
    if conv.added:
        skipped = conv.out_surface - conv.out_width * rows.out_count
        values |= {0x5034: 0x40000004, 0x5040: conv.out_surface}
        values |= {0x504C: skipped, 0x506C: skipped}
    return reader(values)
