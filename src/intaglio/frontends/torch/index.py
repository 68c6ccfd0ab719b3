"""Importers of embedding, gather, index, index_put, scatter and bucketize."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops, symint
from intaglio.errors import BadInput, Unsupported, option
from intaglio.frontends.torch.compare import as_bool
from intaglio.frontends.torch.importer import as_dtype, axis_of, importer, permuted, reshaped
from intaglio.frontends.torch.mutable_tensor import with_slice_replaced
from intaglio.ir import Value, constant
from intaglio.ops.registry import broadcast_shapes


def integer_index(index: Value) -> Value:
    """`index`, which must be an integer tensor."""
    if dtypes.is_float(index.dtype):
        raise BadInput(
            f"indices are {index.dtype}; integers are needed; declare the input with "
            f"{option('dtypes', {'name': 'i64'})}"
        )
    return index if index.dtype in ("i32", "i64") else as_dtype(index, "i64")


@importer("embedding")
def embedding(
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    result: Value = ops.gather(weight, integer_index(indices), axis=0)
    return result


@importer("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> Any:
    """Bags with constant offsets."""
    if offsets.data is None or per_sample_weights is not None or mode not in (0, 1, 2):
        raise Unsupported("embedding_bag needs constant offsets and no per-sample weights")
    rows = embedding(weight, indices)
    ends = [int(o) for o in offsets.data.reshape(-1)]
    ends = ends if include_last_offset else [*ends, rows.shape[0]]
    reduce = (ops.reduce_sum, ops.reduce_mean, ops.reduce_max)[mode]
    bags = [
        reduce(ops.part(rows, a, b, axis=0), axes=(0,), keepdims=True)
        for a, b in itertools.pairwise(ends)
    ]
    return (ops.concat(*bags, axis=0) if len(bags) > 1 else bags[0]), None, None, None


@importer("index_select")
def index_select(self: Value, dim: int, index: Value) -> Value:
    flat = integer_index(index)
    if not flat.type.rank:
        flat = reshaped(flat, (1,))
    result: Value = ops.gather(self, flat, axis=axis_of(dim, self))
    return result


@importer("gather")
def gather(self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    result: Value = ops.gather_elements(self, integer_index(index), axis=axis_of(dim, self))
    return result


@importer("take_along_dim")
def take_along_dim(self: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is None:
        return gather(reshaped(self, (self.type.size,)), 0, reshaped(indices, (indices.type.size,)))
    axis = axis_of(dim, self)
    shape = list(
        symint.broadcast(*((*s[:axis], 1, *s[axis + 1 :]) for s in (self.shape, indices.shape)))
    )
    x = ops.expand(self, shape=(*shape[:axis], self.shape[axis], *shape[axis + 1 :]))
    at = ops.expand(indices, shape=(*shape[:axis], indices.shape[axis], *shape[axis + 1 :]))
    return gather(x, axis, at)


@importer("take")
def take(self: Value, index: Value) -> Value:
    result: Value = ops.gather(reshaped(self, (self.type.size,)), integer_index(index), axis=0)
    return result


@importer("index", "_unsafe_index")
def index(self: Value, indices: Any) -> Value:
    """x[a, :, b]: integer tensors, constant masks, None for a whole axis."""
    x, given = _masks(self, list(indices))
    axes = [i for i, v in enumerate(given) if v is not None]
    if not axes:
        return x
    if len(axes) == 1:
        result: Value = ops.gather(x, integer_index(given[axes[0]]), axis=axes[0])
        return result
    together = axes == list(range(axes[0], axes[-1] + 1))
    first = axes[0] if together else 0
    rest = [i for i in range(x.type.rank) if i not in axes]
    at = _flat_index(x, [given[a] for a in axes], axes)
    moved = permuted(x, [*axes, *rest])
    rows = reshaped(moved, (math.prod(x.shape[a] for a in axes), *(x.shape[i] for i in rest)))
    y = ops.gather(rows, at, axis=0)
    k = at.type.rank  # the indexed axes come first; move them to the position of the first index
    perm = [*range(k, k + first), *range(k), *range(k + first, y.type.rank)]
    return permuted(y, perm)


def _flat_index(x: Value, given: list[Any], axes: list[int]) -> Value:
    """One flat index into the indexed axes."""
    shape = broadcast_shapes(*given)
    total: Value | None = None
    for v, a in zip(given, axes, strict=True):
        at, extent = as_dtype(integer_index(v), "i64"), x.shape[a]
        wrapped = ops.where(ops.add(at, np.int64(extent)), at, ops.less(at, np.int64(0)))
        total = wrapped if total is None else ops.add(ops.mul(total, np.int64(extent)), wrapped)
    assert total is not None
    result: Value = total if total.shape == shape else ops.expand(total, shape=shape)
    return result


def _masks(x: Value, given: list[Any]) -> tuple[Value, list[Any]]:
    """Constant masks as indices."""
    results: list[Any] = []
    for v in given:
        if v is None or v.dtype not in ("bool", "u8"):
            results.append(v)
            continue
        if v.data is None:
            raise Unsupported(
                "a mask that is known only at run time selects elements, so that the shape of "
                "the result is unknown; use where() or masked_fill()"
            )
        results += [index_constant(p) for p in np.nonzero(v.data)]
    return x, results


def index_constant(array: Any) -> Value:
    return constant(np.asarray(array, np.int64))


@importer("masked_select")
def masked_select(self: Value, mask: Value) -> Value:
    flat = ops.reshape(ops.expand(self, shape=broadcast_shapes(self, mask)), shape=(-1,))
    keep = ops.reshape(ops.expand(as_bool(mask), shape=broadcast_shapes(self, mask)), shape=(-1,))
    result: Value = ops.compress(flat, keep, axis=0)
    return result


@importer("nonzero")
def nonzero(self: Value) -> Value:
    result: Value = permuted(ops.nonzero(self), (1, 0))
    return result


@importer("index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(
    self: Value, indices: Any, values: Value, accumulate: bool = False, unsafe: bool = False
) -> Value:
    given = list(indices)
    if len(given) == 1 and given[0] is not None and given[0].dtype == "bool" and not accumulate:
        mask, value = given[0], as_dtype(values, self.dtype)
        if value.type.size == 1 or mask.data is None:
            if value.type.size != 1:
                raise Unsupported(
                    "a mask that is known only at run time selects elements for several values; "
                    "use "
                    "where()"
                )
            mask = reshaped(mask, (*mask.shape, *[1] * (self.type.rank - mask.type.rank)))
            result: Value = ops.where(reshaped(value, ()), self, mask)
            return result
    x, places = _masks(self, given)
    axes = [i for i, v in enumerate(places) if v is not None]
    if not axes:
        result = ops.expand(as_dtype(values, x.dtype), shape=x.shape)
        return result
    rest = [i for i in range(x.type.rank) if i not in axes]
    at = _flat_index(x, [places[a] for a in axes], axes)
    perm = [*axes, *rest]
    moved = permuted(x, perm)
    lead = math.prod(x.shape[a] for a in axes)
    rows = reshaped(moved, (lead, *(x.shape[i] for i in rest)))
    together = axes == list(range(axes[0], axes[-1] + 1))
    first, k = (axes[0] if together else 0), at.type.rank
    tail = tuple(x.shape[i] for i in rest)
    laid = (*tail[:first], *at.shape, *tail[first:])  # layout of the values in PyTorch
    new = as_dtype(values, x.dtype)
    new = new if new.shape == laid else ops.expand(new, shape=laid)
    new = permuted(new, [*range(first, first + k), *range(first), *range(first + k, len(laid))])
    result = ops.scatter_nd(
        rows, reshaped(at, (*at.shape, 1)), new, reduction="add" if accumulate else "none"
    )
    result = reshaped(result, moved.shape)
    return permuted(result, [perm.index(i) for i in range(len(perm))])


@importer("scatter", "scatter_reduce")
def scatter(
    self: Value,
    dim: int,
    index: Value,
    src: Any = None,
    value: Any = None,
    reduce: str | None = None,
    include_self: bool = True,
) -> Value:
    return _scattered(self, dim, index, src if value is None else value, reduce)


@importer("scatter_add")
def _scatter_add(self: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(self, dim, index, src, "add")


def _scattered(x: Value, dim: int, index: Value, src: Any, reduce: str | None) -> Value:
    kinds = {
        None: "none",
        "sum": "add",
        "add": "add",
        "multiply": "mul",
        "prod": "mul",
        "amax": "max",
        "amin": "min",
    }
    if reduce not in kinds:
        raise Unsupported(f"scatter with reduction '{reduce}' is not supported")
    at, new = integer_index(index), as_dtype(src, x.dtype)
    if not new.type.rank:
        new = ops.expand(new, shape=at.shape)
    for axis in range(at.type.rank):
        if new.shape[axis] > at.shape[axis]:
            new = ops.part(new, 0, at.shape[axis], axis=axis)
    result: Value = ops.scatter_elements(x, at, new, axis=axis_of(dim, x), reduction=kinds[reduce])
    return result


@importer("index_fill")
def index_fill(self: Value, dim: int, index: Value, value: Any) -> Value:
    return index_put(self, [*[None] * axis_of(dim, self), index], as_dtype(value, self.dtype))


@importer("index_copy")
def index_copy(self: Value, dim: int, index: Value, source: Value) -> Value:
    return index_put(self, [*[None] * axis_of(dim, self), index], source)


@importer("index_add")
def index_add(self: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    if alpha != 1:
        raise Unsupported("index_add with a factor is not supported")
    return index_put(self, [*[None] * axis_of(dim, self), index], source, accumulate=True)


@importer("slice_scatter")
def slice_scatter(
    self: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = axis_of(dim, self)
    a, b, s = slice(start, end, step).indices(self.shape[axis])
    return with_slice_replaced(self, src, axis, a, b, s)


@importer("select_scatter")
def select_scatter(self: Value, src: Value, dim: int, index: int) -> Value:
    axis = axis_of(dim, self)
    at = index % self.shape[axis]
    row = reshaped(src, (*self.shape[:axis], 1, *self.shape[axis + 1 :]))
    return with_slice_replaced(self, row, axis, at, at + 1)


@importer("bucketize")
def bucketize(
    self: Value, boundaries: Value, out_int32: bool = False, right: bool = False
) -> Value:
    """The number of boundaries below each element."""
    x = reshaped(self, (*self.shape, 1))
    below = ops.less_equal(boundaries, x) if right else ops.less(boundaries, x)
    result: Value = ops.reduce_sum(as_dtype(below, "i64"), axes=(self.type.rank,), keepdims=False)
    return result
