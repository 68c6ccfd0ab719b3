"""DetectionOutput of SSD: decode boxes, suppress overlaps, keep the best."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.caffe.file import Layer
from intaglio.frontends.caffe.layers import layer
from intaglio.ir import Value, constant

CODES = {"CORNER": 1, "CENTER_SIZE": 2, "CORNER_SIZE": 3}
BELOW_ALL_SCORES = -3.0e38


@layer("DetectionOutput")
def detection_output(of: Layer, places: Value, scores: Value, priors: Value) -> Value:
    """[1, 1, found, 7]: image, class, score, corners; `found` is known only at run time."""
    p = of.settings.inner("detection_output_param")
    nms = p.inner("nms_param")
    classes, shared = p.whole("num_classes", 0), p.flag("share_location", True)
    back = p.whole("background_label_id", 0)
    count, each = priors.type.size // 8, 1 if shared else classes
    n = scores.shape[0]
    fits = scores.type.size == n * count * classes and places.type.size == n * count * each * 4
    if classes < 1 or not count or priors.type.size != count * 8 or not fits:
        raise BadFile(
            f"caffe: {of}: {places.type}, {scores.type} and {priors.type} do not fit "
            f"{classes} classes"
        )
    if nms.number("eta", 1.0) != 1.0:
        raise Unsupported(
            f"caffe: {of}: adaptive thresholds (eta below 1) are not supported; set eta to 1"
        )
    labels = [c for c in range(classes) if c != back]
    if not labels:
        raise BadFile(f"caffe: {of} has only the background class")
    limit, keep = nms.whole("top_k", -1), p.whole("keep_top_k", -1)
    each_kept = count if limit < 0 else min(limit, count)
    if each_kept < 1 or keep == 0:
        raise BadFile(f"caffe: {of} keeps no boxes: top_k {limit}, keep_top_k {keep}")
    boxes = _decoded(of, places, priors, n, count, each)
    table = ops.transpose(ops.reshape(scores, shape=(n, count, classes)), perm=(0, 2, 1))
    table = _without(table, back, 1)  # [n, labels, count]
    if not shared:
        boxes = _without(ops.transpose(boxes, perm=(0, 2, 1, 3)), back, 1)
    table, boxes = _best_per_class(table, boxes, n, len(labels), count, each_kept, shared)
    kept = ops.non_max_suppression(
        _without_reversed(boxes),
        ops.reshape(table, shape=(n * len(labels), 1, each_kept)),
        max_output=each_kept,
        iou_threshold=_threshold(of, nms.number("nms_threshold", 0.3)),
        score_threshold=p.number("confidence_threshold", -1e9),
    )
    row = ops.reshape(ops.part(kept, 0, 1, axis=1), shape=(-1,))
    column = ops.reshape(ops.part(kept, 2, 3, axis=1), shape=(-1,))
    at = ops.add(ops.mul(row, np.int64(each_kept)), column)
    flat = ops.reshape(table, shape=(n * len(labels) * each_kept,))
    score = ops.gather(flat, at, axis=0)
    where = ops.gather(ops.reshape(boxes, shape=(flat.type.size, 4)), at, axis=0)
    told = np.array([[i, c] for i in range(n) for c in labels], np.float32)
    rows = ops.concat(
        ops.gather(constant(told), row, axis=0), ops.reshape(score, shape=(-1, 1)), where, axis=1
    )
    if 0 < keep < len(labels) * each_kept:
        rows = _keep_best(rows, at, score, keep, n, flat.type.size)
    return ops.reshape(rows, shape=(1, 1, -1, 7))


def _threshold(of: Layer, value: float) -> float:
    if not 0 <= value <= 1:
        raise BadFile(f"caffe: {of}: nms_threshold is {value}")
    return value


def _without_reversed(boxes: Value) -> Value:
    """Boxes with reversed corners get no area, so that they overlap with no other."""
    low, high = ops.part(boxes, 0, 2, axis=2), ops.part(boxes, 2, 4, axis=2)
    return ops.concat(low, ops.maximum(low, high), axis=2)


def _without(x: Value, index: int, axis: int) -> Value:
    """All slices but one."""
    end = x.shape[axis]
    if not 0 <= index < end:
        return x
    ends = ((0, index), (index + 1, end))
    parts = [ops.part(x, a, b, axis=axis) for a, b in ends if a < b]
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=axis)


def _decoded(of: Layer, places: Value, priors: Value, n: int, count: int, each: int) -> Value:
    """Corners [n, count, each, 4]; without `each` if all classes share them."""
    p = of.settings.inner("detection_output_param")
    given = str(p.one("code_type", "CORNER")).upper()
    code = CODES.get(given) or (int(given) if given in ("1", "2", "3") else 0)
    if not code:
        raise Unsupported(f"caffe: {of}: code_type {given}; {', '.join(CODES)} are supported")
    rows = ops.reshape(priors, shape=(2, 1, count, 1, 4))
    low, high = (
        _box_columns(ops.reshape(ops.part(rows, 0, 1, axis=0), shape=(1, count, 1, 4)), k)
        for k in (0, 2)
    )
    size = ops.sub(high, low)
    offsets = ops.reshape(places, shape=(n, count, each, 4))
    if not p.flag("variance_encoded_in_target", False):
        spread = ops.reshape(ops.part(rows, 1, 2, axis=0), shape=(1, count, 1, 4))
        offsets = ops.mul(offsets, spread)
    first, second = _box_columns(offsets, 0), _box_columns(offsets, 2)
    if code == CODES["CENTER_SIZE"]:
        middle = ops.mul(ops.add(low, high), np.float32(0.5))
        centre = ops.add(ops.mul(first, size), middle)
        half = ops.mul(ops.mul(ops.exp(second), size), np.float32(0.5))
        corners = ops.sub(centre, half), ops.add(centre, half)
    elif code == CODES["CORNER_SIZE"]:
        corners = (ops.add(ops.mul(first, size), low), ops.add(ops.mul(second, size), high))
    else:
        corners = ops.add(first, low), ops.add(second, high)
    result = ops.concat(*corners, axis=3)
    result = ops.clip(result, lo=0.0, hi=1.0) if p.flag("clip", False) else result
    return ops.reshape(result, shape=(n, count, 4)) if each == 1 else result


def _box_columns(x: Value, first: int) -> Value:
    return ops.part(x, first, first + 2, axis=3)


def _best_per_class(
    scores: Value, boxes: Value, n: int, labels: int, count: int, kept: int, shared: bool
) -> tuple[Value, Value]:
    """The `kept` best scores of each class and their boxes: [n * labels, kept] and [.., 4]."""
    if kept == count:
        if shared:
            spread = ops.reshape(boxes, shape=(n, 1, count, 4))
            boxes = ops.expand(spread, shape=(n, labels, count, 4))
        return scores, ops.reshape(boxes, shape=(n * labels, count, 4))
    top, at = ops.topk(scores, k=kept, axis=2)
    groups = n if shared else n * labels
    index = ops.reshape(at, shape=(groups, n * labels * kept // groups, 1))
    found = ops.gather_nd(ops.reshape(boxes, shape=(groups, count, 4)), index, batch_dims=1)
    return top, ops.reshape(found, shape=(n * labels, kept, 4))


def _keep_best(rows: Value, at: Value, score: Value, keep: int, n: int, size: int) -> Value:
    """The rows with the `keep` best scores of their image, in their order."""
    empty = constant(np.full(size, BELOW_ALL_SCORES, np.float32))
    spread = ops.scatter_nd(empty, ops.reshape(at, shape=(-1, 1)), score)
    best, _ = ops.topk(ops.reshape(spread, shape=(n, size // n)), k=keep, axis=1)
    least = ops.reshape(ops.part(best, keep - 1, keep, axis=1), shape=(n,))
    image = ops.gather(constant(np.repeat(np.arange(n, dtype=np.int64), size // n)), at, axis=0)
    return ops.compress(rows, ops.greater_equal(score, ops.gather(least, image, axis=0)), axis=0)
