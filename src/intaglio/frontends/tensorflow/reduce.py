"""Importers of reductions, cumulative sums, TopK and segment sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.segments import REDUCTIONS, reduce_segments, sum_sorted_segments
from intaglio.frontends.tensorflow.dynamic_shapes import min_with_extent, padded_rows, row_count
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Value, constant
from intaglio.ops.registry import normalize_axis

_REDUCTIONS: dict[str, Any] = {
    "Mean": ops.reduce_mean,
    "Sum": ops.reduce_sum,
    "Max": ops.reduce_max,
    "Min": ops.reduce_min,
    "Prod": ops.reduce_prod,
    "EuclideanNorm": ops.reduce_l2,
}


def _axes(n: TfNode, x: Value) -> tuple[int, ...]:
    return tuple(sorted({normalize_axis(a, x.type.rank) for a in n.ints(1)}))


@importer(*_REDUCTIONS)
def reduction(n: TfNode) -> Value:
    x = n.value(0)
    axes = _axes(n, x)
    if not axes:
        return x
    result: Value = _REDUCTIONS[n.op](x, axes=axes, keepdims=n.attr("keep_dims", False))
    return result


@importer("All", "Any")
def logical(n: TfNode) -> Value:
    x = n.value(0)
    axes = _axes(n, x)
    if not axes:
        return x
    op = ops.reduce_min if n.op == "All" else ops.reduce_max
    result: Value = op(ops.cast(x, dtype="u8"), axes=axes, keepdims=n.attr("keep_dims", False))
    result = ops.cast(result, dtype="bool")
    return result


@importer("ArgMax", "ArgMin")
def arg_extreme(n: TfNode) -> Value:
    x = n.value(0)
    op = ops.argmax if n.op == "ArgMax" else ops.argmin
    axis = normalize_axis(n.whole(1), x.type.rank)
    result: Value = ops.cast(op(x, axis=axis, keepdims=False), dtype=n.dtype("output_type", "i64"))
    return result


@importer("Cumsum", "Cumprod")
def cumulative(n: TfNode) -> Value:
    x = n.value(0)
    op = ops.cumsum if n.op == "Cumsum" else ops.cumprod
    way = {name: n.attr(name, False) for name in ("exclusive", "reverse")}
    result: Value = op(x, axis=normalize_axis(n.whole(1), x.type.rank), **way)
    return result


def _top_k_of_dynamic(n: TfNode, x: Value) -> list[Value]:
    """TopK of a run-time number of elements: pad with the lowest value, then slice the result."""
    most = min_with_extent(n.value(1), x)
    if most is None or not dtypes.is_float(x.dtype):
        n.unsupported(
            "k is known only at run time, and is not the minimum of a constant and the "
            "number of elements"
        )
    most = min(most, x.shape[0])
    values, places = ops.topk(padded_rows(x, x.shape[0], -np.inf), k=most, axis=0)
    count = ops.minimum(row_count(x), constant(most, dtype="i64"))
    first, step = constant(np.zeros(1, np.int64)), constant(np.ones(1, np.int64))
    stop = ops.reshape(count, shape=(1,))
    cut = [ops.slice_to(v, first, stop, step, axes=(0,), bound=(most,)) for v in (values, places)]
    return [cut[0], ops.cast(cut[1], dtype=n.dtype("index_type", "i32"))]


@importer("TopKV2", "TopK")
def top_k(n: TfNode) -> list[Value]:
    x = n.value(0)
    if n.op == "TopKV2" and x.type.dynamic == (0,) and x.type.rank == 1:
        return _top_k_of_dynamic(n, x)
    k = n.whole(1) if n.op == "TopKV2" else n.attr("k", 1)
    values, places = ops.topk(x, k=k, axis=-1, sorted=n.attr("sorted", True))
    return [values, ops.cast(places, dtype=n.dtype("index_type", "i32"))]


@importer("SegmentSum")
def segment_sum(n: TfNode) -> Value:
    return sum_sorted_segments(n.value(0), n.value(1), n.const(1))


_UNSORTED = {f"UnsortedSegment{k}": how for k, how in REDUCTIONS.items()}


@importer(*_UNSORTED)
def unsorted_segments(n: TfNode) -> Value:
    return reduce_segments(n.value(0), n.value(1), n.whole(2), _UNSORTED[n.op])
