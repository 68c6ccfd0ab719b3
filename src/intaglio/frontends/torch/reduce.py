"""Importers of reductions, variance, norms, topk, sort and distances."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes, ops
from intaglio.frontends.torch.compare import as_bool
from intaglio.frontends.torch.elementwise import pow_
from intaglio.frontends.torch.importer import (
    as_dtype,
    axes_of,
    axis_of,
    cast_to,
    floating,
    importer,
    integer,
    promoted,
    reshaped,
)
from intaglio.frontends.torch.tensors import number
from intaglio.ir import Value


def _summable(x: Value, dtype: int | None) -> Value:
    """x as i64 if it holds integers or bools, as PyTorch sums them."""
    if dtype is not None:
        return cast_to(x, dtype)
    return x if dtypes.is_float(x.dtype) else as_dtype(x, "i64")


@importer("sum", "nansum")
def sum_(self: Value, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Value:
    x = _summable(self, dtype)
    result: Value = ops.reduce_sum(x, axes=axes_of(dim, x), keepdims=bool(keepdim))
    return result


@importer("mean")
def mean(self: Value, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Value:
    x = cast_to(self, dtype)
    result: Value = ops.reduce_mean(floating(x), axes=axes_of(dim, x), keepdims=bool(keepdim))
    return result


@importer("prod")
def prod(self: Value, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Value:
    x = _summable(self, dtype)
    result: Value = ops.reduce_prod(x, axes=axes_of(dim, x), keepdims=bool(keepdim))
    return result


def _extreme(reduce: Any) -> Any:
    def function(self: Value, dim: Any = (), keepdim: bool = False) -> Value:
        result: Value = reduce(self, axes=axes_of(dim, self), keepdims=bool(keepdim))
        return result

    return function


importer("amax")(_extreme(ops.reduce_max))
importer("amin")(_extreme(ops.reduce_min))


def _max_or_min(reduce: Any, place: Any, pair: Any) -> Any:
    def function(self: Value, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Value):  # max(a, b)
            return pair(*promoted(self, dim))
        if dim is None:
            return reduce(self, axes=axes_of(None, self), keepdims=False)
        axis = axis_of(dim, self)
        if not self.type.rank:
            return self, number(0, "i64")
        return (
            reduce(self, axes=(axis,), keepdims=bool(keepdim)),
            place(self, axis=axis, keepdims=bool(keepdim)),
        )

    return function


importer("max")(_max_or_min(ops.reduce_max, ops.argmax, ops.maximum))
importer("min")(_max_or_min(ops.reduce_min, ops.argmin, ops.minimum))


def _arg_extreme(op: Any) -> Any:
    def function(self: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if dim is None:
            flat = reshaped(self, (self.type.size,))
            result: Value = op(flat, axis=0, keepdims=False)
            return result
        result = op(self, axis=axis_of(dim, self), keepdims=bool(keepdim))
        return result

    return function


importer("argmax")(_arg_extreme(ops.argmax))
importer("argmin")(_arg_extreme(ops.argmin))


def variance(x: Value, axes: tuple[int, ...], correction: Any, keepdim: bool) -> Value:
    middle = ops.reduce_mean(x, axes=axes, keepdims=True)
    off = ops.sub(x, middle)
    total = ops.reduce_sum(ops.mul(off, off), axes=axes, keepdims=keepdim)
    count = math.prod(x.shape[a] for a in axes) - correction
    result: Value = ops.mul(total, number(1 / count if count else math.nan, x.dtype))
    return result


def _variance_arguments(
    self: Value, args: tuple[Any, ...], unbiased: Any, correction: Any, keepdim: Any
) -> tuple[Value, tuple[int, ...], Any, bool]:
    """The forms (x, unbiased), (x, dims, unbiased, keepdim) and (x, dims, correction=...)."""
    dim: Any = None
    rest = list(args)
    if rest and not isinstance(rest[0], bool):
        dim = rest.pop(0)
    if rest:
        unbiased = rest.pop(0)
    if rest:
        keepdim = rest.pop(0)
    by = correction if correction is not None else (1 if unbiased is None else int(unbiased))
    return floating(self), axes_of(dim, self), by, bool(keepdim)


@importer("var")
def var(
    self: Value,
    *args: Any,
    dim: Any = None,
    unbiased: Any = None,
    correction: Any = None,
    keepdim: bool = False,
) -> Value:
    given = args if dim is None else (dim, *args)
    x, axes, by, keep = _variance_arguments(self, given, unbiased, correction, keepdim)
    return variance(x, axes, by, keep)


@importer("std")
def std(
    self: Value,
    *args: Any,
    dim: Any = None,
    unbiased: Any = None,
    correction: Any = None,
    keepdim: bool = False,
) -> Value:
    result: Value = ops.sqrt(
        var(self, *args, dim=dim, unbiased=unbiased, correction=correction, keepdim=keepdim)
    )
    return result


@importer("var_mean", "std_mean")
def var_mean(
    self: Value,
    *args: Any,
    dim: Any = None,
    unbiased: Any = None,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    given = args if dim is None else (dim, *args)
    x, axes, by, keep = _variance_arguments(self, given, unbiased, correction, keepdim)
    return variance(x, axes, by, keep), ops.reduce_mean(x, axes=axes, keepdims=keep)


@importer("norm", "linalg_vector_norm", "frobenius_norm", "linalg_norm")
def norm(
    self: Value,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: int | None = None,
    ord: Any = None,
) -> Value:
    x = floating(cast_to(self, dtype))
    power = 2.0 if p is None or isinstance(p, list | str) else float(p)
    if ord is not None:
        power = float(ord)
    axes, keep = axes_of(dim, x), bool(keepdim)
    if power == 2:
        result: Value = ops.reduce_l2(x, axes=axes, keepdims=keep)
    elif power == 1:
        result = ops.reduce_l1(x, axes=axes, keepdims=keep)
    elif power == math.inf:
        result = ops.reduce_max(ops.abs(x), axes=axes, keepdims=keep)
    elif power == -math.inf:
        result = ops.reduce_min(ops.abs(x), axes=axes, keepdims=keep)
    elif power == 0:
        some = as_dtype(as_bool(x), x.dtype)
        result = ops.reduce_sum(some, axes=axes, keepdims=keep)
    else:
        total = ops.reduce_sum(pow_(ops.abs(x), power), axes=axes, keepdims=keep)
        result = pow_(total, 1 / power)
    return result


@importer("logsumexp")
def logsumexp(self: Value, dim: Any, keepdim: bool = False) -> Value:
    result: Value = ops.reduce_log_sum_exp(
        floating(self), axes=axes_of(dim, self), keepdims=bool(keepdim)
    )
    return result


def _over_bools(reduce: Any) -> Any:
    def function(self: Value, dim: Any = None, keepdim: bool = False) -> Value:
        x = as_dtype(as_bool(self), "u8")
        result: Value = as_dtype(reduce(x, axes=axes_of(dim, x), keepdims=bool(keepdim)), "bool")
        return result

    return function


importer("any")(_over_bools(ops.reduce_max))
importer("all")(_over_bools(ops.reduce_min))


@importer("count_nonzero")
def count_nonzero(self: Value, dim: Any = None) -> Value:
    x = as_dtype(as_bool(self), "i64")
    result: Value = ops.reduce_sum(x, axes=axes_of(dim, x), keepdims=False)
    return result


@importer("cumsum")
def cumsum(self: Value, dim: int, dtype: int | None = None) -> Value:
    x = _summable(self, dtype)
    result: Value = ops.cumsum(x, axis=axis_of(dim, x))
    return result


@importer("cumprod")
def cumprod(self: Value, dim: int, dtype: int | None = None) -> Value:
    x = _summable(self, dtype)
    result: Value = ops.cumprod(x, axis=axis_of(dim, x))
    return result


@importer("topk")
def topk(self: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return ops.topk(
        self, k=integer(k), axis=axis_of(dim, self), largest=bool(largest), sorted=bool(sorted)
    )


@importer("sort", "msort")
def sort(
    self: Value, *args: Any, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Any:
    """The forms (x, dim, descending) and (x, *, stable, dim, descending)."""
    rest = list(args)
    if rest and (isinstance(rest[0], bool) or rest[0] is None):
        rest.pop(0)
    dim = rest.pop(0) if rest else dim
    descending = rest.pop(0) if rest else descending
    axis = axis_of(dim, self)
    return ops.topk(self, k=self.shape[axis], axis=axis, largest=bool(descending), sorted=True)


@importer("argsort")
def argsort(
    self: Value, *args: Any, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Value:
    result: Value = sort(self, *args, dim=dim, descending=descending)[1]
    return result


@importer("aminmax")
def aminmax(self: Value, dim: Any = None, keepdim: bool = False) -> Any:
    axes = axes_of(dim, self)
    return (
        ops.reduce_min(self, axes=axes, keepdims=bool(keepdim)),
        ops.reduce_max(self, axes=axes, keepdims=bool(keepdim)),
    )


@importer("cdist", "_cdist_forward")
def cdist(x1: Value, x2: Value, p: float = 2.0, compute_mode: int | None = None) -> Value:
    """Distances between all pairs of rows of two matrices."""
    a = reshaped(x1, (*x1.shape[:-1], 1, x1.shape[-1]))
    b = reshaped(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
    return norm(ops.sub(a, b), p, [-1])


@importer("pairwise_distance")
def pairwise_distance(
    x1: Value, x2: Value, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    off = ops.add(ops.sub(x1, x2), number(eps, x1.dtype))
    return norm(off, p, [-1], keepdim)
