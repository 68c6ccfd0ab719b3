"""How long a stream of commands takes: cycles of each command, and both engines beside each other.

The cycles of the TIU are those of tpu-mlir's cycle model (CV18xx_profiling.cpp). The time of a
transfer is the longer of two: 64-byte lines of DDR at its bandwidth, and rows of 16 bytes of local
memory, one for each cycle. Every contiguous piece of a transfer counts; tpu-mlir's model counts
only the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from intaglio.npu.chips.cv18xx.commands import Chip, Command
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU

LINE, ROW = 64, 16  # bytes of an access to DDR, to the memory of a lane
MOST_PIECES = 1 << 20  # of a transfer that are counted one by one
NEAR = 16  # pieces this near to each other are loaded as one
SYNCHRONIZE, COMMAND = 41, 26  # cycles before the first result: products, element-wise
AFTER_CHANNELS, AFTER = 31, 12  # cycles after the last one: with records per channel, without
LEAST = 16  # cycles of a step with records per channel
# cycles of a step by tsk_eu_typ: mul mac add sub max min shift and or xor copy ge
ELTWISE = (5.5, 12.0, 8.0, 8.0, 6.0, 6.0, 5.0, 6.0, 6.0, 6.0, 5.0, 6.0)
CONSTANT_LESS = 0.5  # of add and sub with a constant
LOOKUP = 12
Values = Mapping[str, int]


@dataclass(slots=True)
class Times:
    """Seconds of a stream."""

    tiu: float = 0.0  # the sum of its commands
    tdma: float = 0.0
    total: float = 0.0  # with both engines beside each other and their waits
    ddr_bytes: int = 0

    @property
    def overlap(self) -> float:
        """The share of the shorter engine's time that the other one hides."""
        shorter = min(self.tiu, self.tdma)
        return (self.tiu + self.tdma - self.total) / shorter if shorter else 0.0


def measure(commands: list[Command], chip: Chip, bandwidth: float) -> Times:
    """Times of a stream; `bandwidth`: bytes of DDR in a second."""
    times, ends = Times(), {"tiu": [0.0], "tdma": [0.0]}
    for c in commands:
        table, other = (TIU, "tdma") if c.name == "tiu" else (TDMA, "tiu")
        values = table.resets | c.fields
        if c.name == "tiu":
            seconds = tiu_cycles(values, chip) / chip.clock
            times.tiu += seconds
        else:
            moved = ddr_bytes(values)
            seconds = max(moved / bandwidth, local_cycles(values) / chip.clock)
            times.tdma += seconds
            times.ddr_bytes += moved
        start = max(ends[c.name][-1], ends[other][min(c.depends, len(ends[other]) - 1)])
        ends[c.name].append(start + seconds)
    times.total = max(ends["tiu"][-1], ends["tdma"][-1])
    return times


