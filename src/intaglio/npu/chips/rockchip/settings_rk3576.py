"""The registers of one task of a convolution on the RK3576, in the vendor's order."""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import (
    ATOM,
    SURFACE_PIXELS,
    Convolution,
    Rows,
    round_up,
    row_entries,
)
from intaglio.npu.chips.rockchip.settings import CONVOLUTION_BLOCKS, END, IN_TURN, kernel_count
from intaglio.npu.chips.rockchip.words import ENABLE

ENTRIES = 1024  # of a bank
MOST, LEAST = 0x7FFFFFFF, 0x80000000  # bounds that no number reaches
NO_TABLE = (*range(0x4100, 0x4124, 4), 0x4130, *range(0x4140, 0x4158, 4), 0x4160, 0x4170, 0x4174)
NO_TABLE += tuple(range(0x4184, 0x4198, 4))


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> list[tuple[str, int, int]]:
    """Block, register and value."""
    weights = reuse << 31 | 7
    return [
        ("CNA", 0x1004, IN_TURN),
        ("CORE", 0x3004, IN_TURN),
        ("CNA", 0x1038, weights),
        ("DPU", 0x4004, IN_TURN),
        ("DPU_RDMA", 0x5004, IN_TURN),
        *_input(conv, rows, banks, weights),
        *_sums(conv, rows),
        *_bytes(conv, rows),
        *_reads(conv, rows),
        *END,
        ("ENABLE", ENABLE, CONVOLUTION_BLOCKS),
    ]


