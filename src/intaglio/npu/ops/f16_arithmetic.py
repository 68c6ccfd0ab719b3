"""Arithmetic of f16 units: operands are f16, sums are f32 and are added up in one fixed order.

A product of two f16 is exact in f32, so it does not matter whether a unit rounds it before adding.
Sums start at 0 and run over the window's rows, then its columns, then the channels.

A function of f16 is a piecewise-linear table: its values at 1985 numbers of f16, every 32nd in
their order from -inf to inf (which stand for -65536 and 65536). Steps are therefore as fine as the
numbers are small. The table takes 8 KB.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Type
from intaglio.ops.windows import Ints, window_counts

TYPES = ("f16",)
INFINITY = 0x7C00  # bits of infinity: the rank of the largest number when f16 from 0 up are counted
STEP = 32  # numbers of f16 between two entries of a table
TABLE = Type("f32", (2 * INFINITY // STEP + 1,))


# ---- sums ----------------------------------------------------------------------------------------
def _taps(x: Array, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Callable[..., Array]:
    """A function of (i, j): the elements under tap (i, j) of every window, 0 in the padding."""
    counts = window_counts(x.shape[2:], kernel, stride, pad, dilation)
    padded = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])))

    def tap(i: int, j: int) -> Array:
        axes = zip((i, j), dilation, counts, stride, strict=True)
        rows, columns = (slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in axes)
        return padded[:, :, rows, columns]

    return tap


def conv(x: Array, w: Array, depthwise: bool, *, stride: Ints, pad: Ints, dilation: Ints) -> Array:
    """The f32 sums of a convolution, or of a depthwise one."""
    tap = _taps(x.astype(np.float32), w.shape[2:], stride, pad, dilation)
    weights = w.astype(np.float32)[..., None, None]
    total = np.zeros((x.shape[0], w.shape[0], *tap(0, 0).shape[2:]), np.float32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            seen = tap(i, j)
            if depthwise:
                total += seen * weights[:, 0, i, j]
                continue
            for c in range(x.shape[1]):
                total += seen[:, c : c + 1] * weights[:, c, i, j]
    return total


def matmul(a: Array, b: Array) -> Array:
    """[N, C, K] times [N, K, M] of f32, summed over k in ascending order."""
    total = np.zeros((*a.shape[:2], b.shape[2]), np.float32)
    for k in range(a.shape[2]):
        total += a[:, :, k : k + 1] * b[:, k : k + 1]
    return total


def window_sums(
    x: Array, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints
) -> tuple[Array, Array]:
    """Each window's sum (integers in 64 bits), and its number of elements outside the padding."""
    wide = x if x.dtype == np.float32 else x.astype(np.int64)
    tap = _taps(wide, kernel, stride, pad, dilation)
    inside = _taps(np.ones((1, 1, *x.shape[2:]), np.int64), kernel, stride, pad, dilation)
    total, count = np.zeros_like(tap(0, 0)), np.zeros_like(inside(0, 0))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            total, count = total + tap(i, j), count + inside(i, j)
    return total, count


def window_max(x: Array, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Array:
    """Each window's largest number as f32; -inf if it holds only padding or NaN."""
    tap = _taps(x.astype(np.float32), kernel, stride, pad, dilation)
    inside = _taps(np.ones((1, 1, *x.shape[2:]), bool), kernel, stride, pad, dilation)
    best = np.full_like(tap(0, 0), -np.inf)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            best = np.where(inside(i, j) & (tap(i, j) > best), tap(i, j), best)
    return best


# ---- results -------------------------------------------------------------------------------------
def epilogue(real: Array, dtype: str, least: float, most: float, table: Array | None) -> Array:
    """clamp(real, least, most) as f32 or f16, then the table's value; NaN stays NaN."""
    low, high = np.float32(least), np.float32(most)
    real = np.where(low > real, low, real)
    real = np.where(high < real, high, real)
    with np.errstate(over="ignore"):
        small = real.astype(dtypes.numpy_of(dtype))
        return small if table is None else interpolate(small, table).astype(np.float16)


def interpolate(x: Array, table: Array) -> Array:
    """The table's function at numbers of f16, in f32."""
    bits = x.view(np.uint16).astype(np.int32)
    magnitude = np.minimum(bits & 0x7FFF, INFINITY)
    rank = np.where(bits >> 15, -magnitude, magnitude) + INFINITY
    entry = np.minimum(rank // STEP, len(table) - 2)
    fraction = (rank - entry * STEP).astype(np.float32) * np.float32(1 / STEP)
    first, second = table[entry], table[entry + 1]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(
            np.where(np.isnan(x), np.float32(np.nan), first + (second - first) * fraction)
        )


def numbers_of_rank(ranks: Array) -> Array:
    """The numbers of f16 of these ranks in their order from -inf to inf, as f64."""
    magnitude = np.abs(ranks - INFINITY)
    real = magnitude.astype(np.uint16).view(np.float16).astype(np.float64)
    return np.asarray(np.where(magnitude == INFINITY, 65536.0, real) * np.sign(ranks - INFINITY))


def piecewise_table(function: Callable[[Array], Array]) -> tuple[Array, float]:
    """The table of a function of f64, and its largest error over all f16.

    The error's unit is the resolution of f16: 1/2048 of the value, and at least 2^-14.
    """
    with np.errstate(all="ignore"):
        table = function(numbers_of_rank(np.arange(0, 2 * INFINITY + 1, STEP))).astype(np.float32)
        every = numbers_of_rank(np.arange(1, 2 * INFINITY))
        exact = function(every)
        near = interpolate(every.astype(np.float16), table).astype(np.float64)
        overflows = np.abs(exact) > 65504  # no f16 is right there
        unit = np.maximum(np.abs(exact), 0.125) / 2048
        equal = (exact == near) | (np.isnan(exact) & np.isnan(near))
        error = np.where(overflows | equal, 0, np.abs(near - exact) / unit)
    return table, float(np.where(np.isnan(error), np.inf, error).max())
