"""The registers of one task of a convolution on RK3566 and RK3568, in the vendor's order."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import Convolution, Rows, round_up, row_entries
from intaglio.npu.chips.rockchip.settings import (
    END,
    IN_TURN,
    feature_grains,
    kernel_count,
    table_registers,
)
from intaglio.npu.chips.rockchip.words import ENABLE

BLOCKS = 0x1F  # CNA, CSC, CORE, DPU and DPU_RDMA


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> list[tuple[str, int, int]]:
    """Block, register and value."""
    buffer = reuse << 13 | (conv.design.banks - banks) << 4 | banks
    return [
        ("CNA", 0x1004, IN_TURN),
        ("CSC", 0x2004, IN_TURN),
        ("CORE", 0x3004, IN_TURN),
        ("CNA", 0x1040, buffer),
        ("DPU", 0x4004, IN_TURN),
        ("DPU_RDMA", 0x5004, IN_TURN),
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
        ("CNA", 0x100C, 3 if conv.depthwise else 0),
        ("CNA", 0x1010, feature_grains(conv, rows, banks) << 4),
        ("CNA", 0x1014, (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
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
        ("DPU", 0x4010, 0xE0),
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
        ("DPU", 0x4060, 0x92 if conv.limit else 0x12 if conv.relu else 0x53),
        ("DPU", 0x4064, 0),
        ("DPU", 0x4068, 0),
        ("DPU", 0x406C, conv.limit),
        ("DPU", 0x4070, 0x383),
        ("DPU", 0x4074, 0),
        ("DPU", 0x4078, 1),
        ("DPU", 0x407C, 0),
        ("DPU", 0x4080, conv.zero_out & 0xFFFFFFFF),
        ("DPU", 0x4084, conv.scale),
        ("DPU", 0x4088, conv.shift),
        *(("DPU", 0x4090 + 4 * i, 0) for i in range(8)),
        ("DPU", 0x40C0, surface * (conv.out_block // conv.design.atom)),
        ("DPU", 0x40C4, 0),
        *table_registers(None),
    ]


def _reads(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    channels = round_up(conv.outputs, conv.out_block) - 1
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
        ("DPU_RDMA", 0x5034, 1),
        ("DPU_RDMA", 0x5038, 0),
        ("DPU_RDMA", 0x503C, 0),
        ("DPU_RDMA", 0x5040, 0),
        ("DPU_RDMA", 0x5044, 0x4006 if conv.depthwise else 0x4000),
        ("DPU_RDMA", 0x5048, 0),
        ("DPU_RDMA", 0x504C, 0),
        ("DPU_RDMA", 0x5064, 0),
        ("DPU_RDMA", 0x5068, 0x1010101),
    ]
