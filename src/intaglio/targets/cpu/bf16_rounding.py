"""Round weights to bf16 so that the rounding errors of every filter cancel.

Rounding shifts a filter's output by the sum of its weight errors times the mean of its input, and
the mean of activations is seldom zero. A few weights that lie almost halfway between two bf16
numbers are rounded the other way, so that the sum vanishes. Each of them adds little error.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from intaglio.ir import Array

BF16 = np.dtype(ml_dtypes.bfloat16)
MAX_FLIPS = 128  # weights of a filter that are rounded the other way; enough for thousands


def balanced(w: Array) -> Array:
    """f32 to bf16, each weight to one of its two neighbours, keeping the sums along axis -2."""
    if w.size == 0 or not np.isfinite(w).all():
        return w.astype(BF16)
    filters = np.ascontiguousarray(np.swapaxes(w, -1, -2), np.float32)
    flat = filters.reshape(-1, filters.shape[-1])
    result = _balance(flat, flat.astype(BF16))
    return np.ascontiguousarray(np.swapaxes(result.reshape(filters.shape), -1, -2))


def _balance(flat: Array, near: Array) -> Array:
    exact = near.astype(np.float32)
    error = exact - flat
    total = error.sum(axis=1, keepdims=True, dtype=np.float64)
    # bf16 bit patterns are ordered within a sign: the other neighbour is one step away.
    bits = near.view(np.uint16)
    shrinks = (error > 0) == (flat > 0)  # the other neighbour is the smaller one
    other = np.where(shrinks, bits - 1, bits + 1).astype(np.uint16).view(BF16)
    change = other.astype(np.float32) - exact
    helps = (error != 0) & (change * total < 0) & np.isfinite(change)
    cost = np.where(helps, np.abs(change + 2 * error), np.inf)  # squared error gained, over change
    few = (
        np.argpartition(cost, MAX_FLIPS, axis=1)[:, :MAX_FLIPS]
        if cost.shape[1] > MAX_FLIPS
        else None
    )
    order = np.argsort(cost if few is None else np.take_along_axis(cost, few, 1), axis=1)
    order = order if few is None else np.take_along_axis(few, order, axis=1)
    gains = np.take_along_axis(np.where(helps, change, 0), order, axis=1)
    left = total + np.cumsum(gains, axis=1, dtype=np.float64)
    # Flip while the sum comes nearer to zero; the rest is less than half of the next flip.
    before = np.concatenate([total, left[:, :-1]], axis=1)
    wanted = np.logical_and.accumulate(np.abs(left) < np.abs(before), axis=1)
    flips = np.zeros(flat.shape, bool)
    np.put_along_axis(flips, order, wanted, axis=1)
    return np.where(flips, other, near)
