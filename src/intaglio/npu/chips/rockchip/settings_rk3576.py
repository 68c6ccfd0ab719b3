"""The registers of one task of a convolution on the RK3576, in the vendor's order.

Numbers that all channels share lie in memory, too: `stage` makes their bytes.
"""

from __future__ import annotations

from intaglio.npu.chips.rockchip.geometry import (
    ATOM,
    Convolution,
    Rows,
    Table,
    row_entries,
    surface_pixels,
)
from intaglio.npu.chips.rockchip.settings import (
    CONVOLUTION_BLOCKS,
    END,
    IN_TURN,
    TABLE_SET,
    TABLE_STEPS,
    apart_steps,
    kernel_count,
)
from intaglio.npu.chips.rockchip.words import ENABLE

ENTRIES = 1024  # of a bank
MOST, LEAST = 0x7FFFFFFF, 0x80000000  # bounds that no number reaches
TABLES = [*range(0x4100, 0x4124, 4), 0x4130, *range(0x4140, 0x4158, 4), 0x4160, 0x4170, 0x4174]
TABLES += range(0x4184, 0x4198, 4)
ONE_TABLE = 0x2000006  # LUT_CFG: both tables are one
NOTHING, LOOKS_UP, ADDS, MULTIPLIES = 0x10041C1, 0x1004140, 0x8002C0C0, 0x810F4094  # EW_CFG
SCALED = 1 << 16  # OUT_CVT_SCALE, where a map is read
ADDEND, FACTOR, SHIFT = 1 << 1, 1 << 3, 1 << 4  # what a stage reads from memory
BS_BOUNDS = (0x4048, 0x404C, 0x4058, 0x405C)
BN_BOUNDS = (0x406C, 0x4070, 0x4074, 0x4078)
EW_BOUNDS = (0x4088, 0x408C, 0x40A4, 0x40A8)
DPU = [*range(0x400C, 0x403D, 4), *range(0x4044, 0x4051, 4), 0x4058, 0x405C, 0x4060]
DPU += [*range(0x406C, 0x4095, 4), 0x409C, *range(0x40A4, 0x40C1, 4), 0x40C8, 0x40CC, 0x40D0]
RDMA = [*range(0x500C, 0x503C, 4), 0x5040, 0x5044, 0x5048, 0x504C, 0x5064, 0x506C, 0x5078, 0x507C]
CFG, BN_CFG = 0x5024, 0x5030  # registers with the addresses of these numbers
Settings = list[tuple[str, int, int]]


def stage(addend: int | None, factor: int | None, shift: int | None) -> bytes:
    """The numbers of a stage that all channels share, as they lie in memory."""
    made = b""
    if addend is not None:
        made += 2 * (addend & 0xFFFFFFFF).to_bytes(16, "little")
    if factor is not None:
        made += (factor & 0xFFFF).to_bytes(16, "little")
    if shift is not None:  # of numbers above and below 0
        made += bytes([shift, shift]).ljust(16, b"\0")
    return made


def table_registers(table: Table | None) -> Settings:
    """Where the table begins and ends, the steps between its entries, and what lies beyond."""
    values = {}
    if table is not None:
        last = table.first + (2 * TABLE_STEPS << table.bits)
        low, high = table.entries[0] & 0xFFFF, table.entries[-1] & 0xFFFF
        values = {0x4108: ONE_TABLE, 0x410C: table.bits << 16 | table.bits << 8}
        values |= dict.fromkeys(range(0x4110, 0x4120, 4), table.first)
        values |= dict.fromkeys(range(0x4140, 0x4150, 4), last)
        values |= {0x4188: low << 16, 0x418C: low << 16 | low}
        values |= {0x4190: high << 16, 0x4194: high << 16 | high}
    return [("DPU", place, values.get(place, 0) & 0xFFFFFFFF) for place in TABLES]


def bounds(low: int, high: int, places: tuple[int, ...]) -> dict[int, int]:
    """Registers of lower and upper ends in turn."""
    return {place: (high if i % 2 else low) & 0xFFFFFFFF for i, place in enumerate(places)}


def settings(conv: Convolution, rows: Rows, banks: int, reuse: bool) -> Settings:
    """Block, register and value."""
    weights = reuse << 31 | 7
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
        *END,
        ("ENABLE", ENABLE, CONVOLUTION_BLOCKS),
    ]


