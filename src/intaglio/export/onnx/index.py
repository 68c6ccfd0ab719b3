"""ONNX forms of one-hot, trilu, top-k, cumulative sums and non-maximum suppression."""

from __future__ import annotations

import math

import numpy as np

from intaglio.export.onnx.elementwise import only
from intaglio.export.onnx.expression import Onnx, make, writes
from intaglio.ir import Node


@writes("one_hot")
def one_hot(n: Node) -> Onnx:
    indices, values = n.inputs
    return make("OneHot", indices, np.int64(n.attrs["depth"]), values, axis=n.attrs["axis"])


@writes("trilu")
def trilu(n: Node) -> Onnx:
    k = np.int64(n.attrs["k"]) if n.attrs["k"] else None
    return make("Trilu", only(n), k, upper=n.attrs["upper"])


@writes("topk")
def topk(n: Node) -> Onnx:
    rest = {name: n.attrs[name] for name in ("axis", "largest", "sorted")}
    return make("TopK", only(n), [n.attrs["k"]], **rest)


@writes("cumsum", "cumprod")
def cumulative(n: Node) -> Onnx:
    op_type = "CumSum" if n.op == "cumsum" else "CumProd"
    rest = {name: n.attrs[name] for name in ("exclusive", "reverse")}
    return make(op_type, only(n), np.int64(n.attrs["axis"]), **rest)


@writes("non_max_suppression")
def non_max_suppression(n: Node) -> Onnx:
    boxes, scores = n.inputs
    a, lowest = n.attrs, n.attrs["score_threshold"]
    return make(
        "NonMaxSuppression",
        boxes,
        scores,
        [a["max_output"]],
        np.array([a["iou_threshold"]], np.float32),
        np.array([lowest], np.float32) if lowest > -math.inf else None,
        center_point_box=a["center_point_box"],
    )
