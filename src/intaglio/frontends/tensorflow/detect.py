"""Importers of NonMaxSuppression and CropAndResize."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.dynamic_shapes import min_with_extent
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.frontends.tensorflow.shape import extents
from intaglio.ir import Value, constant


def _kept_boxes(n: TfNode, iou: float, score: float) -> Value:
    """Indices of the kept boxes; their number is known only at run time."""
    boxes, scores = n.value(0), n.value(1)
    most = min_with_extent(n.value(2), scores)
    most = n.whole(2) if most is None else most
    if boxes.type.rank != 2 or scores.type.rank != 1 or most < 0:
        n.unsupported(
            f"boxes {boxes.type}, scores {scores.type} and max_output_size {most} do not fit"
        )
    count = boxes.shape[0]
    rows = ops.non_max_suppression(
        ops.reshape(boxes, shape=(1, -1, 4)),
        ops.reshape(scores, shape=(1, 1, -1)),
        max_output=min(most, count),
        iou_threshold=iou,
        score_threshold=score,
    )
    one = ops.part(rows, 2, 3, axis=1)
    result: Value = ops.cast(ops.reshape(one, shape=(-1,)), dtype="i32")
    return result


@importer("NonMaxSuppression")
def non_max_suppression(n: TfNode) -> Value:
    return _kept_boxes(n, n.attr("iou_threshold", 0.5), -np.inf)


@importer("NonMaxSuppressionV2")
def non_max_suppression_v2(n: TfNode) -> Value:
    return _kept_boxes(n, n.number(3), -np.inf)


@importer("NonMaxSuppressionV3")
def non_max_suppression_v3(n: TfNode) -> Value:
    return _kept_boxes(n, n.number(3), n.number(4))


@importer("NonMaxSuppressionV4", "NonMaxSuppressionV5")
def non_max_suppression_v5(n: TfNode) -> list[Value]:
    """V4 returns indices and their number; V5 also scores."""
    if n.op.endswith("5") and n.number(5):
        n.unsupported(f"soft NMS (sigma {n.number(5)}) is not supported")
    if n.attr("pad_to_max_output_size", False):
        n.unsupported("pad_to_max_output_size is not supported; export it without")
    found = _kept_boxes(n, n.number(3), n.number(4))
    count = ops.reshape(extents(n, found, "i32"), shape=())
    if n.op.endswith("4"):
        return [found, count]
    return [found, ops.gather(n.value(1), found, axis=0), count]


@importer("CropAndResize")
def crop_and_resize(n: TfNode) -> Value:
    """Bilinear or nearest crops; the boxes must be constant."""
    x, boxes, which, size = n.value(0), n.const(1), n.ints(2), n.ints(3)
    way = n.attr("method", "bilinear")
    if x.type.rank != 4 or boxes.shape != (len(which), 4) or len(size) != 2 or min(size) < 1:
        n.unsupported(f"{len(which)} box indices and boxes {boxes.shape} do not fit {x.type}")
    if way not in ("bilinear", "nearest") or not 0 < len(which) <= 4096:
        n.unsupported(f"its method is {way}; bilinear and nearest are supported")
    image = ops.transpose(ops.cast(x, dtype="f32"), perm=(0, 3, 1, 2))
    mode = (
        {"mode": "linear"}
        if way == "bilinear"
        else {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}
    )
    parts = []
    for (y1, x1, y2, x2), i in zip(boxes.tolist(), which, strict=True):
        if not 0 <= i < x.shape[0]:
            raise BadInput(f"box index {i} is outside of the batch of {x.shape[0]}")
        scales = tuple(s / d for s, d in zip(size, x.shape[1:3], strict=True))
        parts.append(
            ops.resize(
                ops.part(image, i, i + 1, axis=0),
                axes=(2, 3),
                shape=size,
                scales=scales,
                coordinate_transformation_mode="tf_crop_and_resize",
                roi=(y1, x1, y2, x2),
                extrapolation_value=n.attr("extrapolation_value", 0.0),
                **mode,
            )
        )
    result: Value = ops.transpose(
        ops.concat(*parts, axis=0) if len(parts) > 1 else parts[0], perm=(0, 2, 3, 1)
    )
    return result


@importer("CombinedNonMaxSuppression")
def combined_non_max_suppression(n: TfNode) -> list[Value]:
    """NMS per class for one image, then the best of all classes, padded with zeros."""
    boxes, scores = n.value(0), n.value(1)
    per_class, total, iou, least = n.whole(2), n.whole(3), n.number(4), n.number(5)
    if boxes.type.rank != 4 or boxes.shape[0] != 1 or boxes.shape[2] != 1:
        n.unsupported(f"boxes {boxes.type}; one image and one box for all classes are supported")
    count, classes = scores.shape[1:]
    flat = ops.reshape(boxes, shape=(1, count, 4))
    by_class = ops.transpose(scores, perm=(0, 2, 1))
    kept = ops.non_max_suppression(
        flat, by_class, max_output=min(per_class, count), iou_threshold=iou, score_threshold=least
    )
    marks = ops.scatter_nd(  # -1 for boxes that are not kept, below every score
        ops.expand(constant(-1.0, dtype="f32"), shape=(1, classes, count)),
        kept,
        ops.gather_nd(by_class, kept),
    )
    most = min(total, classes * count)
    if n.attr("pad_per_class", False):
        most = min(most, per_class * classes)
    best, at = ops.topk(ops.reshape(marks, shape=(1, classes * count)), k=most, axis=-1)
    real = ops.greater(best, constant(-1.0, dtype="f32"))
    label = ops.div(at, constant(count, dtype="i64"))
    place = ops.sub(at, ops.mul(label, constant(count, dtype="i64")))
    chosen = ops.gather(
        ops.reshape(boxes, shape=(count, 4)), ops.reshape(place, shape=(most,)), axis=0
    )
    if n.attr("clip_boxes", True):
        chosen = ops.clip(chosen, lo=0.0, hi=1.0)
    none = constant(0.0, dtype="f32")
    results = [
        ops.where(
            ops.reshape(chosen, shape=(1, most, 4)), none, ops.reshape(real, shape=(1, most, 1))
        ),
        ops.where(best, none, real),
        ops.where(ops.cast(label, dtype="f32"), none, real),
    ]
    width = total if not n.attr("pad_per_class", False) else min(total, per_class * classes)
    if width > most:
        more = (0, width - most)
        results = [
            ops.pad(r, before=(0,) * r.type.rank, after=more + (0,) * (r.type.rank - 2))
            for r in results
        ]
    valid = ops.reduce_sum(ops.cast(real, dtype="i32"), axes=(1,), keepdims=False)
    return [*results, valid]