def _input(conv: Convolution, rows: Rows, banks: int, weights: int) -> Settings:
    (ky, kx), (sy, sx), (dy, dx) = conv.kernel, conv.steps, conv.dilations
    kernels, entries = kernel_count(conv), row_entries(conv)
    read = rows.count - rows.held
    size = (conv.width - 1) << 16 | rows.count - 1
    most = banks * ENTRIES  # rows follow each other around the buffer
    start, end = rows.first * entries % most, (rows.first + rows.held) * entries % most
    if not rows.held:
        start = end = 0
    block = conv.kernel_bytes // 8 if conv.depthwise else conv.kernel_bytes * 2  # 16 bytes each
    high, wide = (
        (n - 1) * step + 1 for n, step in zip((rows.count, conv.width), conv.apart, strict=True)
    )
    below = (rows.out_count - 1) * sy + conv.reach[0] - rows.pad_top - high
    right = (conv.out_width - 1) * sx + conv.reach[1] - conv.pads[1] - wide
    edges = max(0, right) << 24 | max(0, below) << 16 | conv.pads[1] << 8 | rows.pad_top
    return [
        ("CNA", 0x100C, 1 if conv.depthwise else 0),
        ("CNA", 0x1010, 0xFFF),
        ("CNA", 0x1014, apart_steps(conv) | (dy - 1) << 21 | (dx - 1) << 16 | sy << 3 | sx),
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
        ("CNA", 0x1098, surface_pixels(read, conv.width)),
        *(("CNA", register, 0) for register in (0x109C, 0x1100, 0x1104, 0x1110, 0x1140, 0x1144)),
        ("CNA", 0x118C, (conv.width - 1) * 0x10001),
    ]


def _sums(conv: Convolution, rows: Rows) -> Settings:
    return [
        ("CORE", 0x3018, 0x1000000A if conv.depthwise else 0x10000001),
        ("CORE", 0x301C, (rows.out_count - 1) << 16 | conv.out_width - 1),
        ("CORE", 0x3020, conv.outputs - 1),
        ("CORE", 0x3024, 0),
    ]


def _bytes(conv: Convolution, rows: Rows) -> Settings:
    size, deep = (rows.out_count - 1) << 16 | conv.out_width - 1, conv.depthwise
    last = (conv.outputs - 1) % conv.out_block // ATOM  # atom of the last block that is not empty
    writes = 0x13033 | last << 8 if deep else 0x80011011 | last << 8
    skipped = conv.out_block // ATOM * conv.out_surface - conv.out_width * rows.out_count
    relu, most = conv.relu or conv.limit > 0 or conv.relu_after, conv.limit or MOST
    before = relu and not conv.relu_after
    of_bn = bounds(0 if before else LEAST, most if before else MOST, BN_BOUNDS)
    of_ew = bounds(0 if conv.relu_after else LEAST, most if conv.relu_after else MOST, EW_BOUNDS)
    values = {
        0x400C: 0x4000000C if deep else 0x40000004,
        0x401C: conv.out_surface,
        0x4020: conv.out_width - 1,
        0x4024: rows.out_count - 1,
        0x402C: conv.outputs - 1,
        0x4030: (conv.outputs - 1) << 16 | (0x310 if deep else 0x710),
        0x4034: size,
        0x4038: 0x100092 if deep else 0x120080,  # bias and multiplier from memory
        0x4044: 0 if deep else 1,
        0x4050: writes,
        0x4060: 0x20 if conv.table else 0x902 if before else 0x903,
        **operand(conv),
        0x40AC: 0 if conv.table else conv.zero_out,
        0x40B0: 1 if conv.table else conv.scale | (SCALED if conv.added else 0),
        0x40B4: 0 if conv.table else conv.shift,
        0x40B8: skipped,
        0x40C0: 0x4440100,
    }
    return dpu(values | of_bn | of_ew, conv.table)


def operand(conv: Convolution) -> dict[int, int]:
    """What is done with a second map."""
    if conv.added is None:
        return {0x407C: LOOKS_UP if conv.table else NOTHING}
    numbers = conv.added.shift << 16 | conv.added.scale
    return {0x407C: ADDS, 0x4080: -conv.added.zero & 0xFFFF, 0x4084: numbers}


def dpu(values: dict[int, int], table: Table | None = None) -> Settings:
    """All registers of the DPU in their order, with these values."""
    usual = bounds(LEAST, MOST, BS_BOUNDS + BN_BOUNDS + EW_BOUNDS)
    usual |= {0x4060: 0x903, 0x407C: NOTHING, 0x4084: 1, 0x40D0: 0x40FFFF}
    given = usual | values
    found = [("DPU", place, given.get(place, 0) & 0xFFFFFFFF) for place in DPU]
    return found + table_registers(table)


def reader(values: dict[int, int]) -> Settings:
    """All registers of the DPU's reader in their order."""
    given = {0x5034: 0x41} | values
    return [("DPU_RDMA", place, given.get(place, 0)) for place in RDMA]


def _reads(conv: Convolution, rows: Rows) -> Settings:
    deep = conv.depthwise
    values = {
        0x500C: conv.out_width - 1,
        0x5010: rows.out_count - 1,
        0x5014: conv.outputs - 1,
        0x501C: 0x510 if deep else 0x710,  # without zero points, or with
        0x5028: ADDEND | FACTOR | SHIFT if conv.table else 0,
        0x5044: 0x40000012 if deep else 0x40000010,
    }
    if conv.added:
        size = conv.out_width * rows.out_count
        skipped = conv.out_block // ATOM * conv.out_surface - size
        values |= {0x5034: 0x50000044, 0x5040: conv.out_surface, 0x5044: 0x40000018}
        values |= {0x504C: skipped, 0x506C: skipped}
    return reader(values)
