"""Cycles of each command, with the constants that measurements of real chips give.

tpu-mlir publishes times of single commands that were measured on BM1684X, BM1688 and BM1690
(regression/profile; the networks are BlazeFace and ResNet-50). The constants of `RATES` are fitted
to them; `python -m benchmarks.sophgo_cycles --measured` compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from intaglio.npu.chips.bm1684x import numbers
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.fields import SHORT
from intaglio.npu.chips.bm1684x.variants import BM1684X, BM1688, SG2260, Variant

Values = Mapping[str, int]
PIXELS = 4  # that the cube computes at once
BANKS = 16  # of a lane's memory
START = 10  # cycles before the first result of most commands
SYSTEM = 5  # cycles of a command that computes nothing
DIVISION, ROOT = 5, 30  # steps of a division and of a reciprocal root
MATRIX_START = {4: 81, 5: 56, 6: 37}  # cycles before the first result, by kind of product
COPY_START = {0: 30, 2: 27, 3: 27, 4: 3, 5: 3}


@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds of one chip."""

    tiu: float  # MHz
    dma: float
    conv_start: int  # cycles of the TIU
    half_pixels: int  # pixels of 16-bit types that the cube computes at once
    window: float  # cycles for each tap of a depthwise convolution; 0: by the reads of its input
    pool: float  # the same of a pool
    start: int  # cycles of the DMA for any command
    piece: float  # at least, for each contiguous piece
    read: float  # bytes of DDR in a cycle of the DMA
    write: float
    within: float  # from DDR to DDR
    near: float  # L2 memory, or within local memory
    all_cores: float  # bytes of DDR in a cycle for all cores together


