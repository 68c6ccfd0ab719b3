"""One weight matrix as integers: per column or per group, clipped where that lowers the error."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.quant.ranges.affine import CLIPS
from intaglio.quant.weights.rounding import fit_groups

TYPES = ("i8", "u8", "i4", "u4")
GROUPS = (16, 1024)  # least and greatest group along k; scales of smaller ones outweigh the saving
WEIGHTS_AT_ONCE = 1 << 20  # columns are quantised in pieces of so many weights


def quantize_matrix(
    w: Array, dtype: str = "i8", group: int = 0, symmetric: bool = True, gram: Array | None = None
) -> tuple[Array, Array, Array | None]:
    """A matrix [k, n] as integers, scales and zero points (or None) with the least error.

    There is one scale per column or, with a `group`, one for every `group` rows of a column. Each
    is clipped to the share in `CLIPS` with the least mean squared error. With `gram` [k, k], the
    mean of x xᵀ over input rows x, integers and scales are fitted to the product's output.
    """
    if dtype not in TYPES:
        raise BadInput(f"weights of type '{dtype}'; known are {', '.join(TYPES)}")
    if group and not GROUPS[0] <= group <= GROUPS[1]:
        raise BadInput(f"a group of {group} weights; {GROUPS[0]} to {GROUPS[1]}, or 0 for columns")
    k, n = w.shape
    deep = min(group, k) if group else k
    blocks = -(-k // deep)
    padded = np.zeros((blocks * deep, n), np.float32)
    padded[:k] = w
    if not np.isfinite(padded).all():
        raise BadInput("weights that are not finite cannot be quantised")
    tall = padded.reshape(blocks, deep, n)
    q, scale = np.empty(tall.shape, np.int16), np.empty((blocks, n), np.float32)
    zero = np.zeros((blocks, n), np.int16)
    step = max(1, WEIGHTS_AT_ONCE // (deep * blocks))
    power = np.zeros(blocks * deep, np.float32)  # mean square of each input
    power[:k] = 1 if gram is None else np.diagonal(gram)
    weigh = power.reshape(blocks, deep, 1)
    for c in range(0, n, step):
        at = slice(c, c + step)
        q[..., at], scale[:, at], zero[:, at] = _best(tall[..., at], weigh, dtype, symmetric)
    stored = dtypes.numpy_of(dtype)
    flat = q.reshape(blocks * deep, n)[:k]
    if gram is not None:
        fitted, found = fit_groups(
            w.T.astype(np.float64), scale.T, zero.T, *dtypes.limits(dtype), gram, deep
        )
        flat, scale = fitted.T, np.ascontiguousarray(found.T.astype(np.float32))
    flat = np.ascontiguousarray(flat).astype(np.int16).astype(stored)
    if not group:
        scale, zero = scale[0], zero[0]
    plain = symmetric and dtypes.TABLE[dtype].kind == "i"
    return flat, scale, None if plain else zero.astype(stored)


def _best(w: Array, power: Array, dtype: str, symmetric: bool) -> tuple[Array, Array, Array]:
    """Integers, scales and zero points of blocks [blocks, deep, n], clipped where that helps.

    Errors are weighted by the `power` [blocks, deep, 1] of the inputs.
    """
    low, high = dtypes.limits(dtype)
    if symmetric:
        middle = 0 if dtypes.TABLE[dtype].kind == "i" else (high + 1) // 2
        reach = np.abs(w).max(axis=1)
        bottom, top, steps = -reach, reach, 2 * (high - middle)
    else:
        middle, steps = 0, high - low
        bottom, top = np.minimum(w.min(axis=1), 0), np.maximum(w.max(axis=1), 0)
    best = scale = zero = None
    for share in CLIPS[dtypes.TABLE[dtype].bits]:
        s = (top - bottom) * share / np.float32(steps)
        s = np.where(s > 0, s, np.float32(1))
        z = np.full(s.shape, middle) if symmetric else np.rint(low - bottom * share / s)
        z = np.clip(z, low, high)
        back = np.clip(np.rint(w / s[:, None]) + z[:, None], low, high) - z[:, None]
        error = (np.square(back * s[:, None] - w) * power).sum(axis=1, dtype=np.float64)
        if best is None or scale is None or zero is None:
            best, scale, zero = error, s, z
            continue
        less = error < best
        best, scale, zero = (
            np.minimum(error, best),
            np.where(less, s, scale),
            np.where(less, z, zero),
        )
    assert scale is not None
    assert zero is not None
    q = np.clip(np.rint(w / scale[:, None]) + zero[:, None], low, high)
    return q.astype(np.int16), scale.astype(np.float32), zero.astype(np.int16)
