"""TopK whose k is known only at run time; the extent of the operand bounds it."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.frontends.value_bounds import upper_bound
from intaglio.ir import Value, constant
from intaglio.ops.cast import cast
from intaglio.ops.dynamic_shape import range_, shape_of, slice_to
from intaglio.ops.index import scatter_nd, topk
from intaglio.ops.shape import reshape, slice_, transpose


def topk_at_run_time(x: Value, k: Value, axis: int, **how: Any) -> list[Value]:
    """As many values as may be asked for, at most all; then the first k of them."""
    bound = upper_bound(k)
    most = x.shape[axis] if bound is None else max(min(bound, x.shape[axis]), 0)
    if axis in x.type.dynamic:
        x = _filled_to_bound(x, axis, largest=how["largest"])
    zero, one = (constant(np.array([v], np.int64)) for v in (0, 1))
    stop = reshape(cast(k, dtype="i64"), shape=(1,))
    return [
        slice_to(v, zero, stop, one, axes=(axis,), bound=v.shape)
        for v in topk(x, k=most, axis=axis, **how)
    ]


def _filled_to_bound(x: Value, axis: int, *, largest: bool) -> Value:
    """x with its run-time extent filled up to the bound by values that come last."""
    perm = (axis, *(i for i in range(x.type.rank) if i != axis))
    rows: Value = transpose(x, perm=perm)
    if dtypes.is_float(x.dtype):
        last = -np.inf if largest else np.inf
    else:
        last = dtypes.limits(x.dtype)[0 if largest else 1]
    whole = constant(np.full(rows.shape, last, dtypes.numpy_of(x.dtype)))
    scalars = (
        constant(0),
        reshape(slice_(shape_of(rows), start=(0,), stop=(1,), step=(1,)), shape=()),
    )
    places = range_(*scalars, constant(1), bound=(x.shape[axis],))
    filled = scatter_nd(whole, reshape(places, shape=(-1, 1)), rows)
    made: Value = transpose(filled, perm=tuple(perm.index(i) for i in range(x.type.rank)))
    return made
