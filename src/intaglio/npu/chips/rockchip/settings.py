"""The registers of one task of a convolution, in the order of the vendor's compiler."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import (
    Convolution,
    Rows,
    Table,
    round_up,
    row_entries,
    rows_that_fit,
)
from intaglio.npu.chips.rockchip.words import ENABLE

ALONE, ADDS = 0x383, 0x904202C0  # EW_CFG: no second map, or a map of bytes that is added
RELU_AFTER = 1 << 9  # EW_CFG without this bit: a relu behind the addition
LOOKS_UP = 0x302  # EW_CFG: the tables
CONVOLUTION_BLOCKS = 0x1D  # CNA, CORE, DPU and DPU_RDMA
IN_TURN = 0xE  # S_POINTER: registers of two tasks in turn
TABLE_SET = 0x30  # S_POINTER: the first set alone, for a task that looks up
LUT_CFG = 0x4108
TABLE_CFG, TABLE_STEPS = 0x68, 512  # LUT_CFG: one table behind the other
Registers = tuple[dict[int, int], dict[int, int]]  # of the DPU and of its reader
BYPASS = 0x53  # BS_CFG and BN_CFG: the stage does nothing
END = (("PC", 0x0010, 0), ("PC", 0x0014, 0), ("SYNC", 0x0000, 0))


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> list[tuple[str, int, int]]:
    """Block, register and value, in the order of the vendor's compiler."""
    buffer = reuse << 13 | (conv.design.banks - banks) << 4 | banks
    mode = transposed(conv) | (3 if conv.depthwise else 0)
    if conv.picture:  # non-aligned reads, rows without groups, and the format of a pixel
        mode = 3 << 29 | (7 + conv.channels) << 12
    return [
        ("CNA", 0x1040, buffer),
        ("CNA", 0x1104, 0),
        ("CNA", 0x1100, 0),
        ("CNA", 0x100C, mode),
        ("DPU", 0x4004, TABLE_SET if conv.table else IN_TURN),
        ("DPU_RDMA", 0x5004, TABLE_SET if conv.table else IN_TURN),
        *_input(conv, rows, banks, buffer, mode),
        *_sums(conv, rows),
        *_bytes(conv, rows),
        *_reads(conv, rows),
        *END,
        ("ENABLE", ENABLE, CONVOLUTION_BLOCKS),
    ]


def transposed(conv: Convolution) -> int:
    """The bit of CONV_CON1 that sets pixels apart."""
    return 1 << 16 if max(conv.apart) > 1 else 0


def apart_steps(conv: Convolution) -> int:
    """The steps between these pixels in CONV_CON3."""
    return (conv.apart[0] - 1) << 11 | (conv.apart[1] - 1) << 8


def kernel_count(conv: Convolution) -> int:
    """Kernels in memory; a depthwise convolution has one, or two with the zero points."""
    if conv.depthwise:
        return 2 if conv.design.pairs else 1
    return round_up(conv.outputs, 2) if conv.design.even else conv.outputs


def feature_grains(conv: Convolution, rows: Rows, banks: int) -> int:
    """Rows that are read before the first sum: what kernel and buffer ask for."""
    return min(rows.count + conv.kernel[0] + conv.pads[0], rows_that_fit(conv, banks))


