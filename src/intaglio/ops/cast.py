"""Casts between element types, by value and by bit pattern."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.precision import to_dtype
from intaglio.ops.registry import op


def _converted(x: Value, *, dtype: str, saturate: bool = True) -> Type:
    return x.type.but(dtype=dtype, quant=None)


@op(_converted, elementwise=True)
def cast(x: Array, *, dtype: str, saturate: bool = True) -> Array:
    return to_dtype(x, dtype, bool(saturate))


def _reinterpreted(x: Value, *, dtype: str) -> Type:
    if dtypes.itemsize(dtype) != dtypes.itemsize(x.dtype):
        raise BadInput(
            f"bitcast from {x.dtype} to {dtype}: both must have the same number of bytes"
        )
    return x.type.but(dtype=dtype, quant=None)


@op(_reinterpreted, elementwise=True)
def bitcast(x: Array, *, dtype: str) -> Array:
    """The same stored bytes, read as another element type."""
    return np.ascontiguousarray(x).view(dtypes.numpy_of(dtype)).reshape(x.shape)