def _input(conv: Convolution, rows: Rows, banks: int, weights: int) -> list[tuple[str, int, int]]:
    (ky, kx), (sy, sx), (dy, dx) = conv.kernel, conv.steps, conv.dilations
    kernels, entries = kernel_count(conv), row_entries(conv)
    read = rows.count - rows.held
    size = (conv.width - 1) << 16 | rows.count - 1
    most = banks * ENTRIES  # rows follow each other around the buffer
    start, end = rows.first * entries % most, (rows.first + rows.held) * entries % most
    if not rows.held:
        start = end = 0
    block = conv.kernel_bytes // 8 if conv.depthwise else conv.kernel_bytes * 2  # 16 bytes each
    below = (rows.out_count - 1) * sy + conv.reach[0] - rows.pad_top - rows.count
    right = (conv.out_width - 1) * sx + conv.reach[1] - conv.pads[1] - conv.width
    edges = max(0, right) << 24 | max(0, below) << 16 | conv.pads[1] << 8 | rows.pad_top
    return [
        ("CNA", 0x100C, 1 if conv.depthwise else 0),
        ("CNA", 0x1010, 0xFFF),
        ("CNA", 0x1014, (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
        ("CNA", 0x1018, (rows.held > 0) << 31 | 1 << 30 | banks << 8 | banks),
        ("CNA", 0x101C, kernels * conv.kernel_bytes),
        ("CNA", 0x1020, conv.kernel_bytes),
        ("CNA", 0x1024, (kx - 1) << 24 | (ky - 1) << 16 | kernels - 1),
        ("CNA", 0x1028, read * entries << 16 | conv.channels - 1),
        ("CNA", 0x102C, size),
        ("CNA", 0x1030, block << 16 | conv.out_width - 1),
        ("CNA", 0x1034, conv.out_width * rows.out_count - 1),
        ("CNA", 0x1038, weights),
        ("CNA", 0x103C, entries << 16 | start),
        ("CNA", 0x1040, banks << 26 | end),
        ("CNA", 0x1044, conv.width << 16 | entries),
        ("CNA", 0x1048, 0xB),  # bytes are signed and not converted
        ("CNA", 0x104C, 0x10001),
        ("CNA", 0x1050, 0x10001),
        *(("CNA", register, 0) for register in range(0x1054, 0x1078, 4)),
        ("CNA", 0x1078, (conv.width - 1) << 16 | read - 1),
        ("CNA", 0x107C, conv.channels - 1),
        ("CNA", 0x1080, edges),
        ("CNA", 0x1084, conv.zero_in & 0xFFFFFFFF),
        ("CNA", 0x1088, 0),
        ("CNA", 0x108C, 0xF000F),  # longest bursts
        ("CNA", 0x1090, 4 * conv.width),
        ("CNA", 0x1094, conv.in_surface or conv.height * conv.width),
        ("CNA", 0x1098, round_up(read * conv.width, SURFACE_PIXELS)),
        *(("CNA", register, 0) for register in (0x109C, 0x1100, 0x1104, 0x1110, 0x1140, 0x1144)),
        ("CNA", 0x118C, (conv.width - 1) * 0x10001),
    ]


def _sums(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    return [
        ("CORE", 0x3018, 0x1000000A if conv.depthwise else 0x10000001),
        ("CORE", 0x301C, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("CORE", 0x3020, conv.outputs - 1),
        ("CORE", 0x3024, 0),
    ]


def _bytes(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    size, deep = (rows.out_count - 1) << 16 | conv.out_width - 1, conv.depthwise
    last = (conv.outputs - 1) % conv.out_block // ATOM  # atom of the last block that is not empty
    writes = 0x13033 | last << 8 if deep else 0x80011011 | last << 8
    skipped = conv.out_block // ATOM * conv.out_surface - conv.out_width * rows.out_count
    return [
        ("DPU", 0x400C, 0x4000000C if deep else 0x40000004),
        ("DPU", 0x4010, 0),
        ("DPU", 0x4014, 0),
        ("DPU", 0x4018, 0),
        ("DPU", 0x401C, conv.out_surface),
        ("DPU", 0x4020, conv.out_width - 1),
        ("DPU", 0x4024, rows.out_count - 1),
        ("DPU", 0x4028, 0),
        ("DPU", 0x402C, conv.outputs - 1),
        ("DPU", 0x4030, (conv.outputs - 1) << 16 | (0x310 if deep else 0x710)),
        ("DPU", 0x4034, size),
        ("DPU", 0x4038, 0x100092 if deep else 0x120080),  # bias and multiplier from memory
        ("DPU", 0x403C, 0),
        ("DPU", 0x4044, 0 if deep else 1),
        ("DPU", 0x4048, LEAST),
        ("DPU", 0x404C, MOST),
        ("DPU", 0x4050, writes),
        ("DPU", 0x4058, LEAST),
        ("DPU", 0x405C, MOST),
        ("DPU", 0x4060, 0x903),
        ("DPU", 0x406C, LEAST),
        ("DPU", 0x4070, MOST),
        ("DPU", 0x4074, LEAST),
        ("DPU", 0x4078, MOST),
        ("DPU", 0x407C, 0x10041C1),
        ("DPU", 0x4080, 0),
        ("DPU", 0x4084, 1),
        ("DPU", 0x4088, LEAST),
        ("DPU", 0x408C, MOST),
        ("DPU", 0x4090, 0),
        ("DPU", 0x4094, 0),
        ("DPU", 0x409C, 0),
        ("DPU", 0x40A4, LEAST),
        ("DPU", 0x40A8, MOST),
        ("DPU", 0x40AC, conv.zero_out & 0xFFFFFFFF),
        ("DPU", 0x40B0, conv.scale),
        ("DPU", 0x40B4, conv.shift),
        ("DPU", 0x40B8, skipped),
        ("DPU", 0x40BC, 0),
        ("DPU", 0x40C0, 0x4440100),
        ("DPU", 0x40C8, 0),
        ("DPU", 0x40CC, 0),
        ("DPU", 0x40D0, 0x40FFFF),
        *(("DPU", register, 0) for register in NO_TABLE),
    ]


def _reads(conv: Convolution, rows: Rows) -> list[tuple[str, int, int]]:
    return [
        ("DPU_RDMA", 0x500C, conv.out_width - 1),
        ("DPU_RDMA", 0x5010, rows.out_count - 1),
        ("DPU_RDMA", 0x5014, conv.outputs - 1),
        ("DPU_RDMA", 0x5018, 0),
        ("DPU_RDMA", 0x501C, 0x510 if conv.depthwise else 0x710),  # without zero points, or with
        *(("DPU_RDMA", register, 0) for register in (0x5020, 0x5024, 0x5028, 0x502C, 0x5030)),
        ("DPU_RDMA", 0x5034, 0x41),
        ("DPU_RDMA", 0x5038, 0),
        ("DPU_RDMA", 0x5040, 0),
        ("DPU_RDMA", 0x5044, 0x40000012 if conv.depthwise else 0x40000010),
        *(("DPU_RDMA", register, 0) for register in (0x5048, 0x504C, 0x5064, 0x506C)),
        ("DPU_RDMA", 0x5078, 0),
        ("DPU_RDMA", 0x507C, 0),
    ]
