"""Weights to integers and back: the scale of every channel, and simple rounding."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.affine import CLIPS
from intaglio.quant.weights.rounding import squant

Integers = tuple[Array, TensorScheme]  # the stored integers, and their scale and zero point
WHOLE = CLIPS[8][:1]  # no clipping


def weight_scheme(
    w: Array, axis: int | None, dtype: str = "i8", zeros: bool = False
) -> TensorScheme:
    """One scale for each output channel (or one for all), symmetric unless `zeros` are wanted.

    The lowest integer is not used where 0 is in the middle. With one scale for all, as much is cut
    off as loses least in squares; channels of their own lose by it what their kernels sum to.
    """
    shares = CLIPS.get(dtypes.TABLE[dtype].bits, WHOLE) if axis is None else WHOLE
    rows = w.reshape(1, -1) if axis is None else np.moveaxis(w, axis, 0).reshape(w.shape[axis], -1)
    lo, hi = rows.min(1).astype(np.float64), rows.max(1).astype(np.float64)
    lo, hi = np.minimum(lo, 0), np.maximum(hi, 0)
    if not zeros:
        hi = np.maximum(-lo, hi)
        lo = -hi
    tried = [_steps(lo * share, hi * share, dtype, zeros) for share in map(float, shares)]
    best = np.zeros(len(lo), int)
    if len(tried) > 1:
        best = np.argmin([_lost(rows, *steps, dtype) for steps in tried], axis=0)
    scale, at = (np.stack(e)[best, range(len(lo))] for e in zip(*tried, strict=True))
    cut = shares[best]
    return TensorScheme(
        dtype,
        tuple(map(float, scale)),
        tuple(map(int, at)),
        axis,
        lo=float((lo * cut).min()),
        hi=float((hi * cut).max()),
    )


def _steps(lo: Array, hi: Array, dtype: str, zeros: bool) -> tuple[Array, Array]:
    """Scales and zeros that just hold these ranges."""
    first, last = dtypes.limits(dtype)
    middle = (first + last + 1) // 2
    scale = ((hi - lo) / (last - first if zeros else 2 * (last - middle))).astype(np.float32)
    scale[~(scale > np.finfo(np.float32).tiny)] = 1.0
    if not zeros:
        return scale, np.full(len(lo), middle)
    return scale, np.clip(np.rint(first - lo / scale), first, last)


def _lost(rows: Array, scale: Array, zero: Array, dtype: str) -> Array:
    """The squared error of each row."""
    first, last = (end - zero[:, None] for end in dtypes.limits(dtype))
    step = scale[:, None]
    off = np.clip(np.rint(rows / step), first, last) * step - rows
    return np.square(off).sum(1, dtype=np.float64)  # type: ignore[no-any-return]


def to_integers(w: Array, scheme: TensorScheme) -> Array:
    """The numbers that are stored for `w`, each to the nearest."""
    low, last = limits_of(scheme)
    shape = [-1 if i == scheme.axis else 1 for i in range(w.ndim)]
    scale, zero = (np.reshape(p, shape) for p in (scheme.scale, scheme.zero))
    stored: Array = np.rint(w / scale.astype(np.float32)) + zero
    return np.clip(stored, low, last).astype(dtypes.numpy_of(scheme.dtype))


def by_sums(w: Array, scheme: TensorScheme) -> Array:
    """The numbers that are stored for a convolution's `w`, so that the errors of kernels cancel."""
    low, last = limits_of(scheme)
    kernels = w.reshape(w.shape[0], w.shape[1], -1)
    scale, zero = (np.array(a, np.float32) for a in (scheme.scale, scheme.zero))
    made = squant(kernels, scale, low, last, zero)
    return made.astype(dtypes.numpy_of(scheme.dtype)).reshape(w.shape)


def limits_of(scheme: TensorScheme) -> tuple[int, int]:
    """The smallest and largest number that weights are stored in; the lowest is not used."""
    first, last = dtypes.limits(scheme.dtype)
    middle = (first + last + 1) // 2
    return (first + 1 if all(z == middle for z in scheme.zero) else first), last


def from_integers(stored: Array, scheme: TensorScheme) -> Array:
    """What stored numbers mean."""
    scale, zero = spread_scheme(scheme, stored.ndim)
    made = stored.astype(np.float32)
    if zero.any():
        made -= zero
    made *= scale
    return made


def spread_scheme(scheme: TensorScheme, rank: int) -> tuple[Array, Array]:
    """Scale and zero, shaped to broadcast against a tensor of this rank."""
    shape = [-1 if i == scheme.axis else 1 for i in range(rank)]
    scale, zero = np.array(scheme.scale, np.float32), np.array(scheme.zero, np.float32)
    return scale.reshape(shape), zero.reshape(shape)
