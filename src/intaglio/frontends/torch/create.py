"""Importers of zeros, ones, full, arange, eye and other constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.torch.importer import importer, integer, ints, result_type
from intaglio.frontends.torch.tensors import dtype_of
from intaglio.ir import Value, constant

MAX_ELEMENTS = 1 << 26  # of a created constant


def filled(size: Any, value: Any, dtype: str) -> Value:
    shape = ints(size)
    if any(d < 0 for d in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise BadInput(
            f"a constant has shape {shape}; at most {MAX_ELEMENTS} elements are supported"
        )
    one = np.asarray(value).astype(dtypes.numpy_of(dtype))
    return constant(np.full(shape, one))


def _kind(dtype: int | None, default: str = "f32") -> str:
    return default if dtype is None else dtype_of(dtype)


@importer("zeros", "empty", "new_empty_strided", "empty_strided")
def zeros(size: Any, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    return filled(size, 0, _kind(dtype))


@importer("ones")
def ones(size: Any, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    return filled(size, 1, _kind(dtype))


@importer("scalar_tensor")
def scalar_tensor(s: Any, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    return filled([], _number(s), _kind(dtype))


@importer("full")
def full(size: Any, fill_value: Any, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    value = _number(fill_value)
    return filled(size, value, _kind(dtype, result_type(value)))


def _number(x: Any) -> Any:
    if isinstance(x, Value):
        if x.data is None or x.type.size != 1:
            raise Unsupported("the fill value is known only at run time; it must be constant")
        return x.data.reshape(-1)[0].item()
    return x


@importer("zeros_like", "empty_like", "zero")
def zeros_like(self: Value, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    return filled(list(self.shape), 0, _kind(dtype, self.dtype))


@importer("ones_like")
def ones_like(self: Value, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    return filled(list(self.shape), 1, _kind(dtype, self.dtype))


@importer("full_like", "fill")
def full_like(
    self: Value, fill_value: Any, *rest: Any, dtype: int | None = None, **kwargs: Any
) -> Value:
    return filled(list(self.shape), _number(fill_value), _kind(dtype, self.dtype))


@importer("new_zeros", "new_empty")
def new_zeros(self: Value, size: Any, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    return filled(size, 0, _kind(dtype, self.dtype))


@importer("new_ones")
def new_ones(self: Value, size: Any, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    return filled(size, 1, _kind(dtype, self.dtype))


@importer("new_full")
def new_full(
    self: Value, size: Any, fill_value: Any, *rest: Any, dtype: int | None = None, **kwargs: Any
) -> Value:
    return filled(size, _number(fill_value), _kind(dtype, self.dtype))


@importer("arange")
def arange(
    *given: Any,
    start: Any = None,
    end: Any = None,
    step: Any = None,
    dtype: int | None = None,
    **kwargs: Any,
) -> Value:
    """(end), (start, end) or (start, end, step), then dtype and layout."""
    numbers = [_number(g) for g in given[:3] if g is not None]
    first, last, by = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    last = last if end is None else _number(end)
    first = first if start is None else _number(start)
    by = by if step is None else _number(step)
    if not by or (last - first) / by > MAX_ELEMENTS:
        raise BadInput(f"the range from {first} to {last} by {by} is invalid")
    kind = _kind(dtype, "f32" if any(isinstance(v, float) for v in (first, last, by)) else "i64")
    count = max(math.ceil((last - first) / by), 0)
    result = (
        first + np.arange(count, dtype=np.float64) * by
        if kind.startswith("f")
        else np.arange(first, last, by)
    )
    return constant(result.astype(dtypes.numpy_of(kind)))


@importer("linspace")
def linspace(
    start: Any, end: Any, steps: Any = 100, dtype: int | None = None, **kwargs: Any
) -> Value:
    count = integer(steps)
    if not 0 <= count <= MAX_ELEMENTS:
        raise BadInput(f"{count} steps are too many or negative")
    result = np.linspace(_number(start), _number(end), count)
    return constant(result.astype(dtypes.numpy_of(_kind(dtype))))


@importer("eye")
def eye(n: Any, m: Any = None, *rest: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    rows, columns = integer(n), integer(n if m is None else m)
    if rows * columns > MAX_ELEMENTS:
        raise BadInput(f"a matrix of {rows}x{columns} is too large or negative")
    return constant(np.eye(rows, columns).astype(dtypes.numpy_of(_kind(dtype))))


@importer("tensor", "as_tensor")
def tensor(data: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    if isinstance(data, Value):
        return data
    array = np.asarray(_listed(data))
    kind = "f32" if array.dtype.kind == "f" else "bool" if array.dtype.kind == "b" else "i64"
    return constant(array.astype(dtypes.numpy_of(_kind(dtype, kind))))


def _listed(data: Any) -> Any:
    return [_listed(d) for d in data] if isinstance(data, list | tuple) else _number(data)


@importer(
    "rand",
    "randn",
    "randint",
    "rand_like",
    "randn_like",
    "bernoulli",
    "multinomial",
    "normal",
    "uniform",
    "randperm",
    "exponential",
)
def random(*args: Any, **kwargs: Any) -> Value:
    raise Unsupported("random numbers are not supported; make them an input of the model")