RATES = {
    "bm1684x": Rates(1000, 1000, 39, 4, 0.0, 0.0, 130, 3.6, 57.0, 46.0, 28.5, 60.0, 57.0),
    "bm1688": Rates(900, 750, 35, 2, 1.5, 1.25, 130, 2.6, 32.0, 32.0, 19.9, 32.0, 36.5),
    "sg2260": Rates(1000, 1000, 46, 4, 0.0, 0.0, 260, 1.5, 113.0, 113.0, 113.0, 130.0, 546.0),
}
VARIANTS = {"BM1684X": BM1684X, "BM1688": BM1688, "CV186X": BM1688, "BM1690": SG2260}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command costs."""

    cycles: float  # of its engine
    start: float  # of these, cycles before any work
    macs: int = 0
    bytes: int = 0  # of DDR


def cost(c: Command, chip: Variant) -> Cost:
    """Cycles of a command of either engine."""
    if c.engine == "dma":
        return _dma(c, chip)
    name = "&".join(SHORT.sub("", part) for part in c.name.split("&"))
    rates = RATES[chip.name]
    if name in ("CONV", "MM2"):
        steps, macs = (_conv if name == "CONV" else _matmul)(c.fields, chip, rates)
        start = rates.conv_start
        if name == "MM2":
            start = MATRIX_START.get(c.fields.get("tsk_eu_typ", 0), START)
        return Cost(start + steps, start, macs)
    if name in ("PorD", "MM"):
        steps, macs = (_window if name == "PorD" else _product)(c.fields, chip, rates)
        return Cost(START + steps, START, macs)
    if name.endswith("BC"):
        start = COPY_START.get(c.fields.get("tsk_eu_typ", 0), START)
        return Cost(start + _lane_copy(c.fields, chip), start)
    if name.startswith("SYS") or "res0_c" not in c.fields:
        return Cost(SYSTEM, SYSTEM)
    return Cost(START + _elements(name, c.fields, chip), START)


def _shape(v: Values, name: str) -> tuple[int, int, int, int]:
    n, c, h, w = (v.get(f"{name}_{d}", 1) or 1 for d in "nchw")
    return n, c, h, w


def _blocks(v: Values, name: str, chip: Variant) -> int:
    """Rounds over the lanes for the channels of an operand."""
    first = v.get(f"{name}_addr", 0) // chip.lane_bytes % chip.lanes
    return -(-(first + _shape(v, name)[1]) // chip.lanes)


def _bytes(v: Values, *names: str) -> int:
    """The widest type of some operands."""
    return max(numbers.BYTES.get(v.get(f"{n}_prec", 0), 1) for n in names)


def _conv(v: Values, chip: Variant, rates: Rates) -> tuple[float, int]:
    n, c, h, w = _shape(v, "res0")
    taps, inputs = v.get("opd1_h", 1) * v.get("opd1_w", 1), v.get("opd0_c", 1)
    wide = numbers.BYTES.get(v.get("opd0_prec", 0), 1)
    at_once, pixels = max(chip.inputs_at_once // wide, 1), PIXELS
    if wide == 2:
        pixels = rates.half_pixels
    if wide == 4:
        at_once, pixels = 1, chip.eu_bytes // 4
    steps = n * _blocks(v, "res0", chip) * taps * -(-inputs // at_once) * -(-h * w // pixels)
    return steps, n * c * h * w * taps * inputs


def _matmul(v: Values, chip: Variant, rates: Rates) -> tuple[float, int]:
    rows, columns = v.get("res0_c", 1), v.get("res0_w", 1)
    kind = v.get("tsk_eu_typ", 4)
    depth = v.get("opd1_w", 1) if kind == 5 else v.get("opd1_c", 1)
    if kind == 6:
        rows, columns, depth = v.get("res0_c", 1), v.get("opd1_c", 1), v.get("opd1_w", 1)
    wide = _bytes(v, "opd0")
    at_once = max(chip.inputs_at_once // wide, 1) if wide < 4 else 1
    blocks = -(-rows // chip.lanes)
    steps = blocks * -(-depth // at_once) * -(-columns // PIXELS)
    return steps, rows * columns * depth


def _product(v: Values, chip: Variant, rates: Rates) -> tuple[float, int]:
    """MM: each lane holds columns, and adds one row of the second operand after the other."""
    rows, depth = v.get("opd0_n", 1), v.get("opd0_w", 1) * max(v.get("opd0_c", 1), 1)
    if v.get("left_tran"):
        rows, depth = depth, rows
    vectors = -(-v.get("res0_w", 1) * _bytes(v, "opd0") // chip.eu_bytes)
    steps = rows * _blocks(v, "res0", chip) * vectors * depth
    return steps, rows * depth * v.get("res0_c", 1) * v.get("res0_w", 1)


def _window(v: Values, chip: Variant, rates: Rates) -> tuple[float, int]:
    n, c, h, w = _shape(v, "res0")
    taps = v.get("opd1_h", 1) * v.get("opd1_w", 1)
    units = chip.eu_bytes // _bytes(v, "opd0")
    depthwise = v.get("tsk_eu_typ", 0) in (0, 2)
    each = rates.window if depthwise else rates.pool
    if not each:
        across, down = v.get("res_op_x_str", 1) or 1, v.get("res_op_y_str", 1) or 1
        kernel = v.get("opd1_h", 1), v.get("opd1_w", 1)
        outputs = min(units, h * w)
        pad = v.get("opd0_lf_pad", 0)
        each = _reads(units, outputs, w, v.get("opd0_w", w), across, down, kernel, pad)
    steps = n * _blocks(v, "res0", chip) * -(-h * w // units) * taps * each
    return steps, n * c * h * w * taps if depthwise else 0


@lru_cache(maxsize=4096)
def _reads(
    units: int,
    outputs: int,
    width: int,
    in_width: int,
    across: int,
    down: int,
    kernel: tuple[int, int],
    pad: int,
) -> float:
    """Vectors of the input that a vector of results reads for each tap, on average."""
    found = count = 0
    rows, columns = (min(k, 8) for k in kernel)
    for dy in range(rows):
        for dx in range(columns):
            touched = {
                ((p // width * down + dy) * in_width + p % width * across + dx - pad) // units
                for p in range(outputs)
            }
            found += len(touched)
            count += 1
    return found / count


def _lane_copy(v: Values, chip: Variant) -> float:
    n, c, h, w = _shape(v, "res0")
    vectors = -(-h * w * _bytes(v, "res0") // chip.eu_bytes)
    if v.get("tsk_eu_typ", 0) in (3, 4):  # the same for all lanes
        return n * _blocks(v, "res0", chip) * vectors
    return n * c * vectors


def _elements(name: str, v: Values, chip: Variant) -> float:
    """Steps of an element-wise command: a vector of all lanes at a time."""
    n, _, h, w = _shape(v, "res0")
    used = [o for o in ("opd0", "opd1", "opd2") if f"{o}_addr" in v and not v.get(f"{o}_const")]
    used = used[: v.get("tsk_opd_num", 3)]
    streams = [o for o in used if o == "opd0" or (name == "AR" and not _repeated(v, o))]
    units = chip.eu_bytes // _bytes(v, "res0", *streams)
    if name in ("SG", "SGL"):
        units = 1
    steps = n * _blocks(v, "res0", chip) * -(-h * w // units)
    kind = v.get("tsk_eu_typ", 0)
    if name == "AR" and kind == 12:
        return steps * DIVISION
    if name == "SFU":
        return steps * (ROOT if kind == 17 else max(v.get("opd1_n", 1), 1) if kind != 15 else 1)
    bank = chip.lane_bytes // BANKS
    banks = [v.get(f"{o}_addr", 0) % chip.lane_bytes // bank for o in ("res0", *streams)]
    return steps * (2 if len(streams) > 1 or banks[0] in banks[1:] else 1)


def _repeated(v: Values, name: str) -> bool:
    """Whether an operand has one value for all pixels of a channel."""
    return (
        v.get(f"{name}_str", 0) >= 3 and not v.get(f"{name}_h_str") and not v.get(f"{name}_w_str")
    )


def _address(v: Values, side: str) -> int:
    for high, low in (("h8", "l32"), ("h13", "l32"), ("l8", "h32")):
        if f"{side}_start_addr_{high}" in v:
            return v[f"{side}_start_addr_{high}"] << 32 | v.get(f"{side}_start_addr_{low}", 0)
    return v.get(f"{side}_start_addr_l32", 0)


def _is_ddr(address: int, chip: Variant) -> bool:
    if chip.name == "bm1684x":
        return address >= chip.coefficients
    if chip.name == "bm1688":
        return address >= 1 << 34
    return 0 < address < chip.local and address >> 40 < 16


def _dma(c: Command, chip: Variant) -> Cost:
    v, rates = c.fields, RATES[chip.name]
    if not c.name.startswith("DMA_"):
        return Cost(SYSTEM, SYSTEM)
    size = numbers.BYTES.get(v.get("src_data_format", 0), 1)
    counts = {s: [v.get(f"{s}_{d}size", 0) or 1 for d in "nchw"] for s in ("src", "dst")}
    filled = bool(v.get("fill_constant_en"))
    count = max(prod(counts["src"]) if not filled else 1, prod(counts["dst"]))
    if c.name == "DMA_general":
        count = v.get("src_cstride", 0) * max(v.get("dst_csize", 0), 1)
    at = {s: _is_ddr(_address(v, s), chip) for s in ("src", "dst")}
    moved = count * size
    reads, writes = (moved if at["src"] and not filled else 0), (moved if at["dst"] else 0)
    if reads and writes:
        rate = rates.within
    else:
        rate = rates.read if reads else rates.write if writes else rates.near
    pieces = 1 if c.name == "DMA_general" else _pieces(v, counts["src" if not filled else "dst"])
    work = max(rates.piece * pieces, moved / rate)
    return Cost(rates.start + work, rates.start, 0, reads + writes)


def _pieces(v: Values, counts: list[int]) -> int:
    """Contiguous pieces: lines of channels, or rows where these lie apart."""
    n, c, h, w = counts
    apart = any(
        v.get(f"{s}_hstride", w) not in (0, w) for s in ("src", "dst") if v.get("stride_enable")
    )
    return n * c * (h if apart else 1)
