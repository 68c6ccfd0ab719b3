"""The registers of one task on RV1103 and RV1106, in the vendor's order."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import Convolution, Rows, round_up, row_entries
from intaglio.npu.chips.rockchip.settings import (
    BYPASS,
    CONVOLUTION_BLOCKS,
    END,
    IN_TURN,
    TABLE_SET,
    Registers,
    apart_steps,
    feature_grains,
    kernel_count,
    table_registers,
)
from intaglio.npu.chips.rockchip.words import ENABLE

MOST, LEAST = 0x7FFFFFFF, 0x80000000  # bounds that no number reaches
DPU = [*range(0x400C, 0x408C, 4), *range(0x4090, 0x40A4, 4), 0x40C0, 0x40C4]
DPU += range(0x40D8, 0x40F0, 4)
BOUNDS = {0x404C: LEAST, 0x401C: MOST, 0x406C: LEAST, 0x4028: MOST, 0x407C: LEAST, 0x402C: MOST}
BOUNDS |= {0x40D8 + 4 * i: MOST if i % 2 else LEAST for i in range(6)}
TAIL = [("CSC", 0x8028, 0xC), ("CSC", 0x802C, 0xFFFFFFFF)]
NOTHING, LOOKS_UP, ADDS, MULTIPLIES = 0x10041C1, 0x1004140, 0x8002C0C0, 0x81004094  # EW_CFG
SCALED = 1 << 16  # OUT_CVT_SCALE, where a map is read
READ_MODE = 0x900008  # FEATURE_MODE_CFG of the reader of maps
ZERO, ENDS_AT_0, MOST_OF_BN, MOST_OF_EW = 0x4018, 0x407C, 0x4028, 0x402C


def of_maps(values: dict[int, int], reads: dict[int, int], atom: int) -> Registers:
    """Settings of a task of the DPU alone from those of an RK3588."""
    blocks = (values[0x4058] + 1) // atom - 1
    relu = values[0x4070] >> 30 == 2 and not values[0x4070] >> 9 & 1
    given = values | BOUNDS | {0x4010: 1 << 23, 0x4060: 0x13, 0x4058: blocks << 16 | 3}
    given[0x4084] |= SCALED
    if values[0x4050] == 2:
        given[0x4050] = 0x30000002
    if values[0x4010] >> 26:  # repeated pixels
        given |= {0x4010: 1 << 24, 0x4058: 0}
    if values[0x4040] != BYPASS:
        given |= {ZERO: values[0x4044], 0x4044: 0}
        shift = values[0x4048] >> 8 & 63
        given |= {0x4040: 0x100012 | shift << 9, 0x4048: values[0x4048] & ~0xFFFF}
        if not values[0x4040] >> 4 & 1:  # a sum: the first map is multiplied
            given |= {0x4050: 0x30000000, 0x4054: shift << 24}
    given[0x4070] = operand(values[0x4070])
    if relu:
        limit = values[0x407C] or MOST
        given |= {ENDS_AT_0: 0, MOST_OF_EW: limit, 0x40E8: 0, 0x40EC: limit}
    reads = reads | {0x5044: reads[0x5044] & ~0x8000 | READ_MODE | (reads[0x5044] & 0x8000) << 2}
    if values[0x4010] >> 26:
        reads[0x5014] = atom // 4 - 1
    return given, reads


def operand(mode: int) -> int:
    """EW_CFG from that of an RK3588: nothing, a table, a product or a sum."""
    if mode & 1:
        return NOTHING
    if not mode >> 7 & 1 and not mode >> 31:
        return LOOKS_UP
    return MULTIPLIES if mode >> 2 & 1 else ADDS


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> list[tuple[str, int, int]]:
    """Block, register and value."""
    buffer = reuse << 13 | 8
    turns = TABLE_SET if conv.table else IN_TURN
    return [
        ("CNA", 0x1004, turns),
        ("CORE", 0x3004, turns),
        ("CNA", 0x1040, buffer),
        ("DPU", 0x4004, turns),
        ("DPU_RDMA", 0x5004, turns),
        *_input(conv, rows, banks, buffer),
        *_sums(conv, rows),
        *_bytes(conv, rows),
        *_reads(conv, rows),
        *TAIL,
        *END,
        ("ENABLE", ENABLE, CONVOLUTION_BLOCKS),
    ]


def _input(conv: Convolution, rows: Rows, banks: int, buffer: int) -> list[tuple[str, int, int]]:
    (ky, kx), (sy, sx), (dy, dx) = conv.kernel, conv.steps, conv.dilations
    size, entries = conv.width << 16 | rows.count, row_entries(conv)
    kernels = kernel_count(conv)
    return [
        ("CNA", 0x100C, 7 if conv.depthwise else 0),
        ("CNA", 0x1010, feature_grains(conv, rows, banks) << 1),
        ("CNA", 0x1014, apart_steps(conv) | (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
        ("CNA", 0x101C, 0),
        ("CNA", 0x1020, size),
        ("CNA", 0x1024, (conv.channels - 1) << 16 | conv.stored_channels),
        ("CNA", 0x1028, conv.out_width),
        ("CNA", 0x102C, conv.out_width * rows.out_count),
        ("CNA", 0x1030, kernels * conv.kernel_bytes),
        ("CNA", 0x1034, conv.kernel_bytes),
        ("CNA", 0x1038, kx << 24 | ky << 16 | kernels),
        ("CNA", 0x103C, entries << 16),
        ("CNA", 0x1040, buffer),
        ("CNA", 0x1044, conv.width << 16 | entries),
        ("CNA", 0x1048, banks << 26),
        ("CNA", 0x104C, 9),  # bytes are signed
        ("CNA", 0x1050, 0x10001),
        ("CNA", 0x1054, 0x10001),
        *(("CNA", register, 0) for register in (0x1058, 0x105C, 0x1060, 0x1064)),
        ("CNA", 0x1068, conv.pads[1] << 8 | rows.pad_top),
        ("CNA", 0x106C, 0),
        ("CNA", 0x1070, 0),
        ("CNA", 0x1074, 0),
        ("CNA", 0x1078, 0x400F400F),  # bursts
        ("CNA", 0x107C, 4 * conv.width),
        ("CNA", 0x1080, conv.in_surface or conv.height * conv.width),
        ("CNA", 0x1084, size),
        ("CNA", 0x1088, conv.stored_channels),
        *(("CNA", register, 0) for register in (0x108C, 0x1094, 0x1100, 0x1104)),
        *(("CNA", register, 0) for register in (0x1110, 0x1140, 0x1144)),
        ("CNA", 0x1184, conv.zero_in & 0xFFFF),
        ("CNA", 0x1188, conv.kernel_bytes // 2),
        ("CNA", 0x118C, (conv.width - 1) * 0x10001),
    ]


def _sums(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    return [
        ("CORE", 0x3010, 0xA if conv.depthwise else 1),
        ("CORE", 0x3014, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("CORE", 0x3018, round_up(conv.outputs, conv.out_block) - 1),
        ("CORE", 0x301C, 0),
    ]


def _bytes(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    channels = round_up(conv.outputs, conv.out_block)
    surface = conv.out_surface * conv.design.atom
    deep = conv.depthwise
    blocks = 0 if max(conv.apart) > 1 else channels // conv.design.atom - 1
    bounds = dict(BOUNDS)
    if conv.relu_after:
        bounds |= {ENDS_AT_0: 0, 0x40E8: 0, MOST_OF_EW: conv.limit or MOST}
        bounds[0x40EC] = conv.limit or MOST
    elif conv.relu or conv.limit:
        bounds |= {0x406C: 0, 0x40E0: 0, MOST_OF_BN: conv.limit or MOST}
        bounds[0x40E4] = conv.limit or MOST
    return [
        ("DPU", 0x400C, 0x1FC if deep else 0x1E4),
        ("DPU", 0x4010, 0x800000 | (conv.shift << 10 if conv.table else 0)),
        ("DPU", 0x4014, 0),
        ("DPU", 0x4018, 0),
        ("DPU", 0x401C, bounds[0x401C]),
        ("DPU", 0x4020, 0),
        ("DPU", 0x4024, surface),
        ("DPU", 0x4028, bounds[0x4028]),
        ("DPU", 0x402C, bounds[0x402C]),
        ("DPU", 0x4030, conv.out_width - 1),
        ("DPU", 0x4034, rows.out_count - 1),
        ("DPU", 0x4038, 0),
        ("DPU", 0x403C, (conv.outputs - 1) << 16 | channels - 1),
        ("DPU", 0x4040, 0x101C92 if deep else 0x121D80),  # bias and multiplier from memory
        ("DPU", 0x4044, 0),
        ("DPU", 0x4048, 0 if deep else 1),
        ("DPU", 0x404C, bounds[0x404C]),
        ("DPU", 0x4050, 0x70000125 if deep else 0x30000001),
        ("DPU", 0x4054, 0xE000000 if deep else 0x8E000000),
        ("DPU", 0x4058, blocks << 16 | (7 if deep else 3)),
        ("DPU", 0x405C, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("DPU", 0x4060, 0x20000 if conv.table else 0x13 - (0 if bounds[0x406C] else 1)),
        ("DPU", 0x4064, 0),
        ("DPU", 0x4068, conv.scale << 16 | conv.shift << 8 if conv.table else 0),
        ("DPU", 0x406C, bounds[0x406C]),
        *_operand(conv),
        ("DPU", 0x407C, bounds[0x407C]),
        ("DPU", 0x4080, 0 if conv.table else conv.zero_out & 0xFFFFFFFF),
        ("DPU", 0x4084, 1 if conv.table else conv.scale | (SCALED if conv.added else 0)),
        ("DPU", 0x4088, 0 if conv.table else conv.shift),
        *(("DPU", 0x4090 + 4 * i, 0) for i in range(5)),
        ("DPU", 0x40C0, surface * (conv.out_block // conv.design.atom)),
        ("DPU", 0x40C4, 0),
        *(("DPU", place, bounds[place]) for place in range(0x40D8, 0x40F0, 4)),
        *table_registers(conv.table),
    ]


def _operand(conv: Convolution) -> list[tuple[str, int, int]]:
    mode, zero, scale = LOOKS_UP if conv.table else NOTHING, 0, 1
    if conv.added:
        mode, zero = ADDS, -conv.added.zero & 0xFFFFFFFF
        scale = conv.added.shift << 16 | conv.added.scale
    return [("DPU", 0x4070, mode), ("DPU", 0x4074, zero), ("DPU", 0x4078, scale)]


def _reads(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    atom = conv.design.atom
    surface = conv.out_surface * atom if conv.added else 0
    skipped = surface - rows.out_count * conv.out_width * atom if conv.added else 0
    mode = 0x7816 if conv.depthwise else 0x7810
    return [
        ("DPU_RDMA", 0x500C, conv.out_width - 1),
        ("DPU_RDMA", 0x5010, rows.out_count - 1),
        ("DPU_RDMA", 0x5014, round_up(conv.outputs, conv.out_block) - 1),
        ("DPU_RDMA", 0x5018, 0),
        ("DPU_RDMA", 0x501C, 0xA if conv.depthwise else 0xE),  # without zero points, or with
        *(("DPU_RDMA", register, 0) for register in (0x5020, 0x5028, 0x502C)),
        ("DPU_RDMA", 0x5034, 0x40000004 if conv.added else 1),
        ("DPU_RDMA", 0x5038, 0),
        ("DPU_RDMA", 0x5040, surface),
        ("DPU_RDMA", 0x5044, mode | (READ_MODE if conv.added else 0)),
        ("DPU_RDMA", 0x5048, 0),
        ("DPU_RDMA", 0x504C, skipped),
        ("DPU_RDMA", 0x5064, 0),
        ("DPU_RDMA", 0x5068, 0x1010101),
        ("DPU_RDMA", 0x506C, skipped),
    ]
