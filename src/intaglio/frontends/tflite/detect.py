"""Importers of TFLite_Detection_PostProcess (SSD) and NON_MAX_SUPPRESSION."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.tflite.node import TfliteNode, custom_options, importer
from intaglio.ir import Value, constant


def _f(x: float) -> Value:
    return constant(x, dtype="f32")


def _number(options: dict[str, Any], name: str, default: float | None = None) -> float:
    v = options.get(name, default)
    if isinstance(v, bool | int | float) and math.isfinite(v):
        return float(v)
    raise BadInput(f"option {name} is {v!r}; a number is needed")


def just_below(threshold: float) -> float:
    """The next f32 below a threshold: `> just_below(t)` means `>= t`."""
    return float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))


@importer("TFLite_Detection_PostProcess", custom=True)
def detection_postprocess(n: TfliteNode) -> list[Value]:
    """Boxes [1, k, 4], classes, scores and their number; padded with zeros to k."""
    o = custom_options(n)
    coded, scores, anchors = n.required(0), n.required(1), n.required(2)
    count, classes = int(_number(o, "max_detections")), int(_number(o, "num_classes"))
    each = int(_number(o, "max_classes_per_detection", 1))
    if coded.shape[:1] != (1,) or coded.type.rank != 3 or scores.type.rank != 3 or count < 1:
        n.unsupported(f"boxes {coded.type} and {scores.type}; only a batch of 1 is supported")
    if each != 1 and not o.get("use_regular_nms"):
        n.unsupported(f"max_classes_per_detection is {each}; only 1 is supported")
    boxes = _decoded(coded, anchors, [_number(o, f"{k}_scale") for k in "yxhw"])
    total = scores.shape[2]
    if not 0 <= total - classes <= 1:
        n.unsupported(f"{total} columns of scores do not fit {classes} classes")
    scores = ops.part(scores, total - classes, total, axis=2)  # without the background
    how = {
        "iou_threshold": _number(o, "nms_iou_threshold"),
        "score_threshold": just_below(_number(o, "nms_score_threshold")),
    }
    if o.get("use_regular_nms"):
        few = int(_number(o, "detections_per_class", 100))
        return _regular(boxes, scores, count, few, how)
    return _fast(boxes, scores, count, how)


def _decoded(coded: Value, anchors: Value, scales: list[float]) -> Value:
    """Corners ymin, xmin, ymax, xmax [1, n, 4] of centres and sizes relative to the anchors."""
    first, second = (ops.part(coded, k, k + 2, axis=2) for k in (0, 2))
    where, size = (ops.part(anchors, k, k + 2, axis=1) for k in (0, 2))
    by = [constant(np.array(scales[k : k + 2], np.float32)) for k in (0, 2)]
    centre = ops.add(ops.mul(ops.div(first, by[0]), size), where)
    half = ops.mul(ops.mul(_f(0.5), ops.exp(ops.div(second, by[1]))), size)
    result: Value = ops.concat(ops.sub(centre, half), ops.add(centre, half), axis=2)
    return result


def _chosen(kept: Value, column: int, count: int, nothing: int) -> Value:
    """The first `count` entries of a column of the kept boxes, padded with `nothing`."""
    rows = ops.reshape(ops.part(kept, column, column + 1, axis=1), shape=(-1,))
    filled = ops.concat(rows, constant(np.full(count, nothing, np.int64)), axis=0)
    result: Value = ops.gather(filled, constant(np.arange(count)), axis=0)
    return result


def _rows(table: Value, index: Value) -> Value:
    """Rows of a table; the index behind the last row gives zeros."""
    none = constant(np.zeros((1, *table.shape[1:]), np.float32))
    result: Value = ops.gather(ops.concat(table, none, axis=0), index, axis=0)
    return result


def _results(boxes: Value, index: Value, labels: Value, scores: Value, nothing: int) -> list[Value]:
    found = ops.cast(ops.less(index, constant(nothing, dtype="i64")), dtype="f32")
    count = index.shape[0]
    flat = ops.reshape(boxes, shape=(boxes.shape[1], 4))
    return [
        ops.reshape(_rows(flat, index), shape=(1, count, 4)),
        ops.reshape(labels, shape=(1, count)),
        ops.reshape(scores, shape=(1, count)),
        ops.reduce_sum(found, axes=(0,), keepdims=True),
    ]


def _fast(boxes: Value, scores: Value, count: int, how: dict[str, Any]) -> list[Value]:
    """Fast NMS: each box keeps its best class, and all boxes compete."""
    total = scores.shape[1]
    best = ops.reduce_max(scores, axes=(2,), keepdims=False)  # [1, n]
    label = ops.cast(ops.argmax(scores, axis=2, keepdims=False), dtype="f32")
    kept = ops.non_max_suppression(
        boxes, ops.reshape(best, shape=(1, 1, total)), max_output=count, **how
    )
    index = _chosen(kept, 2, count, total)
    label, best = (_rows(ops.reshape(v, shape=(total,)), index) for v in (label, best))
    return _results(boxes, index, label, best, total)


def _regular(boxes: Value, scores: Value, count: int, few: int, how: dict[str, Any]) -> list[Value]:
    """Regular NMS: boxes compete within their class; the best of all classes remain."""
    total, classes = scores.shape[1:]
    turned = ops.transpose(scores, perm=(0, 2, 1))
    kept = ops.non_max_suppression(boxes, turned, max_output=few, **how)
    most = max(classes * min(few, total), count)
    label, index = (_chosen(kept, k, most, nothing) for k, nothing in ((1, 0), (2, total)))
    place = ops.add(ops.mul(index, constant(classes, dtype="i64")), label)
    flat = ops.reshape(scores, shape=(total * classes,))
    low = constant(np.full(1, -1.0, np.float32))  # below every score
    every = ops.gather(
        ops.concat(flat, low, axis=0),
        ops.minimum(place, constant(total * classes, dtype="i64")),
        axis=0,
    )
    top, where = ops.topk(every, k=count, axis=0)
    index, label = (ops.gather(v, where, axis=0) for v in (index, label))
    found = ops.cast(ops.less(index, constant(total, dtype="i64")), dtype="f32")
    label = ops.mul(ops.cast(label, dtype="f32"), found)
    return _results(boxes, index, label, ops.mul(top, found), total)


@importer("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(n: TfliteNode) -> list[Value]:
    """Indices (V5: and scores) padded with zeros to the maximum, and their number."""
    boxes, scores, count = n.required(0), n.required(1), int(n.const(2).item())
    soft = float(n.const(5).item()) if n.op.op.endswith("V5") else 0.0
    if soft:
        n.unsupported(f"soft NMS (sigma {soft}) is not supported; use sigma 0")
    total = boxes.shape[0]
    kept = ops.non_max_suppression(
        ops.reshape(boxes, shape=(1, total, 4)),
        ops.reshape(scores, shape=(1, 1, total)),
        max_output=count,
        iou_threshold=float(n.const(3).item()),
        score_threshold=float(n.const(4).item()),
    )
    index = _chosen(kept, 2, count, total)
    there = ops.less(index, constant(total, dtype="i64"))
    number = ops.reduce_sum(ops.cast(there, dtype="i32"), axes=(0,), keepdims=False)
    zero = constant(np.zeros((), np.int64))
    results = [ops.cast(ops.where(index, zero, there), dtype="i32")]
    if n.op.op.endswith("V5"):
        results.append(_rows(ops.reshape(scores, shape=(total,)), index))
    return [*results, number]
