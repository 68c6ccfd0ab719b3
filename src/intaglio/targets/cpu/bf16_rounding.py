"""Weights in bf16 whose rounding errors cancel in every filter.

A filter of n rounded weights shifts its output by the sum of their errors times the mean of what it
sees, and activations are seldom zero in the mean. A few weights that lie almost between two bf16
numbers go the other way, so that this sum vanishes; each of them costs next to nothing.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from intaglio.ir import Array

BF16 = np.dtype(ml_dtypes.bfloat16)
MOST = 128  # changes in one filter: enough for thousands of weights


def balanced(w: Array) -> Array:
    """f32 -> bf16, each to one of its two neighbours, with sums along axis -2 kept."""
    if w.size == 0 or not np.isfinite(w).all():
        return w.astype(BF16)
    filters = np.ascontiguousarray(np.swapaxes(w, -1, -2), np.float32)
    flat = filters.reshape(-1, filters.shape[-1])
    made = _balance(flat, flat.astype(BF16))
    return np.ascontiguousarray(np.swapaxes(made.reshape(filters.shape), -1, -2))


def _balance(flat: Array, near: Array) -> Array:
    exact = near.astype(np.float32)
    error = exact - flat
    total = error.sum(axis=1, keepdims=True, dtype=np.float64)
    # bf16 patterns are ordered within a sign: the number beyond the exact one is one step away.
    bits = near.view(np.uint16)
    shrinks = (error > 0) == (flat > 0)  # the other neighbour is the smaller one
    other = np.where(shrinks, bits - 1, bits + 1).astype(np.uint16).view(BF16)
    change = other.astype(np.float32) - exact
    helps = (error != 0) & (change * total < 0) & np.isfinite(change)
    cost = np.where(helps, np.abs(change + 2 * error), np.inf)  # squared error gained, over change
    few = np.argpartition(cost, MOST, axis=1)[:, :MOST] if cost.shape[1] > MOST else None
    order = np.argsort(cost if few is None else np.take_along_axis(cost, few, 1), axis=1)
    order = order if few is None else np.take_along_axis(few, order, axis=1)
    gains = np.take_along_axis(np.where(helps, change, 0), order, axis=1)
    left = total + np.cumsum(gains, axis=1, dtype=np.float64)
    # As long as a change brings the sum nearer to zero; what remains is less than half of the next.
    before = np.concatenate([total, left[:, :-1]], axis=1)
    wanted = np.logical_and.accumulate(np.abs(left) < np.abs(before), axis=1)
    flips = np.zeros(flat.shape, bool)
    np.put_along_axis(flips, order, wanted, axis=1)
    return np.where(flips, other, near)
