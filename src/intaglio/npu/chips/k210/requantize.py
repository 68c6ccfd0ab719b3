"""From scales, zero points, biases and activation functions to the KPU's batch norm and curve.

A result's real value, in units of its last place, is (acc + bias) * scale. Batch norm computes it
with `fraction` more bits; the curve takes them away again, adds the zero point and clamps. A table
of an activation function becomes a curve of at most 15 lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.npu.chips.k210.arithmetic import SUM_BITS
from intaglio.npu.chips.k210.fields import MAX_CURVE_SHIFT, NORM, SEGMENT, SEGMENTS, Curve, Norm

MUL_BITS = 21  # of the multipliers, without sign; nncase uses as many
MAX_SHIFT = NORM["shift"].limits[1]
SLOPE_BITS = 14  # of a curve's multipliers, without sign
LOWEST, HIGHEST = SEGMENT["start"].limits


@dataclass(frozen=True, slots=True)
class Function:
    """What becomes of a real result r: bytes round(r) + zero within bounds, then a table of them.

    `table[i]` is the byte for the number `base + i` before it; None: there is no table.
    """

    zero: int
    low: int = 0
    high: int = 255
    table: Array | None = None
    base: int = 0


def requantize(scale: Array, bias: Array, most: Array, function: Function) -> tuple[Norm, Curve]:
    """Batch norm and curve of a layer, with one scale, bias and largest |sum| per channel.

    `scale` turns sums into units of the last place; `bias` is added to sums.
    """
    scale, bias = np.asarray(scale, np.float64), np.asarray(bias, np.float64)
    if not np.isfinite(scale).all() or not scale.all():
        raise BadInput("k210: a scale is 0, infinite or not a number")
    sign, scale = np.sign(scale), np.abs(scale)
    fraction = _fraction(scale, bias, np.asarray(most, np.float64), function)
    fine = scale * 2.0**fraction
    exponent = np.floor(np.log2(fine)).astype(int) + 1
    shift = np.clip(MUL_BITS - exponent, 0, MAX_SHIFT)
    mul = np.rint(fine * 2.0**shift)
    over = mul >= 2.0**MUL_BITS  # rounded up to the next power of two
    shift = np.where(over & (shift > 0), shift - 1, shift)
    mul = sign * np.minimum(np.rint(fine * 2.0**shift), 2.0**MUL_BITS - 1)
    add = np.rint(bias * sign * fine)
    norm = Norm(mul.astype(np.int64), shift.astype(np.int64), add.astype(np.int64))
    return norm, _curve(function, fraction)


def _fraction(scale: Array, bias: Array, most: Array, function: Function) -> int:
    """The most bits after the point with which all numbers fit their fields."""
    span = 256 if function.table is None else len(function.table) + abs(function.base)
    largest = max(float((scale * (most + np.abs(bias))).max()), float(span))
    room = [
        SUM_BITS - 2 - math.log2(largest),
        31 - math.log2(max(float((scale * np.abs(bias)).max()), 1e-9)) - 1e-6,
        MUL_BITS - math.log2(float(scale.max())) - 1e-6,
        MAX_CURVE_SHIFT - SLOPE_BITS,
    ]
    fraction = math.floor(min(room))
    if fraction < 0:
        raise BadInput(
            f"k210: results reach {largest:g} units of their last place; "
            f"sums of {SUM_BITS} bits do not hold them: quantise with a larger output scale"
        )
    return fraction


def _curve(function: Function, fraction: int) -> Curve:
    if function.table is None:
        return _line(function, fraction)
    return _fitted(function, fraction)


def _line(function: Function, fraction: int) -> Curve:
    """A line of slope one between two bounds."""
    low, high, zero = function.low, function.high, function.zero
    rows = [(LOWEST, 0.0, low), ((low - zero) << fraction, 1.0, low)]
    if high < 255:
        rows.append(((high - zero) << fraction, 0.0, high))
    return _segments(rows, fraction)


def _segments(rows: list[tuple[int, float, int]], fraction: int) -> Curve:
    """A curve of (start, slope, bias); slopes are bytes per unit before the fraction."""
    start, mul, shift, bias = ([0] * SEGMENTS for _ in range(4))
    for i in range(SEGMENTS):
        if i >= len(rows):  # never reached
            start[i], bias[i] = HIGHEST, rows[-1][2]
            continue
        start[i], slope, bias[i] = rows[i]
        if slope:
            bits = SLOPE_BITS - 1 - math.floor(math.log2(abs(slope)))
            bits = min(bits, MAX_CURVE_SHIFT - fraction)
            mul[i], shift[i] = round(slope * 2.0**bits), bits + fraction
            if shift[i] < 0:
                raise BadInput(f"k210: a curve has slope {slope:g}, which is too steep")
    return Curve(*(np.array(column, np.int64) for column in (start, mul, shift, bias)))


def _fitted(function: Function, fraction: int) -> Curve:
    """The curve of a table: each line starts at one of its points; least squares choose which."""
    table = np.asarray(function.table, np.float64)
    first = np.clip(function.low - function.base, 0, len(table) - 1)
    last = np.clip(function.high - function.base, 0, len(table) - 1)
    table = table[first : last + 1]
    origin = int(first) + function.base - function.zero  # the real result at the first point
    rows = [(LOWEST, 0.0, int(table[0]))]
    for begin, slope in _lines(table, SEGMENTS - 2):
        rows.append(((origin + begin) << fraction, slope, int(table[begin])))
    rows.append(((origin + len(table) - 1) << fraction, 0.0, int(table[-1])))
    return _segments(rows, fraction)


def _lines(table: Array, most: int) -> list[tuple[int, float]]:
    """At most so many lines (first point, slope) with the least squared error."""
    n = len(table)
    if n < 2:
        return []
    cost, slopes = np.full((n, n), np.inf), np.zeros((n, n))  # of a line from i, used up to j
    for i in range(n - 1):
        x, y = np.arange(1, n - i, dtype=np.float64), table[i + 1 :] - table[i]
        xy, xx, yy = np.cumsum(x * y), np.cumsum(x * x), np.cumsum(y * y)
        slopes[i, i + 1 :] = xy / xx
        cost[i, i + 1 :] = np.maximum(yy - xy * xy / xx, 0)
    best, origin = cost[0].copy(), [np.zeros(n, int)]
    for _ in range(most - 1):
        step = best[:, None] + cost
        step[0] = cost[0]
        origin.append(np.argmin(step, 0))
        best = step[origin[-1], np.arange(n)]
    points, end = [], n - 1
    for came in reversed(origin):
        begin = int(came[end])
        points.append((begin, float(slopes[begin, end])))
        if begin == 0:
            break
        end = begin
    return points[::-1]
