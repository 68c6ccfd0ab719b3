"""Pooling. Tensors are N×C×spatial; importers have put auto_pad and ceil_mode into `pad`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Type, Value
from intaglio.ops.precision import SMALL, widen
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints, check_windows, padded, window_counts, windows


def _pool_shape(x: Value, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Ints:
    check_windows(x, kernel, stride, pad, dilation)
    return (*x.shape[:2], *window_counts(x.shape[2:], kernel, stride, pad, dilation))


def _taps(x: Array, value: Any, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Array:
    """The windows as N, C, kernel position, window…"""
    view = windows(padded(x, pad, value), kernel, stride, dilation)
    return view.reshape(*x.shape[:2], math.prod(kernel), *view.shape[2 + len(kernel) :])


# ---- max -----------------------------------------------------------------------------------------
def _max_pool(
    x: Value,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    storage_order: int,
    with_indices: bool,
) -> Type | list[Type]:
    shape = _pool_shape(x, kernel, stride, pad, dilation)
    y = Type(x.dtype, shape)
    return [y, Type("i64", shape)] if with_indices else y


def _lowest(x: Array) -> Any:
    if dtypes.is_float(dtypes.name_of(x.dtype)):
        return -np.inf
    return dtypes.limits(dtypes.name_of(x.dtype))[0]


@op(_max_pool)
def max_pool(
    x: Array,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    storage_order: int = 0,
    with_indices: bool = False,
) -> Array | tuple[Array, Array]:
    """The largest element of every window; `with_indices` adds its index in the flat input."""
    keys = x.astype(np.float32) if x.dtype in SMALL else x
    seen = _taps(keys, _lowest(keys), kernel, stride, pad, dilation)
    y = seen.max(2).astype(x.dtype)
    if not with_indices:
        return y
    place = np.arange(math.prod(x.shape[2:]))
    spatial = x.shape[:1:-1] if storage_order else x.shape[2:]
    place = (place.reshape(spatial).T if storage_order else place.reshape(spatial))[None, None]
    places = _taps(place, -1, kernel, stride, pad, dilation)
    best = np.where(places < 0, False, seen == seen.max(2, keepdims=True)).argmax(2, keepdims=True)
    flat = np.take_along_axis(np.broadcast_to(places, seen.shape), best, 2)[:, :, 0]
    planes = np.arange(x.shape[0] * x.shape[1]) * place.size
    return y, flat + planes.reshape(*x.shape[:2], *[1] * (x.ndim - 2))


# ---- average -------------------------------------------------------------------------------------
def _avg_pool(
    x: Value, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints, count_include_pad: bool
) -> Type:
    return Type(x.dtype, _pool_shape(x, kernel, stride, pad, dilation))


@op(_avg_pool)
@widen
def avg_pool(
    x: Array,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool = False,
) -> Array:
    """The mean of every window; padding counts only with `count_include_pad`."""
    total = _taps(x, 0, kernel, stride, pad, dilation).sum(2, dtype=x.dtype)
    if count_include_pad:
        return total / x.dtype.type(math.prod(kernel))
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    return total / np.maximum(_taps(ones, 0, kernel, stride, pad, dilation).sum(2), 1)


def _lp_pool(x: Value, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints, p: int) -> Type:
    if p < 1:
        raise BadInput(f"lp_pool needs p of at least 1, it is {p}")
    return Type(x.dtype, _pool_shape(x, kernel, stride, pad, dilation))


@op(_lp_pool)
@widen
def lp_pool(
    x: Array, *, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints, p: int = 2
) -> Array:
    """(Σ |x|^p)^(1/p) of every window."""
    powers = np.abs(x) ** x.dtype.type(p)
    total = _taps(powers, 0, kernel, stride, pad, dilation).sum(2, dtype=x.dtype)
    return total ** x.dtype.type(1 / p)


# ---- unpooling -----------------------------------------------------------------------------------
def _max_unpool(x: Value, indices: Value, *, shape: Ints) -> Type:
    if indices.dtype != "i64" or indices.shape != x.shape:
        raise BadInput(f"indices must be i64 of shape {x.shape}, they are {indices.type}")
    if len(shape) != x.type.rank or any(d < 0 for d in shape):
        raise BadInput(f"max_unpool cannot place {x.type} in shape {shape}")
    return Type(x.dtype, shape)


@op(_max_unpool)
def max_unpool(x: Array, indices: Array, *, shape: Ints) -> Array:
    """Zeros of `shape` with the elements of x at the flat indices that max_pool returned."""
    out = np.zeros(math.prod(shape), x.dtype)
    if indices.size and (indices.min() < 0 or indices.max() >= out.size):
        bad = indices[(indices < 0) | (indices >= out.size)].flat[0]
        raise RunError(f"max_unpool: index {bad} is outside of [0, {out.size - 1}]")
    out[indices.reshape(-1)] = x.reshape(-1)
    return out.reshape(shape)
