"""Gather, scatter, one-hot, top-k, argmax, cumulative sums, nonzero, unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Type, Value
from intaglio.ops.registry import normalize_axis, op, same

_INDEX = ("i32", "i64")
_REDUCTIONS: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _indices(v: Value, what: str = "indices") -> None:
    if v.dtype not in _INDEX:
        raise BadInput(f"{what} must be i32 or i64, they are {v.type}")


def _wrapped(indices: Array, extent: int, op: str) -> Array:
    """Indices counted from the front; RunError where one is outside of [-extent, extent)."""
    if indices.size and (indices.min() < -extent or indices.max() >= extent):
        bad = indices[(indices < -extent) | (indices >= extent)].flat[0]
        raise RunError(f"{op}: index {bad} is outside of [{-extent}, {extent - 1}]")
    return np.where(indices < 0, indices + extent, indices)


def _wide(x: Array) -> Array:
    """f16 and bf16 as f32, which numpy sorts and sums reliably."""
    narrow = dtypes.is_float(dtypes.name_of(x.dtype)) and x.dtype.itemsize < 4
    return x.astype(np.float32) if narrow else x


# ---- gather --------------------------------------------------------------------------------------
def _gather(x: Value, indices: Value, *, axis: int) -> Type:
    _indices(indices)
    axis = normalize_axis(axis, x.type.rank)
    return Type(x.dtype, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


@op(_gather, onnx="Gather", tflite="GATHER", torch="index_select")
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """out[.., i.., ..] = x[.., indices[i..], ..] along one axis."""
    return x.take(_wrapped(indices, x.shape[axis], "gather"), axis)


def _gather_elements(x: Value, indices: Value, *, axis: int) -> Type:
    _indices(indices)
    axis = normalize_axis(axis, x.type.rank)
    _fits_beside(x, indices, axis)
    return Type(x.dtype, indices.shape)


def _fits_beside(x: Value, indices: Value, axis: int) -> None:
    if x.type.rank != indices.type.rank or any(
        i != axis and a > b for i, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True))
    ):
        raise BadInput(f"indices {indices.type} do not fit into {x.type} outside of axis {axis}")


@op(_gather_elements, onnx="GatherElements", torch="gather")
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """out[i, j, k] = x[i, indices[i, j, k], k] for axis 1."""
    return x[_along(x, _wrapped(indices, x.shape[axis], "gather_elements"), axis)]


def _along(x: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    at: list[Array] = list(np.indices(indices.shape, sparse=True))
    at[axis] = indices
    return tuple(at)


def _gather_nd(x: Value, indices: Value, *, batch_dims: int) -> Type:
    _indices(indices)
    rank, b = indices.type.rank, batch_dims
    if rank < 1 or not 0 <= b < min(rank, x.type.rank) or b + indices.shape[-1] > x.type.rank:
        raise BadInput(f"indices {indices.type} with {b} batch axes do not fit {x.type}")
    if x.shape[:b] != indices.shape[:b]:
        raise BadInput(f"the {b} batch axes of {x.type} and {indices.type} differ")
    return Type(x.dtype, indices.shape[:-1] + x.shape[b + indices.shape[-1] :])


@op(_gather_nd, onnx="GatherND", tflite="GATHER_ND")
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """The last axis of `indices` holds coordinates into the axes of x after the batch axes."""
    b, k = batch_dims, indices.shape[-1]
    batch = tuple(
        i.reshape(i.shape + (1,) * (indices.ndim - 1 - b))
        for i in np.indices(indices.shape[:b], sparse=True)
    )
    return x[batch + _coordinates(indices, x.shape[b : b + k], "gather_nd")]


def _coordinates(indices: Array, extents: tuple[int, ...], op: str) -> tuple[Array, ...]:
    return tuple(_wrapped(indices[..., i], d, op) for i, d in enumerate(extents))


# ---- scatter -------------------------------------------------------------------------------------
def _reduction(x: Value, updates: Value, reduction: str) -> Type:
    if reduction != "none" and reduction not in _REDUCTIONS:
        raise BadInput(f"reduction '{reduction}' is none of none, {', '.join(_REDUCTIONS)}")
    if x.dtype != updates.dtype:
        raise BadInput(f"updates are {updates.dtype}, the tensor is {x.dtype}; insert a cast")
    return x.type.but(quant=None)


def _put(x: Array, at: tuple[Any, ...], updates: Array, reduction: str) -> Array:
    out = x.copy()
    if reduction == "none":
        out[at] = updates
    else:
        _REDUCTIONS[reduction].at(out, at, updates)
    return out


def _scatter_elements(
    x: Value, indices: Value, updates: Value, *, axis: int, reduction: str
) -> Type:
    _indices(indices)
    _fits_beside(x, indices, normalize_axis(axis, x.type.rank))
    if updates.shape != indices.shape:
        raise BadInput(f"updates {updates.type} and indices {indices.type} differ in shape")
    return _reduction(x, updates, reduction)


@op(_scatter_elements, onnx="ScatterElements", torch="scatter")
def scatter_elements(
    x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """A copy of x with x[i, indices[i, j, k], k] = updates[i, j, k] for axis 1; last write wins."""
    at = _along(x, _wrapped(indices, x.shape[axis], "scatter_elements"), axis)
    return _put(x, at, updates, reduction)


def _scatter_nd(x: Value, indices: Value, updates: Value, *, reduction: str) -> Type:
    _indices(indices)
    if indices.type.rank < 1 or indices.shape[-1] > x.type.rank:
        raise BadInput(f"indices {indices.type} are not coordinates into {x.type}")
    want = indices.shape[:-1] + x.shape[indices.shape[-1] :]
    if updates.shape != want:
        raise BadInput(f"updates have shape {updates.shape}, {want} is needed")
    return _reduction(x, updates, reduction)


@op(_scatter_nd, onnx="ScatterND", tflite="SCATTER_ND")
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """A copy of x with x[indices[i]] = updates[i]; the last write wins."""
    at = _coordinates(indices, x.shape[: indices.shape[-1]], "scatter_nd")
    return _put(x, at or (...,), updates, reduction)


def _tensor_scatter(
    past: Value, update: Value, write_indices: Value | None, *, axis: int, mode: str
) -> Type:
    axis = normalize_axis(axis, past.type.rank)
    if axis == 0 or mode not in ("linear", "circular"):
        raise BadInput(f"tensor_scatter needs axis > 0 and mode linear or circular: {axis}, {mode}")
    if (
        past.dtype != update.dtype
        or past.type.rank != update.type.rank
        or any(
            (u > p if i == axis else u != p)
            for i, (u, p) in enumerate(zip(update.shape, past.shape, strict=True))
        )
    ):
        raise BadInput(f"update {update.type} does not fit into the cache {past.type}")
    if write_indices is not None:
        _indices(write_indices, "write_indices")
        if write_indices.shape != past.shape[:1]:
            raise BadInput(f"write_indices {write_indices.type}: one per batch entry is needed")
    return past.type.but(quant=None)


@op(_tensor_scatter, onnx="TensorScatter")
def tensor_scatter(
    past: Array,
    update: Array,
    write_indices: Array | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Array:
    """A copy of the cache `past` with `update` written along `axis` from write_indices[batch]."""
    out, extent, length = past.copy(), past.shape[axis], update.shape[axis]
    first = np.zeros(len(past), np.int64) if write_indices is None else write_indices
    for batch, start in enumerate(first.tolist()):
        at = start + np.arange(length)
        if start < 0 or (mode == "linear" and start + length > extent):
            raise RunError(
                f"tensor_scatter: writing {length} elements at {start} exceeds the cache [0, "
                f"{extent})"
            )
        where = np.moveaxis(out[batch], axis if axis < 0 else axis - 1, 0)
        where[at % extent] = np.moveaxis(update[batch], axis if axis < 0 else axis - 1, 0)
    return out


# ---- one hot, triangles, reversal ----------------------------------------------------------------
def _one_hot(indices: Value, values: Value, *, depth: int, axis: int) -> Type:
    if values.shape != (2,) or depth < 0:
        raise BadInput(
            f"one_hot with values {values.type} and depth {depth}; [off, on] and depth ≥ 0 are "
            "needed"
        )
    axis = normalize_axis(axis, indices.type.rank + 1)
    return Type(values.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))


@op(_one_hot)
def one_hot(indices: Array, values: Array, *, depth: int, axis: int = -1) -> Array:
    """values[1] where the position on the new axis equals the index, else values[0]."""
    index = np.expand_dims(indices.astype(np.int64), axis)
    steps = np.arange(depth).reshape(-1, *[1] * (indices.ndim - axis % (indices.ndim + 1)))
    return np.where((index == steps) | (index + depth == steps), values[1], values[0])


def _trilu(x: Value, *, k: int, upper: bool) -> Type:
    if x.type.rank < 2:
        raise BadInput(f"trilu of {x.type}; rank 2 or more is needed")
    return same(x)


@op(_trilu)
def trilu(x: Array, *, k: int = 0, upper: bool = True) -> Array:
    """The upper (lower) triangle of the last two axes, from diagonal k; 0 elsewhere."""
    rows, columns = np.indices(x.shape[-2:], sparse=True)
    keep = columns - rows >= k if upper else columns - rows <= k
    return np.where(keep, x, x.dtype.type(0))


def _reverse_sequence(x: Value, lens: Value, *, batch_axis: int, time_axis: int) -> Type:
    axes = normalize_axis(batch_axis, x.type.rank), normalize_axis(time_axis, x.type.rank)
    _indices(lens, "lengths")
    if axes[0] == axes[1] or lens.shape != (x.shape[axes[0]],):
        raise BadInput(f"reverse_sequence of {x.type}: axes {axes}, lengths {lens.type}")
    return same(x)


@op(_reverse_sequence, onnx="ReverseSequence", tflite="REVERSE_SEQUENCE")
def reverse_sequence(x: Array, lens: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """Reverse the first lens[b] steps of every batch entry b."""
    rows = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    out = rows.copy()
    for b, n in enumerate(lens.tolist()):
        if not 0 <= n <= rows.shape[1]:
            raise RunError(f"reverse_sequence: length {n} is outside of [0, {rows.shape[1]}]")
        out[b, :n] = rows[b, :n][::-1]
    return np.moveaxis(out, (0, 1), (batch_axis, time_axis))


# ---- sorting and extremes ------------------------------------------------------------------------
def _topk(x: Value, *, k: int, axis: int, largest: bool, sorted: bool) -> list[Type]:
    axis = normalize_axis(axis, x.type.rank)
    if not 0 <= k <= x.shape[axis]:
        raise BadInput(f"topk: k = {k} is outside of [0, {x.shape[axis]}] for {x.type}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [Type(x.dtype, shape), Type("i64", shape)]


@op(_topk)
def topk(
    x: Array, *, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    """The k largest (smallest) values along `axis`, sorted, and their indices; stable for ties."""
    keys = _wide(x)
    if largest:  # stable descending order: sort the reversed array and reverse the result
        order = np.flip(x.shape[axis] - 1 - np.flip(keys, axis).argsort(axis, kind="stable"), axis)
    else:
        order = keys.argsort(axis, kind="stable")
    order = order.take(np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order


def _arg(x: Value, *, axis: int, keepdims: bool, select_last_index: bool) -> Type:
    axis = normalize_axis(axis, x.type.rank)
    if x.shape[axis] == 0:
        raise BadInput(f"axis {axis} of {x.type} is empty; argmax and argmin need an element")
    return Type("i64", x.shape[:axis] + (1,) * keepdims + x.shape[axis + 1 :])


def _arg_extreme(find: Any, x: Array, axis: int, keepdims: bool, last: bool) -> Array:
    keys = _wide(x)
    if not last:
        return find(keys, axis, keepdims=keepdims)
    return x.shape[axis] - 1 - find(np.flip(keys, axis), axis, keepdims=keepdims)


@op(_arg, onnx="ArgMax", tflite="ARG_MAX", torch="argmax")
def argmax(
    x: Array, *, axis: int = 0, keepdims: bool = True, select_last_index: bool = False
) -> Array:
    return _arg_extreme(np.argmax, x, axis, keepdims, select_last_index)


@op(_arg, onnx="ArgMin", tflite="ARG_MIN", torch="argmin")
def argmin(
    x: Array, *, axis: int = 0, keepdims: bool = True, select_last_index: bool = False
) -> Array:
    return _arg_extreme(np.argmin, x, axis, keepdims, select_last_index)


def _cumulative(x: Value, *, axis: int, exclusive: bool, reverse: bool) -> Type:
    normalize_axis(axis, x.type.rank)
    return same(x)


def _accumulate(f: Any, x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    wide = np.moveaxis(_wide(x), axis, 0)
    wide = np.flip(wide, 0) if reverse else wide
    if exclusive and len(wide):
        start = np.full_like(wide[:1], f.identity)
        wide = np.concatenate([start, wide[:-1]])
    out = f.accumulate(wide, 0, dtype=wide.dtype)
    return np.moveaxis(np.flip(out, 0) if reverse else out, 0, axis).astype(x.dtype)


@op(_cumulative, torch="cumsum")
def cumsum(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    return _accumulate(np.add, x, axis, exclusive, reverse)


@op(_cumulative, torch="cumprod")
def cumprod(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    return _accumulate(np.multiply, x, axis, exclusive, reverse)


# ---- results whose extent depends on the data ----------------------------------------------------
def _nonzero(x: Value) -> Type:
    return Type("i64", (x.type.rank, x.type.size), dynamic=(1,))


@op(_nonzero, onnx="NonZero", torch="nonzero")
def nonzero(x: Array) -> Array:
    """Coordinates of the elements that are not 0, one column each, in row-major order."""
    return np.argwhere(x != x.dtype.type(0)).T


def _compress(x: Value, cond: Value, *, axis: int) -> Type:
    axis = normalize_axis(axis, x.type.rank)
    if cond.dtype != "bool" or cond.type.rank != 1:
        raise BadInput(f"compress needs a vector of bool, the condition is {cond.type}")
    shape = list(x.shape)
    shape[axis] = min(shape[axis], cond.shape[0])
    return Type(x.dtype, tuple(shape), dynamic=tuple(sorted({axis, *x.type.dynamic})))


@op(_compress, onnx="Compress")
def compress(x: Array, cond: Array, *, axis: int) -> Array:
    """The slices of x along `axis` whose condition holds."""
    if cond[x.shape[axis] :].any():
        raise RunError(f"compress: the condition is longer than the extent {x.shape[axis]}")
    return x.take(np.flatnonzero(cond), axis)


def _unique(x: Value, *, axis: int, sorted: bool) -> list[Type]:
    axis = normalize_axis(axis, x.type.rank)
    n = Type("i64", x.shape[axis : axis + 1], dynamic=(0,))
    dynamic = tuple({*x.type.dynamic, axis})
    return [
        Type(x.dtype, x.shape, dynamic=dynamic),
        n,
        n.but(dynamic=(0,) if axis in x.type.dynamic else ()),
        n,
    ]


@op(_unique, onnx="Unique")
def unique(x: Array, *, axis: int, sorted: bool = True) -> tuple[Array, Array, Array, Array]:
    """Distinct slices along `axis`, their first index, the inverse indices, and their counts."""
    _, first, inverse, counts = np.unique(
        _wide(x), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:  # in the order of first appearance
        order = first.argsort()
        rank = order.argsort()
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return x.take(first, axis), first, inverse, counts
