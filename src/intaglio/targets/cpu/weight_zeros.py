"""Weights minus their zero points, which may need nine bits, for kernels that multiply by i8.

Weights of u8 have one zero point for a whole tensor, and only a few of them lie more than 127 away
from it. So a weight is the sum of two parts of i8, of which the second is nearly always zero.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

LOWEST, HIGHEST = -256, 254  # sums of two numbers of i8


def differences(w: Array, zeros: Array | None) -> Array:
    """Weights [m, ..] minus their zero points, one for all or one per row: i8 if they fit, or
    i16.
    """
    if w.dtype == np.int8 and (zeros is None or not zeros.any()):
        return w
    if zeros is not None and w.dtype == np.uint8 and (zeros == 128).all():
        return (w ^ np.uint8(128)).view(np.int8)
    wide = w.astype(np.int16)
    if zeros is not None:
        wide -= zeros.astype(np.int16).reshape(-1, *[1] * (w.ndim - 1))
    narrow = wide.astype(np.int8)
    return narrow if np.array_equal(narrow, wide) else wide


def byte_parts(w: Array) -> tuple[Array, Array | None]:
    """Weights as two arrays of i8 whose sum they are; no second one if the first has them all."""
    if w.dtype == np.int8:
        return w, None
    first = np.clip(w, -128, 127).astype(np.int8)
    rest = w - first
    if rest.size and not -128 <= rest.min() <= rest.max() <= 127:
        raise ValueError(f"weights exceed {LOWEST} to {HIGHEST}: {w.min()} to {w.max()}")
    return first, rest.astype(np.int8) if rest.any() else None


def with_zeros(w: Array) -> tuple[Array, Array]:
    """Weights [m, ..] as i8 and one zero point per row, which is subtracted from them."""
    rows = w.reshape(len(w), -1).astype(np.int16)
    low, high = (f(rows, axis=1, initial=0) for f in (np.min, np.max))
    zeros = np.where(low < -128, -128 - low, np.minimum(127 - high, 0))
    return (rows + zeros[:, None]).astype(np.int8).reshape(w.shape), zeros.astype(np.int64)
