"""Reductions over axes. `axes` is a sorted tuple of non-negative ints, never empty."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.activation import clip
from intaglio.ops.cast import cast
from intaglio.ops.elementwise import abs, add, exp, log, mul, sqrt, sub
from intaglio.ops.precision import widen
from intaglio.ops.registry import op
from intaglio.ops.shape import reshape


def reduced(x: Value, *, axes: tuple[int, ...], keepdims: bool = True) -> Type:
    """The type of `x` with `axes` removed, or of extent 1 with `keepdims`."""
    if not axes or list(axes) != sorted(set(axes)) or axes[0] < 0 or axes[-1] >= x.type.rank:
        raise BadInput(
            f"axes {axes} of a tensor of rank {x.type.rank}; they must be sorted and within the "
            "rank"
        )
    kept = [d if i not in axes else 1 for i, d in enumerate(x.shape)]
    return Type(
        x.dtype, tuple(d for i, d in enumerate(kept) if keepdims or i not in axes), dynamic=()
    )


def _reduced_numbers(x: Value, *, axes: tuple[int, ...], keepdims: bool = True) -> Type:
    if x.dtype == "bool":
        raise BadInput("a bool tensor cannot be summed; insert a cast")
    return reduced(x, axes=axes, keepdims=keepdims)


@op(_reduced_numbers)
@widen
def reduce_sum(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    return np.sum(x, axes, x.dtype, keepdims=bool(keepdims))


@op(_reduced_numbers)
@widen
def reduce_mean(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    """Integers are summed in 64 bits; their mean truncates towards zero."""
    if x.dtype.kind == "f":
        return np.mean(x, axes, x.dtype, keepdims=bool(keepdims))
    wide = np.int64 if x.dtype.kind == "i" else np.uint64
    total = np.sum(x, axes, wide, keepdims=bool(keepdims))
    count = np.array(max(math.prod(x.shape[i] for i in axes), 1), wide)
    return (np.sign(total) * (np.abs(total) // count)).astype(x.dtype)


@op(reduced)
def reduce_max(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    """Over no elements: the lowest value of the type."""
    return np.max(x, axes, keepdims=bool(keepdims), initial=_bound(x, -1))


@op(reduced)
def reduce_min(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    """Over no elements: the highest value of the type."""
    return np.min(x, axes, keepdims=bool(keepdims), initial=_bound(x, 1))


@op(_reduced_numbers)
@widen
def reduce_prod(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    return np.prod(x, axes, x.dtype, keepdims=bool(keepdims))


def _bound(x: Array, sign: int) -> Any:
    dtype = dtypes.TABLE[dtypes.name_of(x.dtype)]
    if dtype.kind == "f":
        return np.array(sign * np.inf).astype(x.dtype)
    low, high = (0, 1) if dtype.kind == "b" else dtypes.limits(dtype.name)
    return np.array(high if sign > 0 else low).astype(x.dtype)


# ---- composites; integers compute in f64 and truncate ------------------------------------------
def _wide(x: Array) -> Array:
    return x if x.dtype.kind == "f" else x.astype(np.float64)


@op(_reduced_numbers)
@widen
def reduce_l1(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    return np.sum(np.abs(x), axes, x.dtype, keepdims=bool(keepdims))


@reduce_l1.lowers
def _(x: Value, *, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    return reduce_sum(abs(x), axes=axes, keepdims=keepdims)


@op(_reduced_numbers)
@widen
def reduce_sum_square(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    return np.sum(x * x, axes, x.dtype, keepdims=bool(keepdims))


@reduce_sum_square.lowers
def _(x: Value, *, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    return reduce_sum(mul(x, x), axes=axes, keepdims=keepdims)


@op(_reduced_numbers)
@widen
def reduce_l2(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    wide = _wide(x)
    return np.sqrt(np.sum(wide * wide, axes, keepdims=bool(keepdims))).astype(x.dtype)


@reduce_l2.lowers
def _(x: Value, *, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    wide = _as_float(x)
    return cast(sqrt(reduce_sum(mul(wide, wide), axes=axes, keepdims=keepdims)), dtype=x.dtype)


@op(_reduced_numbers)
@widen
def reduce_log_sum(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    return np.log(np.sum(_wide(x), axes, keepdims=bool(keepdims))).astype(x.dtype)


@reduce_log_sum.lowers
def _(x: Value, *, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    return cast(log(reduce_sum(_as_float(x), axes=axes, keepdims=keepdims)), dtype=x.dtype)


@op(_reduced_numbers)
@widen
def reduce_log_sum_exp(x: Array, *, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    """The maximum is subtracted first, so that no exponential overflows."""
    wide = _wide(x)
    top = np.max(wide, axes, keepdims=True, initial=-np.inf)
    top = np.clip(top, np.finfo(wide.dtype).min, np.finfo(wide.dtype).max)
    out = np.log(np.sum(np.exp(wide - top), axes, keepdims=True)) + top
    return (out if keepdims else np.squeeze(out, axes)).astype(x.dtype)


@reduce_log_sum_exp.lowers
def _(x: Value, *, axes: tuple[int, ...], keepdims: bool = True) -> Value:
    wide = _as_float(x)
    top = float(np.finfo(np.float32 if wide.dtype == "f32" else np.float64).max)
    peak = clip(reduce_max(wide, axes=axes, keepdims=True), lo=-top, hi=top)
    total = add(log(reduce_sum(exp(sub(wide, peak)), axes=axes, keepdims=True)), peak)
    kept = [d for i, d in enumerate(x.shape) if i not in axes]
    return cast(total if keepdims else reshape(total, shape=tuple(kept)), dtype=x.dtype)


def _as_float(x: Value) -> Value:
    """`x` in a float type that holds its sums: f32 for smaller floats, f64 for integers."""
    if x.dtype in ("f32", "f64"):
        return x
    return cast(x, dtype="f32" if dtypes.is_float(x.dtype) else "f64")
