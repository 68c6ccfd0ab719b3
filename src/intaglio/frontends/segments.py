"""Segment reductions and one-hot rows as TensorFlow and TFLite define them: negative ids count for
nothing. Our own operations, like ONNX's, count negative indices from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Value, constant

MAX_ELEMENTS = 1 << 26  # of the result of a segment reduction
REDUCTIONS = {"Sum": "add", "Prod": "mul", "Max": "max", "Min": "min"}  # by their TensorFlow names


def replaced_negative(ids: Value, by: int) -> Value:
    """`ids` as i64 with negative ids replaced by `by`."""
    wide = ops.cast(ids, dtype="i64")
    result: Value = ops.where(constant(by, dtype="i64"), wide, ops.less(wide, constant(0)))
    return result


def one_hot_rows(ids: Value, on: Value, off: Value, depth: int, axis: int) -> Value:
    """One-hot rows; an id outside of [0, depth) gives a row of off values."""
    pair = ops.concat(*(ops.reshape(v, shape=(1,)) for v in (off, on)), axis=0)
    result: Value = ops.one_hot(replaced_negative(ids, depth), pair, depth=depth, axis=axis)
    return result


def reduce_segments(x: Value, ids: Value, count: int, how: str) -> Value:
    """Slices of x with the same id reduced to one; those with negative ids are dropped.

    `how` is a reduction of scatter_nd. Dropped slices go to an additional segment, which is cut
    off.
    """
    shape = (count + 1, *x.shape[ids.type.rank :])
    if count < 0 or int(np.prod(shape, dtype=np.float64)) > MAX_ELEMENTS:
        raise BadInput(f"{count} segments; at most {MAX_ELEMENTS} elements are supported")
    empty = constant(np.full(shape, _start(x.dtype, how), dtypes.numpy_of(x.dtype)))
    at = ops.reshape(replaced_negative(ids, count), shape=(*ids.shape, 1))
    result: Value = ops.part(ops.scatter_nd(empty, at, x, reduction=how), 0, count, axis=0)
    return result


def _start(dtype: str, how: str) -> Any:
    """The value of a segment without slices."""
    if how in ("add", "mul"):
        return 0 if how == "add" else 1
    if dtypes.is_integer(dtype):
        return dtypes.limits(dtype)[0 if how == "max" else 1]
    info = np.finfo(dtypes.numpy_of(dtype))
    return info.min if how == "max" else info.max


def sum_sorted_segments(x: Value, ids: Value, known: Array) -> Value:
    """Slices of x with the same id summed; the constant ids rise from 0 or above."""
    if known.size and (known.min() < 0 or (np.diff(known) < 0).any()):
        raise BadInput(f"segment ids {known.tolist()[:8]} are negative or not sorted")
    return reduce_segments(x, ids, int(known.max(initial=-1)) + 1, "add")