def _input(
    conv: Convolution, rows: Rows, banks: int, buffer: int, mode: int
) -> list[tuple[str, int, int]]:
    (ky, kx), (sy, sx), (dy, dx) = conv.kernel, conv.steps, conv.dilations
    size = conv.width << 16 | rows.count
    plain = conv.picture or transposed(conv)
    real = conv.channels - 1 if plain else (conv.channels - 1) % 64
    kernels = kernel_count(conv)
    grains = feature_grains(conv, rows, banks)
    if conv.picture:
        entries, line = rows.count * conv.width, conv.width
    else:
        entries, line = row_entries(conv), 4 * conv.width
    surface = (conv.in_surface or conv.height * conv.width) - line
    zero = conv.zero_in & 0xFFFFFFFF
    if conv.depthwise:  # in both bytes of 16 bits
        zero = (conv.zero_in & 0xFF) * 0x101 | (0xFFFF0000 if conv.zero_in < 0 else 0)
    return [
        ("CNA", 0x100C, mode),
        ("CNA", 0x1010, grains << 4),
        ("CNA", 0x1014, apart_steps(conv) | (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
        ("CNA", 0x1020, size),
        ("CNA", 0x1024, real << 16 | conv.stored_channels),
        ("CNA", 0x1028, conv.out_width),
        ("CNA", 0x102C, conv.out_width * rows.out_count),
        ("CNA", 0x1030, kernels * conv.kernel_bytes),
        ("CNA", 0x1034, conv.kernel_bytes),
        ("CNA", 0x1038, kx << 24 | ky << 16 | kernels),
        ("CNA", 0x1040, buffer),
        ("CNA", 0x1044, entries),
        ("CNA", 0x104C, 0xB),  # bytes are signed and not converted
        *(("CNA", 0x1050 + 4 * i, 1 << 16) for i in range(4)),
        ("CNA", 0x1060, 0),
        ("CNA", 0x1064, 0),
        ("CNA", 0x1068, conv.pads[1] << 4 | rows.pad_top),
        ("CNA", 0x1070, 0),
        ("CNA", 0x1074, 0),
        ("CNA", 0x1078, 0xF000F),  # longest bursts
        ("CNA", 0x107C, line),
        ("CNA", 0x1080, surface & 0xFFFFFFF),
        ("CNA", 0x1084, size),
        ("CNA", 0x1088, conv.stored_channels),
        ("CNA", 0x1100, 0),
        ("CNA", 0x1104, 0),
        ("CNA", 0x1110, 0),
        *(("CNA", 0x1140 + 4 * i, 0) for i in range(16)),
        ("CNA", 0x1180, 0),
        ("CNA", 0x1184, zero),
    ]


def _sums(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    return [
        ("CORE", 0x3010, 3 if conv.depthwise else 1),
        ("CORE", 0x3014, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("CORE", 0x3018, round_up(conv.outputs, conv.out_block) - 1),
        ("CORE", 0x301C, 0),
        ("CORE", 0x3030, 0),
    ]


def _bytes(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    """The DPU: bias, zero point and multiplier per channel, relu, scale, and the output."""
    channels = round_up(conv.outputs, conv.out_block) - 1
    surface = conv.out_surface * conv.design.atom
    return [
        ("DPU", 0x400C, 0x1FC if conv.depthwise else 0x1E4),
        ("DPU", 0x4010, 0xE0 | (conv.shift << 10 if conv.table else 0)),
        ("DPU", 0x4014, 0),
        ("DPU", 0x4020, 0),
        ("DPU", 0x4024, surface),
        ("DPU", 0x4030, conv.out_width - 1),
        ("DPU", 0x4034, rows.out_count - 1),
        ("DPU", 0x4038, 0),
        ("DPU", 0x403C, (conv.outputs - 1) << 16 | channels),
        ("DPU", 0x4040, 0x20140),  # bias and multiplier from memory
        ("DPU", 0x4044, 0),
        ("DPU", 0x4048, 0xE01),  # multipliers have 14 bits behind the point
        ("DPU", 0x404C, 0),
        ("DPU", 0x4050, 0x36D if conv.depthwise else 0x125),
        ("DPU", 0x4054, 0),
        ("DPU", 0x4058, channels),
        ("DPU", 0x405C, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("DPU", 0x4060, scaled_mode(conv)),
        ("DPU", 0x4064, 0),
        ("DPU", 0x4068, conv.scale << 16 | conv.shift << 8 if conv.table else 0),
        ("DPU", 0x406C, 0 if conv.relu_after else conv.limit),
        *_operand(conv),
        ("DPU", 0x407C, conv.limit if conv.relu_after else 0),
        ("DPU", 0x4080, 0 if conv.table else conv.zero_out & 0xFFFFFFFF),
        ("DPU", 0x4084, 1 if conv.table else conv.scale),
        ("DPU", 0x4088, 0 if conv.table else conv.shift),
        *(("DPU", 0x4090 + 4 * i, 0) for i in range(8)),
        ("DPU", 0x40C0, surface * (4 if conv.depthwise else 2)),
        ("DPU", 0x40C4, 0),
        *table_registers(conv.table),
    ]


def scaled_mode(conv: Convolution) -> int:
    """BN_CFG: a multiplication before a table, a relu with or without an upper end, or nothing."""
    if conv.table:
        return 0x20040
    if conv.relu_after:
        return 0x53
    return 0x92 if conv.limit else 0x12 if conv.relu else 0x53


def table_registers(table: Table | None) -> list[tuple[str, int, int]]:
    """Where the tables begin and end, and which bits of an integer lie between two entries."""
    values = {}
    if table is not None:
        half = TABLE_STEPS << table.bits
        middle = table.first + half
        values = {0x4108: TABLE_CFG, 0x410C: table.bits << 16 | table.bits << 8}
        values |= {0x4110: table.first, 0x4114: middle, 0x4118: middle, 0x411C: middle + half}
    places = range(0x4100, 0x4130, 4)
    return [("DPU", place, values.get(place, 0) & 0xFFFFFFFF) for place in places]


def _operand(conv: Convolution) -> list[tuple[str, int, int]]:
    added = conv.added
    if conv.table:
        return [("DPU", 0x4070, LOOKS_UP), ("DPU", 0x4074, 0), ("DPU", 0x4078, 1)]
    if added is None:
        return [("DPU", 0x4070, ALONE), ("DPU", 0x4074, 0), ("DPU", 0x4078, 1)]
    return [
        ("DPU", 0x4070, adding(conv.relu_after, conv.limit)),
        ("DPU", 0x4074, -added.zero & 0xFFFFFFFF),
        ("DPU", 0x4078, added.shift << 16 | added.scale),
    ]


def adding(relu: bool, limit: int) -> int:
    """EW_CFG of an addition, with a relu behind it that may have an upper end."""
    return ADDS & ~RELU_AFTER | (1 << 10 if limit else 0) if relu else ADDS


def _reads(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    """What the DPU reads: bias, zero point and multiplier of each channel, and a second map.

    Two readers take turns at the blocks of channels of that map: each skips the other's block.
    """
    surface = conv.out_surface * conv.design.atom
    skipped = 2 * surface - rows.out_count * conv.out_width * conv.design.atom if conv.added else 0
    mode = 0x7D00 if conv.added else 0x7816 if conv.depthwise else 0x7810
    return [
        ("DPU_RDMA", 0x500C, conv.out_width - 1),
        ("DPU_RDMA", 0x5010, rows.out_count - 1),
        ("DPU_RDMA", 0x5014, round_up(conv.outputs, conv.out_block) - 1),
        ("DPU_RDMA", 0x5018, 0),
        ("DPU_RDMA", 0x501C, 0xE),
        *(("DPU_RDMA", register, 0) for register in (0x5020, 0x5028, 0x502C)),
        ("DPU_RDMA", 0x5034, 0x40000004 if conv.added else 1),
        ("DPU_RDMA", 0x5038, 0),
        ("DPU_RDMA", 0x5040, surface if conv.added else 0),
        ("DPU_RDMA", 0x5044, mode),
        ("DPU_RDMA", 0x5048, 0),
        ("DPU_RDMA", 0x504C, skipped),
        ("DPU_RDMA", 0x5064, 0),
        ("DPU_RDMA", 0x5068, 0x1010101),
        ("DPU_RDMA", 0x506C, skipped),
    ]
