"""The registers of one task on RK3566 and RK3568, in the vendor's order."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import Convolution, Rows, round_up, row_entries
from intaglio.npu.chips.rockchip.settings import (
    ALONE,
    END,
    IN_TURN,
    LOOKS_UP,
    TABLE_SET,
    Registers,
    adding,
    apart_steps,
    feature_grains,
    kernel_count,
    scaled_mode,
    table_registers,
    transposed,
)
from intaglio.npu.chips.rockchip.words import ENABLE

BLOCKS = 0x1F  # CNA, CSC, CORE, DPU and DPU_RDMA
DPU = [0x400C, 0x4010, 0x4014, 0x4020, 0x4024, *range(0x4030, 0x4058, 4)]
DPU += [*range(0x4060, 0x408C, 4), *range(0x4090, 0x40B0, 4), 0x40C0, 0x40C4]
RDMA = [*range(0x500C, 0x504D, 4), 0x5064, 0x5068]
BURSTS, BURST = 0xF << 11, 8 << 11  # of the DPU's reader
SIZE = 3 << 2  # ERDMA_CFG of an RK3588: of a number of the second map
PRODUCT = 1 << 2  # EW_CFG
STAGES = (0x4040, 0x4060)  # BS_CFG and BN_CFG


def of_maps(values: dict[int, int], reads: dict[int, int], atom: int) -> Registers:
    """Settings of a task of the DPU alone from those of an RK3588."""
    values = values | {r: stage(values[r]) for r in STAGES}
    values |= {0x400C: 0x109, 0x4070: operand(values[0x4070])}
    second = reads[0x5034] >> 30 == 1
    reads = reads | {0x501C: 1, 0x5028: 1, 0x5034: reads[0x5034] & ~SIZE}
    reads |= {0x5044: reads[0x5044] & ~BURSTS | BURST}
    if second:  # to the last pixel of a block; of a sum, with those that fill it up
        last = reads[0x504C] if values[0x4070] & PRODUCT else 0
        reads[0x503C] = reads[0x5040] - last - atom
    return values, reads


def stage(mode: int) -> int:
    """BS_CFG and BN_CFG: what is done to the second number stands in bits 2 and 3."""
    return mode & ~(3 << 16) | (mode >> 16 & 3) << 2


def operand(mode: int) -> int:
    """EW_CFG: the same stands in bits 3 and 4; the second map has bytes."""
    return mode & ~(3 << 16 | 3 << 22) | (mode >> 16 & 3) << 3


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> list[tuple[str, int, int]]:
    """Block, register and value."""
    buffer = reuse << 13 | (conv.design.banks - banks) << 4 | banks
    turns = TABLE_SET if conv.table else IN_TURN
    return [
        ("CNA", 0x1004, turns),
        ("CSC", 0x2004, turns),
        ("CORE", 0x3004, turns),
        ("CNA", 0x1040, buffer),
        ("DPU", 0x4004, turns),
        ("DPU_RDMA", 0x5004, turns),
        *_input(conv, rows, banks, buffer),
        *_sums(conv, rows),
        *_bytes(conv, rows),
        *_reads(conv, rows),
        *END,
        ("ENABLE", ENABLE, BLOCKS),
    ]


def _input(conv: Convolution, rows: Rows, banks: int, buffer: int) -> list[tuple[str, int, int]]:
    (ky, kx), (sy, sx), (dy, dx) = conv.kernel, conv.steps, conv.dilations
    size = conv.width << 16 | rows.count
    kernels = kernel_count(conv)
    edges = conv.pads[1] << 4 | rows.pad_top
    return [
        ("CNA", 0x100C, transposed(conv) | (3 if conv.depthwise else 0)),
        ("CNA", 0x1010, feature_grains(conv, rows, banks) << 4),
        ("CNA", 0x1014, apart_steps(conv) | (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
        ("CNA", 0x1018, 0),
        ("CNA", 0x1020, size),
        ("CNA", 0x1024, (conv.channels - 1) << 16 | conv.stored_channels),
        ("CNA", 0x1028, conv.out_width),
        ("CNA", 0x102C, conv.out_width * rows.out_count),
        ("CNA", 0x1030, kernels * conv.kernel_bytes),
        ("CNA", 0x1034, conv.kernel_bytes),
        ("CNA", 0x1038, kx << 24 | ky << 16 | kernels),
        ("CNA", 0x1040, buffer),
        ("CNA", 0x1044, conv.width << 16 | row_entries(conv)),
        ("CNA", 0x104C, 0xA),  # bytes are signed
        *(("CNA", 0x1050 + 4 * i, 1 << 16) for i in range(4)),
        ("CNA", 0x1060, 0),
        ("CNA", 0x1064, 0),
        ("CNA", 0x1068, (conv.zero_in & 0xFFFF) << 16 | edges),
        ("CNA", 0x1070, 0),
        ("CNA", 0x1074, 0),
        ("CNA", 0x1078, 0x171C07),  # bursts
        ("CNA", 0x107C, conv.width),
        ("CNA", 0x1080, conv.in_surface or conv.height * conv.width),
        ("CNA", 0x1084, size),
        ("CNA", 0x1088, conv.stored_channels),
        *(("CNA", register, 0) for register in (0x1100, 0x1104)),
        *(("CNA", register, 0) for register in range(0x1110, 0x1150, 4)),
        *(("CNA", register, 0) for register in range(0x1210, 0x1234, 4)),
    ]


def _sums(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    return [
        ("CSC", 0x200C, 3 if conv.depthwise else 1),
        ("CORE", 0x300C, 2 if conv.depthwise else 0),
        ("CORE", 0x3010, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("CORE", 0x3014, round_up(conv.outputs, conv.out_block) - 1),
        ("CORE", 0x302C, 0),
    ]


def _bytes(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    channels = round_up(conv.outputs, conv.out_block) - 1
    surface = conv.out_surface * conv.design.atom
    return [
        ("DPU", 0x400C, 0x138 if conv.depthwise else 0x108),
        ("DPU", 0x4010, 0xE0 | (conv.shift << 10 if conv.table else 0)),
        ("DPU", 0x4014, 0),
        ("DPU", 0x4020, 0),
        ("DPU", 0x4024, surface),
        ("DPU", 0x4030, conv.out_width - 1),
        ("DPU", 0x4034, rows.out_count - 1),
        ("DPU", 0x4038, 0),
        ("DPU", 0x403C, (conv.outputs - 1) << 16 | channels),
        ("DPU", 0x4040, 0x148),  # bias and multiplier from memory
        ("DPU", 0x4044, 0),
        ("DPU", 0x4048, 0xE01),  # multipliers have 14 bits behind the point
        ("DPU", 0x404C, 0),
        ("DPU", 0x4050, 0x36D if conv.depthwise else 0x125),
        ("DPU", 0x4054, 0),
        ("DPU", 0x4060, stage(scaled_mode(conv))),
        ("DPU", 0x4064, 0),
        ("DPU", 0x4068, conv.scale << 16 | conv.shift << 8 if conv.table else 0),
        ("DPU", 0x406C, 0 if conv.relu_after else conv.limit),
        *_operand(conv),
        ("DPU", 0x407C, conv.limit if conv.relu_after else 0),
        ("DPU", 0x4080, 0 if conv.table else conv.zero_out & 0xFFFFFFFF),
        ("DPU", 0x4084, 1 if conv.table else conv.scale),
        ("DPU", 0x4088, 0 if conv.table else conv.shift),
        *(("DPU", 0x4090 + 4 * i, 0) for i in range(8)),
        ("DPU", 0x40C0, surface * (conv.out_block // conv.design.atom)),
        ("DPU", 0x40C4, 0),
        *table_registers(conv.table),
    ]


def _operand(conv: Convolution) -> list[tuple[str, int, int]]:
    mode, zero, scale = LOOKS_UP if conv.table else ALONE, 0, 1
    if conv.added:
        mode, zero = operand(adding(conv.relu_after, conv.limit)), -conv.added.zero & 0xFFFFFFFF
        scale = conv.added.shift << 16 | conv.added.scale
    return [("DPU", 0x4070, mode), ("DPU", 0x4074, zero), ("DPU", 0x4078, scale)]


def _reads(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    channels = round_up(conv.outputs, conv.out_block) - 1
    surface = conv.out_surface * conv.design.atom if conv.added else 0
    skipped = conv.out_surface - rows.out_count * conv.out_width if conv.added else 0
    return [
        ("DPU_RDMA", 0x500C, conv.out_width - 1),
        ("DPU_RDMA", 0x5010, rows.out_count - 1),
        ("DPU_RDMA", 0x5014, channels),
        ("DPU_RDMA", 0x5018, 0),
        ("DPU_RDMA", 0x501C, 0xE),
        ("DPU_RDMA", 0x5020, 0),
        ("DPU_RDMA", 0x5024, channels),
        ("DPU_RDMA", 0x5028, 1),
        ("DPU_RDMA", 0x502C, 0),
        ("DPU_RDMA", 0x5030, 0),
        ("DPU_RDMA", 0x5034, 0x40000000 if conv.added else 1),
        ("DPU_RDMA", 0x5038, 0),
        ("DPU_RDMA", 0x503C, surface - conv.design.atom if conv.added else 0),
        ("DPU_RDMA", 0x5040, surface),
        ("DPU_RDMA", 0x5044, 0x4006 if conv.depthwise else 0x4000),
        ("DPU_RDMA", 0x5048, 0),
        ("DPU_RDMA", 0x504C, skipped * conv.design.atom),
        ("DPU_RDMA", 0x5064, 0),
        ("DPU_RDMA", 0x5068, 0x1010101),
    ]
