"""Real numbers on NPU units: f16 in images and weights, sums in f32, in one order everywhere.

A product of two f16 is exact in f32, so that it does not matter whether a unit rounds it before it
adds it up. Sums begin with 0 and go over rows of the window, then columns, then channels.

A curve is a function of f16 by its values at 1985 of them, 32 apart in their order from -inf to
inf (which stand for -65536 and 65536); in between it is a straight line. So steps are as fine as
numbers are small, and the table takes 8 KB.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Type
from intaglio.ops.windows import Ints, window_counts

TYPES = ("f16",)
HIGHEST = 0x7C00  # the number of infinity, when those of f16 from 0 up are counted
STEP = 32  # numbers of f16 from one entry to the next
CURVE = Type("f32", (2 * HIGHEST // STEP + 1,))


# ---- sums ----------------------------------------------------------------------------------------
def _taps(x: Array, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Callable[..., Array]:
    """What tap (i, j) of the windows sees of images; 0 outside."""
    counts = window_counts(x.shape[2:], kernel, stride, pad, dilation)
    around = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])))

    def tap(i: int, j: int) -> Array:
        axes = zip((i, j), dilation, counts, stride, strict=True)
        rows, columns = (slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in axes)
        return around[:, :, rows, columns]

    return tap


def sums(x: Array, w: Array, deep: bool, *, stride: Ints, pad: Ints, dilation: Ints) -> Array:
    """The sums of a convolution or, where it is not `deep`, of one of each channel by itself."""
    tap = _taps(x.astype(np.float32), w.shape[2:], stride, pad, dilation)
    weights = w.astype(np.float32)[..., None, None]
    total = np.zeros((x.shape[0], w.shape[0], *tap(0, 0).shape[2:]), np.float32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            seen = tap(i, j)
            if not deep:
                total += seen * weights[:, 0, i, j]
                continue
            for c in range(x.shape[1]):
                total += seen[:, c : c + 1] * weights[:, c, i, j]
    return total


def matmul(a: Array, b: Array) -> Array:
    """[N, C, K] times [N, K, M] of f32, one k after the other."""
    total = np.zeros((*a.shape[:2], b.shape[2]), np.float32)
    for k in range(a.shape[2]):
        total += a[:, :, k : k + 1] * b[:, k : k + 1]
    return total


def window_sums(
    x: Array, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints
) -> tuple[Array, Array]:
    """The sum of what each window sees, of integers in 64 bits, and how many numbers it sees."""
    wide = x if x.dtype == np.float32 else x.astype(np.int64)
    tap = _taps(wide, kernel, stride, pad, dilation)
    here = _taps(np.ones((1, 1, *x.shape[2:]), np.int64), kernel, stride, pad, dilation)
    total, count = np.zeros_like(tap(0, 0)), np.zeros_like(here(0, 0))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            total, count = total + tap(i, j), count + here(i, j)
    return total, count


def window_max(x: Array, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Array:
    """The largest that each window sees, as f32; -inf where it sees nothing, or NaN only."""
    tap = _taps(x.astype(np.float32), kernel, stride, pad, dilation)
    here = _taps(np.ones((1, 1, *x.shape[2:]), bool), kernel, stride, pad, dilation)
    best = np.full_like(tap(0, 0), -np.inf)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            best = np.where(here(i, j) & (tap(i, j) > best), tap(i, j), best)
    return best


# ---- results -------------------------------------------------------------------------------------
def ended(real: Array, dtype: str, least: float, most: float, table: Array | None) -> Array:
    """clamp(real, least, most) as f32 or f16, of which a table makes another; NaN stays NaN."""
    low, high = np.float32(least), np.float32(most)
    real = np.where(low > real, low, real)
    real = np.where(high < real, high, real)
    with np.errstate(over="ignore"):
        small = real.astype(dtypes.numpy_of(dtype))
        return small if table is None else curved(small, table).astype(np.float16)


def curved(x: Array, table: Array) -> Array:
    """The curve at numbers of f16, in f32."""
    bits = x.view(np.uint16).astype(np.int32)
    size = np.minimum(bits & 0x7FFF, HIGHEST)
    place = np.where(bits >> 15, -size, size) + HIGHEST
    at = np.minimum(place // STEP, len(table) - 2)
    part = (place - at * STEP).astype(np.float32) * np.float32(1 / STEP)
    first, second = table[at], table[at + 1]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(
            np.where(np.isnan(x), np.float32(np.nan), first + (second - first) * part)
        )


def points(places: Array) -> Array:
    """The numbers of f16 at these places in their order, as f64."""
    size = np.abs(places - HIGHEST)
    real = size.astype(np.uint16).view(np.float16).astype(np.float64)
    return np.asarray(np.where(size == HIGHEST, 65536.0, real) * np.sign(places - HIGHEST))


def curve(function: Callable[[Array], Array]) -> tuple[Array, float]:
    """The table of a function of f64, and by how much it misses at most.

    That is counted in units of what f16 can tell apart: 1 is a part in 2048 of the value, or 2^-14.
    """
    with np.errstate(all="ignore"):
        table = function(points(np.arange(0, 2 * HIGHEST + 1, STEP))).astype(np.float32)
        every = points(np.arange(1, 2 * HIGHEST))
        exact, near = function(every), curved(every.astype(np.float16), table).astype(np.float64)
        outside = np.abs(exact) > 65504  # no f16 is right there
        unit = np.maximum(np.abs(exact), 0.125) / 2048
        equal = (exact == near) | (np.isnan(exact) & np.isnan(near))
        missed = np.where(outside | equal, 0, np.abs(near - exact) / unit)
    return table, float(np.where(np.isnan(missed), np.inf, missed).max())
