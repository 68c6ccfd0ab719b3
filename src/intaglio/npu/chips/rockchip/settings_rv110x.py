"""The registers of one task of a convolution on RV1103 and RV1106, in the vendor's order."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import Convolution, Rows, round_up, row_entries
from intaglio.npu.chips.rockchip.settings import (
    CONVOLUTION_BLOCKS,
    END,
    IN_TURN,
    feature_grains,
    kernel_count,
    table_registers,
)
from intaglio.npu.chips.rockchip.words import ENABLE

MOST, LEAST = 0x7FFFFFFF, 0x80000000  # bounds that no number reaches


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> list[tuple[str, int, int]]:
    """Block, register and value."""
    buffer = reuse << 13 | 8
    return [
        ("CNA", 0x1004, IN_TURN),
        ("CORE", 0x3004, IN_TURN),
        ("CNA", 0x1040, buffer),
        ("DPU", 0x4004, IN_TURN),
        ("DPU_RDMA", 0x5004, IN_TURN),
        *_input(conv, rows, banks, buffer),
        *_sums(conv, rows),
        *_bytes(conv, rows),
        *_reads(conv, rows),
        ("CSC", 0x8028, 0xC),
        ("CSC", 0x802C, 0xFFFFFFFF),
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
        ("CNA", 0x1014, (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
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
    return [
        ("DPU", 0x400C, 0x1FC if deep else 0x1E4),
        ("DPU", 0x4010, 0x800000),
        ("DPU", 0x4014, 0),
        ("DPU", 0x4018, 0),
        ("DPU", 0x401C, MOST),
        ("DPU", 0x4020, 0),
        ("DPU", 0x4024, surface),
        ("DPU", 0x4028, MOST),
        ("DPU", 0x402C, MOST),
        ("DPU", 0x4030, conv.out_width - 1),
        ("DPU", 0x4034, rows.out_count - 1),
        ("DPU", 0x4038, 0),
        ("DPU", 0x403C, (conv.outputs - 1) << 16 | channels - 1),
        ("DPU", 0x4040, 0x101C92 if deep else 0x121D80),  # bias and multiplier from memory
        ("DPU", 0x4044, 0),
        ("DPU", 0x4048, 0 if deep else 1),
        ("DPU", 0x404C, LEAST),
        ("DPU", 0x4050, 0x70000125 if deep else 0x30000001),
        ("DPU", 0x4054, 0xE000000 if deep else 0x8E000000),
        ("DPU", 0x4058, (channels // conv.design.atom - 1) << 16 | (7 if deep else 3)),
        ("DPU", 0x405C, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("DPU", 0x4060, 0x13),
        ("DPU", 0x4064, 0),
        ("DPU", 0x4068, 0),
        ("DPU", 0x406C, LEAST),
        ("DPU", 0x4070, 0x10041C1),
        ("DPU", 0x4074, 0),
        ("DPU", 0x4078, 1),
        ("DPU", 0x407C, LEAST),
        ("DPU", 0x4080, conv.zero_out & 0xFFFFFFFF),
        ("DPU", 0x4084, conv.scale),
        ("DPU", 0x4088, conv.shift),
        *(("DPU", 0x4090 + 4 * i, 0) for i in range(5)),
        ("DPU", 0x40C0, surface * (conv.out_block // conv.design.atom)),
        ("DPU", 0x40C4, 0),
        *(("DPU", 0x40D8 + 4 * i, MOST if i % 2 else LEAST) for i in range(6)),
        *table_registers(None),
    ]


def _reads(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    return [
        ("DPU_RDMA", 0x500C, conv.out_width - 1),
        ("DPU_RDMA", 0x5010, rows.out_count - 1),
        ("DPU_RDMA", 0x5014, round_up(conv.outputs, conv.out_block) - 1),
        ("DPU_RDMA", 0x5018, 0),
        ("DPU_RDMA", 0x501C, 0xA if conv.depthwise else 0xE),  # without zero points, or with
        *(("DPU_RDMA", register, 0) for register in (0x5020, 0x5028, 0x502C)),
        ("DPU_RDMA", 0x5034, 1),
        ("DPU_RDMA", 0x5038, 0),
        ("DPU_RDMA", 0x5040, 0),
        ("DPU_RDMA", 0x5044, 0x7816 if conv.depthwise else 0x7810),
        *(("DPU_RDMA", register, 0) for register in (0x5048, 0x504C, 0x5064)),
        ("DPU_RDMA", 0x5068, 0x1010101),
        ("DPU_RDMA", 0x506C, 0),
    ]
