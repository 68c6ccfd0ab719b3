"""ONNX Gather, Scatter, OneHot, TopK, Compress, Unique, CumSum and Trilu."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.frontends.onnx.dynamic_shapes import constant_if_fixed, reshaped
from intaglio.frontends.onnx.importer import OnnxNode, importer, scalar
from intaglio.frontends.topk_at_run_time import topk_at_run_time
from intaglio.ir import Value
from intaglio.ops.index import (
    compress,
    cumprod,
    cumsum,
    gather,
    one_hot,
    scatter_elements,
    tensor_scatter,
    topk,
    trilu,
    unique,
)
from intaglio.ops.registry import normalize_axis


def _flat(x: Value) -> Value:
    return reshaped(x, lambda s: (int(np.prod(s, dtype=np.int64)),))


@importer("Gather")
def import_gather(n: OnnxNode) -> Value:
    return constant_if_fixed(gather(n.required(0), n.required(1), axis=n.attr("axis", 0)))


@importer("Scatter")
def scatter(n: OnnxNode) -> Value:
    return scatter_elements(*n.inputs, axis=n.attr("axis", 0))


@importer("TensorScatter")
def import_tensor_scatter(n: OnnxNode) -> Value:
    return tensor_scatter(*n.inputs, axis=n.attr("axis", -2), mode=n.attr("mode", "linear"))


@importer("OneHot")
def import_one_hot(n: OnnxNode) -> Value:
    depth = int(scalar(n.const(1)))
    return one_hot(n.required(0), n.required(2), depth=depth, axis=n.attr("axis", -1))


@importer("TopK")
def import_topk(n: OnnxNode) -> list[Value]:
    x, axis = n.required(0), normalize_axis(n.attr("axis", -1), n.required(0).type.rank)
    how: dict[str, Any] = {
        "largest": bool(n.attr("largest", 1)),
        "sorted": bool(n.attr("sorted", 1)),
    }
    if "k" in n.attrs or n.is_const(1):
        k = n.attr("k") if "k" in n.attrs else int(scalar(n.const(1)))
        return topk(x, k=k, axis=axis, **how)
    return topk_at_run_time(x, n.required(1), axis, **how)


@importer("Compress")
def import_compress(n: OnnxNode) -> Value:
    x, axis = n.required(0), n.attr("axis")
    if axis is None:
        x, axis = _flat(x), 0
    if n.is_const(1):
        return gather(x, np.flatnonzero(n.const(1)), axis=axis)
    return compress(x, n.required(1), axis=axis)


@importer("Unique")
def import_unique(n: OnnxNode) -> list[Value]:
    x, axis = n.required(0), n.attr("axis")
    if axis is None:
        x, axis = _flat(x), 0
    return unique(x, axis=axis, sorted=bool(n.attr("sorted", 1)))


@importer("CumSum", "CumProd")
def cumulate(n: OnnxNode) -> Value:
    return (cumsum if n.op_type == "CumSum" else cumprod)(
        n.required(0),
        axis=int(scalar(n.const(1))),
        exclusive=bool(n.attr("exclusive", 0)),
        reverse=bool(n.attr("reverse", 0)),
    )


@importer("Trilu")
@importer("Trilu", domain="com.microsoft")
def import_trilu(n: OnnxNode) -> Value:
    k = int(scalar(n.const(1, np.zeros((), np.int64))))
    return trilu(n.required(0), k=k, upper=bool(n.attr("upper", 1)))