def tiu_cycles(v: Values, chip: Chip) -> float:
    """Cycles of one command of the TIU."""
    wide = not v["opt_res0_seg"]  # results of 16 bits halve the units
    units = chip.units // 2 if wide else chip.units
    blocks = v["res0_n"] * -(-(v["res0_addr"] // chip.lane_bytes + v["res0_c"]) // chip.lanes)
    steps = blocks * -(-v["res0_h"] * v["res0_w"] // units)
    after = AFTER_CHANNELS if v["opt_chl_quan"] else AFTER
    bias = 2 if v["tsk_opd_num"] == 3 and not v["opt_chl_quan"] else 0
    rounding = 2 if wide else 1 if v["opt_chl_quan"] else 4
    sums = 4 * (v["ps32_md"] & 1) + 2 * (v["ps32_md"] & 2)
    task = v["tsk_typ"]
    if task == 0:
        loop = _conv_loop(v, chip, wide) + bias + rounding + sums
        if v["opt_chl_quan"] and not wide:
            loop = max(loop, LEAST)
        return SYNCHRONIZE + steps * loop + after
    if task == 1:
        return _window(v, chip, steps, bias, rounding, after)
    if task == 2:
        steps = v["res0_n"] * -(-v["res0_c"] // chip.lanes) * -(-v["res0_w"] // units)
        loop = v["opd1_n"] + bias + rounding + sums + 2 * v["opt_res_add"]
        return SYNCHRONIZE + steps * loop + after
    kind = v["tsk_eu_typ"]
    if kind >= LOOKUP:
        return COMMAND + steps * (1 + v["opd1_h"] + 2) + after
    each = ELTWISE[kind] - (CONSTANT_LESS if kind in (2, 3) and v["opt_opd1_const"] else 0)
    return COMMAND + int(steps * each * (1 if v["res0_c_str"] % ROW == 0 else 30 / 16)) + after


def _spread(v: Values, pixels: int) -> float:
    """Bytes of a row that some neighbouring outputs read, from the first to the last."""
    return (pixels - 1) * v["conv_op_x_str"] / (v["conv_opd0_x_ins0"] + 1) + 1


def _conv_loop(v: Values, chip: Chip, wide: bool) -> int:
    taps, inputs = v["opd1_h"] * v["opd1_w"], v["opd0_c"]
    at_once = 2 if v["double_conv"] and not wide else 1
    fetches = -int(-_spread(v, chip.units) // chip.units) + 1
    return taps * -(-inputs // at_once) + taps * max(fetches - inputs, 0)


def _window(v: Values, chip: Chip, steps: int, bias: int, rounding: int, after: int) -> float:
    """Cycles of a pool or a depthwise convolution."""
    taps, units = v["opd1_h"] * v["opd1_w"], chip.units
    if v["tsk_eu_typ"] == 2:
        pixels = max(min(v["res0_w"], units), 1)
        reads = _spread(v, pixels) / units * (units / pixels) + (units - 1) / units
        loop = int(taps * (1 if taps == 1 else reads))
        if v["opt_chl_quan"]:
            loop = max(loop, LEAST)
        return steps * (loop + bias + 3) + after
    spread = _spread(v, units)
    reads = spread / units + min(spread - 1, units - 1) / units
    if v["res0_h"] * v["res0_w"] == 1:
        reads = 1
    if v["tsk_eu_typ"] == 1:
        return steps * (int(taps * max(reads, 1)) + rounding) + after
    return int(steps * (taps * max(reads, 1) + 2))


def local_cycles(v: Values) -> int:
    """Cycles of local memory for one transfer."""
    size = 2 if v["dst_fmt"] == 2 else 1
    if v["trans_fmt"]:
        return -(-v["src_n_stride"] // ROW)
    n, c, h, w = v["src_n"], v["dst_c"], v["dst_h"], v["dst_w"] * size
    if v["dst_h_stride"] == w:
        return n * c * -(-h * w // ROW)
    return n * c * h * -(-w // ROW)


def ddr_bytes(v: Values) -> int:
    """Bytes of DDR that one transfer touches, in whole lines; 0 within local memory."""
    if v["trans_dir"] == 3 or (v["spec_func"] == 4 and v["trans_dir"] == 0):
        return 0
    found = 0
    if v["trans_dir"] in (0, 2):
        found += _side(v, "src", NEAR)
    if v["trans_dir"] in (1, 2):
        found += _side(v, "dst", 0)
    return found


def _side(v: Values, side: str, near: int) -> int:
    """Lines of one side of a transfer, each contiguous piece for itself."""
    size = 2 if v[f"{side}_fmt"] == 2 else 1
    start = v[f"{side}_base_addr_high"] << 32 | v[f"{side}_base_addr_low"]
    if v["trans_fmt"]:
        return _lines(np.array([start]), v["src_n_stride"])
    n, c, h, w = v["src_n"], v[f"{side}_c"], v[f"{side}_h"], v[f"{side}_w"] * size
    c_stride = v[f"{side}_c_stride_high"] << 16 | v[f"{side}_c_stride_low"]
    if v["spec_func"] == 1 and side == "dst" and v["transpose_md"] == 0:
        n = v["src_c"]
    if v["sys_dtype"]:
        n, h = 1, 1
    if v["compress_en"]:  # what is stored is shorter; its size is not in the command
        return _lines(np.array([start]), n * c * h * w)
    places = [(n, v[f"{side}_n_stride"]), (c, c_stride), (h, v[f"{side}_h_stride"])]
    length = w
    while len(places) > 1 and 0 <= places[-1][1] - length <= near:
        count, stride = places.pop()
        length += (count - 1) * stride
    count = prod(n for n, _ in places)
    if count > MOST_PIECES or all(stride % LINE == 0 for n, stride in places if n > 1):
        return count * _lines(np.array([start]), length)
    at = np.array([start], np.int64)
    for n, stride in places:
        at = (at[:, None] + np.arange(n, dtype=np.int64) * stride).reshape(-1)
    return _lines(at, length)


def _lines(starts: np.ndarray[tuple[int], np.dtype[np.int64]], length: int) -> int:
    ends = (starts + length + LINE - 1) // LINE
    return int((ends - starts // LINE).sum()) * LINE
