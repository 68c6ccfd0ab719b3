"""What the KPU computes, in numpy: sums, batch norm, the curve of 16 segments, pooling.

All numbers are integers. With x and w bytes:

    acc = sum x*w + (arg_x * sum x >> shr_x) + (arg_w * sum w >> shr_w) + arg_add * in_channels
    v   = (acc * mul >> shift) + add                            batch norm, one per output channel
    y   = clamp(round((v - start) * mul / 2^shift) + bias, 0, 255)   by the last segment, start < v

`round` goes to the nearest, halves to even. Pixels outside of the map have the value `pad`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.k210.fields import Curve, Norm

SUM_BITS = 36  # of the sums, and of the results of batch norm


@dataclass(frozen=True, slots=True)
class Pool:
    """A pooling mode of the KPU."""

    kind: str  # none, max, mean, pick
    size: int = 1
    stride: int = 1
    column: int = 0  # of the pixel that "pick" keeps, in row 0 of the window


POOLS = {
    0: Pool("none"),
    1: Pool("max", 2, 2),
    2: Pool("mean", 2, 2),
    3: Pool("max", 4, 4),
    4: Pool("mean", 4, 4),
    5: Pool("pick", 2, 2),
    6: Pool("pick", 2, 2, 1),
    7: Pool("pick", 4, 4),
    8: Pool("mean", 2, 1),
    9: Pool("max", 2, 1),
}
POOL_NAMES = {
    0: "none",
    1: "max 2x2 /2",
    2: "mean 2x2 /2",
    3: "max 4x4 /4",
    4: "mean 4x4 /4",
    5: "top left of 2x2 /2",
    6: "top right of 2x2 /2",
    7: "top left of 4x4 /4",
    8: "mean 2x2 /1",
    9: "max 2x2 /1",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a sum that undo the zero points of x and w."""

    arg_x: int = 0
    shr_x: int = 0
    arg_w: int = 0
    shr_w: int = 0
    arg_add: int = 0

    @classmethod
    def of_zero_points(cls, x_zero: int, w_zero: int, taps: int) -> Terms:
        """The terms that make a sum of x*w one of (x - x_zero) * (w - w_zero)."""
        return cls(-w_zero, 0, -x_zero, 0, taps * w_zero * x_zero)


def sums(x: Array, w: Array, pad: int, terms: Terms, depthwise: bool) -> Array:
    """The sums of a map [C, H, W] with weights [O, I, K, K], as i64 [O, H, W].

    Products are summed up in f64, in which they are exact.
    """
    channels, height, width = x.shape
    k = w.shape[2]
    wide = x.astype(np.float64)
    if k == 3:
        wide = np.pad(wide, ((0, 0), (1, 1), (1, 1)), constant_values=pad)
    taps = [wide[:, i : i + height, j : j + width] for i in range(k) for j in range(k)]
    if depthwise:
        weights = w.reshape(channels, k * k, 1, 1).astype(np.float64)
        products = sum(t * weights[:, i] for i, t in enumerate(taps))
        of_x = sum(taps)
    else:
        columns = np.stack(taps, 1).reshape(channels * k * k, -1)
        flat = w.reshape(len(w), -1).astype(np.float64)
        products = (flat @ columns).reshape(len(w), height, width)
        of_x = columns.sum(0).reshape(height, width)
    deep = 1 if depthwise else channels
    of_w = w.reshape(len(w), -1).sum(1, dtype=np.int64)
    added = (terms.arg_w * of_w >> terms.shr_w) + terms.arg_add * deep
    from_x = terms.arg_x * np.asarray(of_x).astype(np.int64) >> terms.shr_x
    total: Array = np.asarray(products).astype(np.int64) + from_x + added[:, None, None]
    return total


def normalize(acc: Array, norm: Norm) -> Array:
    """Batch norm: a multiplication, a shift and an addition per channel [O, ...]."""
    mul, shift, add = (
        n.reshape(-1, *[1] * (acc.ndim - 1)) for n in (norm.mul, norm.shift, norm.add)
    )
    result: Array = (acc * mul >> shift) + add
    return result


def activate(v: Array, curve: Curve) -> Array:
    """The bytes that a curve makes of the results of batch norm."""
    last = np.zeros(v.shape, np.int64)
    for i in range(1, len(curve.start)):
        last = np.where(v > curve.start[i], i, last)
    product = (v - curve.start[last]) * curve.mul[last]
    shift = curve.shift[last]
    whole, rest = product >> shift, product & ((1 << shift) - 1)
    half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 1)
    # a negative product rounds down instead of up, as in Canaan's simulator
    away = np.where(product < 0, -1, 1)
    up = (rest > half) | ((rest == half) & (whole & 1 == 1))
    y = np.where(up & (shift > 0), whole + away, whole) + curve.bias[last]
    result: Array = np.clip(y, 0, 255).astype(np.uint8)
    return result


def pool(y: Array, mode: int) -> Array:
    """A map [C, H, W] of bytes after pooling."""
    how = POOLS[mode]
    if how.kind == "none":
        return y
    height, width = (d // how.stride for d in y.shape[1:])
    if how.kind == "pick":
        return np.ascontiguousarray(_every(y, 0, how.column, how.stride, height, width))
    edge = "edge" if how.kind == "mean" else "constant"
    wide = np.pad(y, ((0, 0), (0, how.size - 1), (0, how.size - 1)), edge)  # type: ignore[call-overload]
    taps = [
        _every(wide, i, j, how.stride, height, width)
        for i in range(how.size)
        for j in range(how.size)
    ]
    if how.kind == "max":
        return np.asarray(np.maximum.reduce(taps))
    total = np.asarray(np.sum(taps, 0, dtype=np.uint32))
    return np.asarray(total // (how.size * how.size), np.uint8)


def _every(y: Array, row: int, column: int, stride: int, height: int, width: int) -> Array:
    rows, columns = y[:, row::stride][:, :height], slice(column, None, stride)
    return rows[:, :, columns][:, :, :width]
