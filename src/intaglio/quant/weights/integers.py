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
    """One scale for each output channel (`axis`) or one for all; symmetric unless `zeros`.

    Symmetric weights do not use the lowest integer. A single scale is clipped to the least squared
    error; per-channel scales are not, because clipping changes the sums of kernels.
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
        best = np.argmin([_squared_error(rows, *steps, dtype) for steps in tried], axis=0)
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
    """Scales and zero points that cover these ranges."""
    first, last = dtypes.limits(dtype)
    middle = (first + last + 1) // 2
    scale = ((hi - lo) / (last - first if zeros else 2 * (last - middle))).astype(np.float32)
    scale[~(scale > np.finfo(np.float32).tiny)] = 1.0
    if not zeros:
        return scale, np.full(len(lo), middle)
    return scale, np.clip(np.rint(first - lo / scale), first, last)


def _squared_error(rows: Array, scale: Array, zero: Array, dtype: str) -> Array:
    """The squared error of each row."""
    first, last = (end - zero[:, None] for end in dtypes.limits(dtype))
    step = scale[:, None]
    off = np.clip(np.rint(rows / step), first, last) * step - rows
    return np.square(off).sum(1, dtype=np.float64)  # type: ignore[no-any-return]


def to_integers(w: Array, scheme: TensorScheme) -> Array:
    """The integers of `w`, each to the nearest."""
    low, last = limits_of(scheme)
    shape = [-1 if i == scheme.axis else 1 for i in range(w.ndim)]
    scale, zero = (np.reshape(p, shape) for p in (scheme.scale, scheme.zero))
    stored: Array = np.rint(w / scale.astype(np.float32)) + zero
    return np.clip(stored, low, last).astype(dtypes.numpy_of(scheme.dtype))


def squant_integers(w: Array, scheme: TensorScheme) -> Array:
    """The integers of a convolution's `w`, rounded by SQuant."""
    low, last = limits_of(scheme)
    kernels = w.reshape(w.shape[0], w.shape[1], -1)
    scale, zero = (np.array(a, np.float32) for a in (scheme.scale, scheme.zero))
    result = squant(kernels, scale, low, last, zero)
    return result.astype(dtypes.numpy_of(scheme.dtype)).reshape(w.shape)


def limits_of(scheme: TensorScheme) -> tuple[int, int]:
    """The smallest and largest integer of weights; symmetric ones do not use the lowest."""
    first, last = dtypes.limits(scheme.dtype)
    middle = (first + last + 1) // 2
    return (first + 1 if all(z == middle for z in scheme.zero) else first), last


def from_integers(stored: Array, scheme: TensorScheme) -> Array:
    """The real values of stored integers."""
    scale, zero = broadcast_scheme(scheme, stored.ndim)
    result = stored.astype(np.float32)
    if zero.any():
        result -= zero
    result *= scale
    return result


def broadcast_scheme(scheme: TensorScheme, rank: int) -> tuple[Array, Array]:
    """Scale and zero point, shaped to broadcast against a tensor of this rank."""
    shape = [-1 if i == scheme.axis else 1 for i in range(rank)]
    scale, zero = np.array(scheme.scale, np.float32), np.array(scheme.zero, np.float32)
    return scale.reshape(shape), zero.reshape(shape)
