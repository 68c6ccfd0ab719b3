"""Tasks of the DPU alone: sums and products of maps, tables, copies, repeated pixels."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.npu.chips.rockchip import settings_rk356x, settings_rv110x
from intaglio.npu.chips.rockchip.arithmetic import Pair
from intaglio.npu.chips.rockchip.geometry import (
    RK356X,
    RK3588,
    RV110X,
    Design,
    Table,
    round_up,
    surface_pixels,
)
from intaglio.npu.chips.rockchip.settings import (
    ALONE,
    BYPASS,
    END,
    IN_TURN,
    LOOKS_UP,
    LUT_CFG,
    TABLE_SET,
    TABLE_STEPS,
    adding,
    table_registers,
)
from intaglio.npu.chips.rockchip.words import ENABLE

MULTIPLIES = 0x904002C4  # EW_CFG: the product of two maps
ONE_PIXEL = 1 << 28  # EW_CFG without this bit: the second map has one pixel
BLOCKS = 0x18  # DPU and DPU_RDMA
DPU = [0x400C, 0x4010, 0x4014, 0x4020, 0x4024, *range(0x4030, 0x408C, 4)]
DPU += [*range(0x4090, 0x40B0, 4), 0x40C0, 0x40C4]
RDMA = [0x500C, 0x5010, 0x5014, 0x5018, 0x501C, 0x5020, 0x5028, 0x502C, 0x5034, 0x5038, 0x5040]
RDMA += [0x5044, 0x5048, 0x504C, 0x5064, 0x5068, 0x506C]
WRITES_TABLE = 0x20000  # LUT_ACCESS_CFG; 1 << 16: the second table

Settings = list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class MapSize:
    """A map in blocks of channels."""

    channels: int
    height: int
    width: int
    design: Design = RK3588

    @property
    def atom(self) -> int:
        """Channels of a block."""
        return self.design.atom

    @property
    def pixels(self) -> int:
        return surface_pixels(self.height, self.width)

    @property
    def surface(self) -> int:
        """Bytes from one block to the next."""
        return self.pixels * self.atom

    @property
    def skipped(self) -> int:
        """Bytes of a block behind its pixels."""
        return self.surface - self.height * self.width * self.atom

    @property
    def bytes(self) -> int:
        return round_up(self.channels, self.atom) * self.pixels


def map_size(shape: tuple[int, ...], design: Design = RK3588) -> MapSize:
    """The size of a map [1, channels, height, width]."""
    _, channels, height, width = shape
    return MapSize(channels, height, width, design)


def pair(size: MapSize, numbers: Pair, one_pixel: bool) -> Settings:
    """The sum or product of two maps; `one_pixel`: the second one has one for all."""
    mode = adding(numbers.bounds.relu, numbers.bounds.limit)
    dpu = {0x4010: numbers.a_shift << 4, 0x4040: 0x20040}
    dpu[0x4048] = numbers.a_scale << 16 | numbers.a_shift << 8
    if numbers.multiplies:
        mode = mode & ~ADDITION_BITS | MULTIPLIES & ADDITION_BITS
        dpu = {0x4040: 0x20050}
    if one_pixel:
        mode &= ~ONE_PIXEL
    second = numbers.second
    dpu |= {0x4044: -numbers.a_zero, 0x4070: mode, 0x4074: -second.zero}
    dpu |= {0x4078: second.shift << 16 | second.scale, 0x407C: numbers.bounds.limit}
    dpu |= {0x4080: numbers.zero, 0x4084: numbers.scale, 0x4088: numbers.shift}
    rdma = {0x5034: 0x40000004, 0x5040: size.surface, 0x506C: size.skipped}
    if one_pixel:
        rdma = {0x5034: 4, 0x5040: size.atom}
    return _task(size, dpu, rdma)


ADDITION_BITS = 1 << 17 | 1 << 2  # of EW_CFG: what is done with the second map


def copy(size: MapSize) -> Settings:
    """A map as it is, at another address."""
    return _task(size, {}, {})


def look_up(size: MapSize, table: Table) -> Settings:
    """Bytes through the table that is loaded."""
    return _task(size, {0x4070: LOOKS_UP}, {}, table)


def load_table(table: Table, design: Design = RK3588) -> list[Settings]:
    """Both tables, on an RK356x in a task each; the map that a task copies is one of its own."""
    size = MapSize(design.atom, 1, 1, design)
    whole = _task(size, {}, {})
    if design is RK356X:  # the vendor writes the second entry once more
        parts = [_half(i, [*h, *h[1:2]]) for i, h in enumerate(table_halves(table))]
        return [before_end(whole, words) for words in parts]
    if design is RV110X:
        whole = [(block, r, 1 if r == LUT_CFG else v) for block, r, v in whole]
    return [before_end(whole, both_halves(table))]


def before_end(task: Settings, words: Settings) -> Settings:
    """A task with more words before those that end it."""
    end = len(END) + 1
    return [*task[:-end], *words, *task[-end:]]


def both_halves(table: Table) -> Settings:
    """The words that write both tables."""
    first, second = table_halves(table)
    return [*_half(0, first), *_half(1, second)]


def _half(number: int, entries: list[int]) -> Settings:
    words: Settings = [("DPU", 0x4100, WRITES_TABLE | number << 16)]
    return words + [("DPU", 0x4104, e & 0xFFFFFFFF) for e in entries]


def table_halves(table: Table) -> tuple[list[int], list[int]]:
    """The entries of both tables; the last one of the first is the first one of the second."""
    entries = [*table.entries, *[table.entries[-1]] * (2 * TABLE_STEPS + 1 - len(table.entries))]
    return entries[: TABLE_STEPS + 1], entries[TABLE_STEPS:]


def repeat(size: MapSize, factor: tuple[int, int]) -> Settings:
    """One block of channels, with every pixel written `factor` times down and across."""
    atom = size.atom
    down, across = factor
    wide, high = size.width * across, size.height * down
    notch = (down - 1) * wide
    dpu = {0x4010: 1 << 26, 0x4024: wide * atom, 0x4030: wide - 1, 0x4038: notch << 16 | notch}
    dpu |= {0x4050: (down - 1) * 0x124 | 2, 0x405C: (size.height - 1) << 16 | wide - 1}
    dpu |= {0x40C0: surface_pixels(high, wide) * atom}
    window = (down - 1) << 9 | (across - 1) << 6 | (down - 1) << 3 | across - 1
    rdma = {0x5014: atom // 2 - 1, 0x5044: 0xF801, 0x5048: 1 << 12 | window, 0x504C: 0}
    return _task(MapSize(atom, size.height, size.width, size.design), dpu, rdma)


def _task(
    size: MapSize, dpu: dict[int, int], rdma: dict[int, int], table: Table | None = None
) -> Settings:
    channels = round_up(size.channels, size.atom) - 1
    turns = TABLE_SET if table else IN_TURN
    values = (
        dict.fromkeys(DPU, 0)
        | {
            0x400C: 0x1E5,
            0x4024: size.surface,
            0x4030: size.width - 1,
            0x4034: size.height - 1,
            0x403C: (size.channels - 1) << 16 | channels,
            0x4040: BYPASS,
            0x4050: 2,
            0x4058: channels,
            0x405C: (size.height - 1) << 16 | size.width - 1,
            0x4060: BYPASS,
            0x4070: ALONE,
            0x4078: 1,
            0x4084: 1,
            0x40C0: size.surface,
        }
        | dpu
    )
    reads = (
        dict.fromkeys(RDMA, 0)
        | {
            0x500C: size.width - 1,
            0x5010: size.height - 1,
            0x5014: channels,
            0x5034: 1,
            0x5044: 0x7801,
            0x504C: size.skipped,
            0x5068: 0x1010101,
        }
        | rdma
    )
    registers = DPU, RDMA
    if size.design is RK356X:
        values, reads = settings_rk356x.of_maps(values, reads, size.atom)
        registers = settings_rk356x.DPU, settings_rk356x.RDMA
    elif size.design is RV110X:
        values, reads = settings_rv110x.of_maps(values, reads, size.atom)
        registers = settings_rv110x.DPU, RDMA
    return [
        ("DPU", 0x4004, turns),
        ("DPU_RDMA", 0x5004, turns),
        *(("DPU", r, values.get(r, 0) & 0xFFFFFFFF) for r in registers[0]),
        *table_registers(table),
        *(("DPU_RDMA", r, reads.get(r, 0) & 0xFFFFFFFF) for r in registers[1]),
        *_end(size.design),
    ]


def _end(design: Design) -> Settings:
    tail = settings_rv110x.TAIL if design is RV110X else []
    return [*tail, *END, ("ENABLE", ENABLE, BLOCKS)]
