"""Importers of GATHER, SCATTER, ONE_HOT, TOPK, WHERE, RANGE, segment sums and others."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes, ops, symint
from intaglio.errors import BadInput
from intaglio.frontends.segments import (
    REDUCTIONS,
    one_hot_rows,
    reduce_segments,
    sum_sorted_segments,
)
from intaglio.frontends.tflite.node import TfliteNode, importer
from intaglio.frontends.topk_at_run_time import topk_at_run_time
from intaglio.frontends.value_bounds import bounds
from intaglio.ir import Value, constant
from intaglio.ops.registry import normalize_axis

MAX_ELEMENTS = 1 << 26  # of a constant that the import creates


@importer("TOPK_V2", stored=True)
def topk(n: TfliteNode) -> list[Value]:
    x, k = n.required(0), n.required(1)
    if k.data is None:
        values, places = topk_at_run_time(x, k, x.type.rank - 1, largest=True, sorted=True)
    else:
        values, places = ops.topk(x, k=n.ints(1)[0], axis=-1)
    return [values, ops.cast(places, dtype=n.out(1).dtype)]


@importer("ONE_HOT", stored=True)
def one_hot(n: TfliteNode) -> Value:
    x, depth = n.required(0), n.ints(1)[0]
    return one_hot_rows(x, n.required(2), n.required(3), depth, n.option("Axis", -1))


@importer("EMBEDDING_LOOKUP", stored=True)
def embedding_lookup(n: TfliteNode) -> Value:
    """Rows of a table, dequantised if the table is quantised and the result is not."""
    table = n.required(1) if n.out().dtype == n.required(1).dtype else n.real(1)
    y: Value = ops.gather(table, n.required(0), axis=0)
    return y


@importer("GATHER", stored=True)
def gather(n: TfliteNode) -> Value:
    """Gather along one axis; with batch axes, each batch entry has its own indices."""
    x, index, b = n.required(0), n.required(1), n.option("BatchDims", 0)
    rank = x.type.rank
    axis, b = normalize_axis(n.option("Axis", 0), rank), b + index.type.rank * (b < 0)
    if not b:
        y: Value = ops.gather(x, index, axis=axis)
        return y
    if not 0 <= b <= min(axis, index.type.rank) or x.shape[:b] != index.shape[:b]:
        n.unsupported(f"{b} batch axes do not fit {x.type} and {index.type}")
    moved = ops.transpose(x, perm=(*range(b), axis, *(i for i in range(b, rank) if i != axis)))
    wide = ops.cast(index, dtype="i64")
    got = ops.gather_nd(moved, ops.reshape(wide, shape=(*wide.shape, 1)), batch_dims=b)
    q, between = index.type.rank, axis - b
    perm = (*range(b), *range(q, q + between), *range(b, q), *range(q + between, got.type.rank))
    result: Value = ops.transpose(got, perm=perm)
    return result


@importer("SCATTER_ND", stored=True)
def scatter_nd(n: TfliteNode) -> Value:
    """Updates summed into a tensor of zeros."""
    index, updates, shape = n.required(0), n.required(1), _size(n, n.ints(2))
    zeros = constant(np.zeros(shape, dtypes.numpy_of(updates.dtype)))
    wide = ops.cast(index, dtype="i64")
    y: Value = ops.scatter_nd(zeros, wide, updates, reduction="add")
    return y


@importer("SPARSE_TO_DENSE", stored=True)
def sparse_to_dense(n: TfliteNode) -> Value:
    index, shape, values, rest = n.required(0), _size(n, n.ints(1)), n.required(2), n.required(3)
    coordinates = (math.prod(index.shape) // len(shape), len(shape)) if shape else (1, 0)
    where = ops.reshape(ops.cast(index, dtype="i64"), shape=coordinates)
    given = values if values.type.rank else ops.expand(values, shape=(1,))
    given = ops.expand(given, shape=coordinates[:1])
    y: Value = ops.scatter_nd(ops.expand(rest, shape=shape), where, given)
    return y


@importer("DYNAMIC_UPDATE_SLICE", stored=True)
def dynamic_update_slice(n: TfliteNode) -> Value:
    """Replace a slice of a tensor; the start is clamped so that the slice fits."""
    x, new, start = n.required(0), n.required(1), n.required(2)
    last_start = np.array([a - b for a, b in zip(x.shape, new.shape, strict=True)], np.int64)
    if (last_start < 0).any():
        n.unsupported(f"{new.type} does not fit into {x.type}")
    first = ops.minimum(
        ops.maximum(ops.cast(start, dtype="i64"), constant(0 * last_start)), constant(last_start)
    )
    cells = constant(np.moveaxis(np.indices(new.shape), 0, -1).astype(np.int64))
    y: Value = ops.scatter_nd(x, ops.add(cells, first), new)
    return y


@importer("REVERSE_V2", stored=True)
def reverse(n: TfliteNode) -> Value:
    x = n.required(0)
    rank = x.type.rank
    axes = {normalize_axis(a, rank) for a in n.ints(1)}
    ends = [(d - 1, -d - 1, -1) if i in axes else (0, d, 1) for i, d in enumerate(x.shape)]
    start, stop, step = zip(*ends, strict=True) if ends else ((), (), ())
    y: Value = ops.slice_(x, start=start, stop=stop, step=step)
    return y


@importer("REVERSE_SEQUENCE", stored=True)
def reverse_sequence(n: TfliteNode) -> Value:
    lens = ops.cast(n.required(1), dtype="i64")
    y: Value = ops.reverse_sequence(
        n.required(0), lens, batch_axis=n.option("BatchDim", 0), time_axis=n.option("SeqDim", 0)
    )
    return y


@importer("CUMSUM")
def cumsum(n: TfliteNode) -> Value:
    y: Value = ops.cumsum(
        n.required(0),
        axis=normalize_axis(n.ints(1)[0], n.required(0).type.rank),
        exclusive=bool(n.option("Exclusive", False)),
        reverse=bool(n.option("Reverse", False)),
    )
    return y


@importer("WHERE", stored=True)
def where(n: TfliteNode) -> Value:
    """Coordinates of the elements that are not 0, one row each; their number is dynamic."""
    x = n.required(0)
    y: Value = ops.transpose(ops.nonzero(x), perm=(1, 0))
    return y


@importer("ZEROS_LIKE", stored=True)
def zeros_like(n: TfliteNode) -> Value:
    x = n.required(0)
    return constant(np.zeros(x.shape, dtypes.numpy_of(x.dtype)))


@importer("RANK", stored=True)
def rank(n: TfliteNode) -> Value:
    return constant(n.required(0).type.rank, dtype=n.out().dtype)


@importer("RANGE", stored=True)
def range_(n: TfliteNode) -> Value:
    if any(n.required(i).data is None for i in (0, 1)):
        return _range_at_run_time(n)
    start, limit, delta = (n.const(i).item() for i in range(3))
    if not delta or not (limit - start) / delta < MAX_ELEMENTS:
        n.unsupported(f"from {start} to {limit} in steps of {delta} is too long")
    return constant(np.arange(start, limit, delta), dtype=n.out().dtype)


def _range_at_run_time(n: TfliteNode) -> Value:
    """A range whose ends have bounds, such as the smaller of a number and a constant."""
    start, limit, delta = (n.required(i) for i in range(3))
    step = float(n.const(2).item())
    (low, high), (first, last) = bounds(start), bounds(limit)
    longest = (last - low if step > 0 else first - high) / step if step else np.inf
    if not longest <= MAX_ELEMENTS:
        n.unsupported("its length is known only at run time and has no bound")
    scalars = (ops.reshape(v, shape=()) for v in (start, limit, delta))
    y: Value = ops.range_(*scalars, bound=(max(math.ceil(longest), 0),))
    return y


@importer("BROADCAST_ARGS", stored=True)
def broadcast_args(n: TfliteNode) -> Value:
    return constant(symint.broadcast(n.ints(0), n.ints(1)), dtype=n.out().dtype)


@importer("SEGMENT_SUM")
def segment_sum(n: TfliteNode) -> Value:
    ids = n.const(1).reshape(-1)
    if (np.diff(ids, prepend=-1) > 1).any():
        raise BadInput(f"segment ids {ids.tolist()[:8]} leave out a number; they must not")
    return sum_sorted_segments(n.required(0), n.required(1), ids)


_UNSORTED = {f"UNSORTED_SEGMENT_{k.upper()}": how for k, how in REDUCTIONS.items()}


@importer(*_UNSORTED)
def unsorted_segments(n: TfliteNode) -> Value:
    x, ids = n.required(0), n.required(1)
    return reduce_segments(x, ids, n.ints(2)[0], _UNSORTED[n.op.op])


def _size(n: TfliteNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    if min(shape, default=0) < 0 or math.prod(shape) > MAX_ELEMENTS:
        raise BadInput(
            f"a constant has shape {shape}; at most {MAX_ELEMENTS} elements are supported"
        )
    return shape
