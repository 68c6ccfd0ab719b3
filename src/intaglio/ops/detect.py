"""Operations of object detectors: non-maximum suppression and region pooling (RoI)."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Type, Value
from intaglio.ops.precision import widen
from intaglio.ops.registry import op


# ---- non-maximum suppression ---------------------------------------------------------------------
def _non_max_suppression(
    boxes: Value,
    scores: Value,
    *,
    max_output: int,
    iou_threshold: float,
    score_threshold: float,
    center_point_box: bool,
) -> Type:
    if boxes.type.rank != 3 or boxes.shape[2] != 4 or boxes.dtype != scores.dtype:
        raise BadInput(
            f"boxes are {boxes.type}; batch × boxes × 4 of the type of the scores is needed"
        )
    if scores.type.rank != 3 or scores.shape[::2] != boxes.shape[:2]:
        raise BadInput(
            f"scores {scores.type} do not fit boxes {boxes.type}; batch × classes × boxes is needed"
        )
    if max_output < 0 or not 0 <= iou_threshold <= 1:
        raise BadInput(f"max_output {max_output} or iou_threshold {iou_threshold} is out of range")
    batches, classes, count = scores.shape
    return Type("i64", (batches * classes * min(max_output, count), 3), dynamic=(0,))


def _corners(boxes: Array, center_point_box: bool) -> tuple[Array, Array, Array, Array]:
    """Low and high x, low and high y."""
    if center_point_box:
        x, y, half_w, half_h = boxes[:, 0], boxes[:, 1], boxes[:, 2] / 2, boxes[:, 3] / 2
        return x - half_w, x + half_w, y - half_h, y + half_h
    y1, x1, y2, x2 = boxes.T
    return np.minimum(x1, x2), np.maximum(x1, x2), np.minimum(y1, y2), np.maximum(y1, y2)


@op(_non_max_suppression)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    *,
    max_output: int,
    iou_threshold: float = 0.0,
    score_threshold: float = -np.inf,
    center_point_box: bool = False,
) -> Array:
    """(batch, class, box) of each kept box: by descending score, without those that overlap one."""
    kept = []
    for batch, all_boxes in enumerate(boxes.astype(np.float32)):
        low_x, high_x, low_y, high_y = _corners(all_boxes, center_point_box)
        area = (high_x - low_x) * (high_y - low_y)
        for label, row in enumerate(scores[batch].astype(np.float32)):
            order = np.argsort(-row, kind="stable")
            order = order[row[order] > np.float32(score_threshold)]
            for _ in range(max_output):
                if not order.size:
                    break
                best, order = order[0], order[1:]
                kept.append((batch, label, best))
                w = np.minimum(high_x[best], high_x[order]) - np.maximum(low_x[best], low_x[order])
                h = np.minimum(high_y[best], high_y[order]) - np.maximum(low_y[best], low_y[order])
                shared = np.where((w > 0) & (h > 0), w * h, np.float32(0))
                union = area[best] + area[order] - shared
                real = (shared > 0) & (area[best] > 0) & (area[order] > 0) & (union > 0)
                overlaps = real & (shared / union > np.float32(iou_threshold))
                order = order[~overlaps]
    return np.array(kept, np.int64).reshape(-1, 3)


# ---- regions -------------------------------------------------------------------------------------
def _regions(x: Value, rois: Value, columns: int) -> None:
    if x.type.rank != 4 or not dtypes.is_float(x.dtype):
        raise BadInput(f"regions are pooled from images of floats, the tensor is {x.type}")
    if rois.dtype != x.dtype or rois.type.rank != 2 or rois.shape[1] != columns:
        raise BadInput(f"rois must be {x.dtype} regions × {columns}, they are {rois.type}")
    if 0 in x.shape[1:]:
        raise BadInput(f"{x.type} is empty; regions need pixels")


def _batch(index: int, x: Array, op: str) -> Array:
    if not 0 <= index < len(x):
        raise RunError(f"{op}: batch index {index} is outside of [0, {len(x) - 1}]")
    return x[index]


def _roi_align(
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
    coordinate_transformation_mode: str,
) -> Type:
    _regions(x, rois, 4)
    if batch_indices.dtype != "i64" or batch_indices.shape != rois.shape[:1]:
        raise BadInput(f"batch_indices must be i64, one per region: {batch_indices.type}")
    if mode not in ("avg", "max"):
        raise BadInput(f"roi_align mode '{mode}' is neither avg nor max")
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise BadInput(
            f"coordinate_transformation_mode '{coordinate_transformation_mode}' is neither "
            "half_pixel nor output_half_pixel"
        )
    if output_height < 1 or output_width < 1 or sampling_ratio < 0:
        raise BadInput(
            f"{output_height}x{output_width} outputs, {sampling_ratio} samples; at least 1x1 and "
            "0 are needed"
        )
    return Type(x.dtype, (rois.shape[0], x.shape[1], output_height, output_width))


def _roi_samples(
    start: np.float32, end: np.float32, bins: int, ratio: int, extent: int, at_least: float
) -> tuple[Array, Array, Array, Array, int]:
    """Along one axis: both neighbours of each sample, their weights, and the samples per bin."""
    f = np.float32
    length = max(end - start, f(at_least)) if at_least else end - start
    step = f(length / f(bins))
    count = ratio if ratio > 0 else int(np.ceil(step))
    within = (np.arange(count, dtype=f) + f(0.5)) * step / f(max(count, 1))
    at = (start + np.arange(bins, dtype=f)[:, None] * step + within).reshape(-1)
    inside = (at >= -1) & (at <= extent)
    at = np.clip(at, 0, extent - 1)
    low = np.where(inside, at, 0).astype(np.int64)
    high = np.minimum(low + 1, extent - 1)
    up = np.where(inside, at - low, f(0)).astype(f)
    down = np.where(inside, 1 - up, f(0)).astype(f)
    return low, high, down, up, count


@op(_roi_align, onnx="RoiAlign")
@widen
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Array:
    """Split each region (x1, y1, x2, y2) into bins; a bin is the mean (max) of bilinear samples."""
    half = coordinate_transformation_mode == "half_pixel"
    scale, offset = x.dtype.type(spatial_scale), x.dtype.type(0.5 if half else 0)
    at_least = 0.0 if half else 1.0
    height, width = x.shape[2:]
    out = np.zeros((len(rois), x.shape[1], output_height, output_width), x.dtype)
    for i, (roi, batch) in enumerate(zip(rois, batch_indices.tolist(), strict=True)):
        image = _batch(batch, x, "roi_align")
        x1, y1, x2, y2 = (roi * scale - offset).astype(np.float32)
        rows = _roi_samples(y1, y2, output_height, sampling_ratio, height, at_least)
        columns = _roi_samples(x1, x2, output_width, sampling_ratio, width, at_least)
        count = rows[4] * columns[4]
        if count == 0:
            continue
        shape = (x.shape[1], output_height, rows[4], output_width, columns[4])
        parts = [
            image[:, y][:, :, z] * (wy[:, None] * wz).astype(x.dtype)
            for y, wy in ((rows[0], rows[2]), (rows[1], rows[3]))
            for z, wz in ((columns[0], columns[2]), (columns[1], columns[3]))
        ]
        if mode == "avg":
            total = (parts[0] + parts[1] + parts[2] + parts[3]).reshape(shape)
            out[i] = total.sum((2, 4)) / x.dtype.type(count)
        else:  # the standard takes the largest weighted neighbour
            out[i] = np.maximum.reduce(parts).reshape(shape).max((2, 4))
    return out


def _max_roi_pool(
    x: Value, rois: Value, *, pooled_shape: tuple[int, ...], spatial_scale: float
) -> Type:
    _regions(x, rois, 5)
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        raise BadInput(f"pooled_shape {pooled_shape} must be a height and a width above 0")
    return Type(x.dtype, (rois.shape[0], x.shape[1], *pooled_shape))


def _bins(start: int, end: int, bins: int, extent: int) -> list[slice]:
    size = np.float32(max(end - start + 1, 1)) / np.float32(bins)
    edges = np.arange(bins + 1, dtype=np.float32) * size
    low = np.clip(np.floor(edges[:-1]) + start, 0, extent).astype(int)
    high = np.clip(np.ceil(edges[1:]) + start, 0, extent).astype(int)
    return [slice(a, b) for a, b in zip(low, high, strict=True)]


@op(_max_roi_pool, onnx="MaxRoiPool")
@widen
def max_roi_pool(
    x: Array, rois: Array, *, pooled_shape: tuple[int, ...], spatial_scale: float = 1.0
) -> Array:
    """Split each region (batch, x1, y1, x2, y2) into bins; a bin is its largest pixel, or 0."""
    out = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
    for i, roi in enumerate(rois):
        image = _batch(int(roi[0]), x, "max_roi_pool")
        scaled = roi[1:] * x.dtype.type(spatial_scale)
        x1, y1, x2, y2 = np.trunc(scaled + np.copysign(x.dtype.type(0.5), scaled)).astype(int)
        for r, rows in enumerate(_bins(y1, y2, pooled_shape[0], x.shape[2])):
            for c, columns in enumerate(_bins(x1, x2, pooled_shape[1], x.shape[3])):
                seen = image[:, rows, columns]
                if seen.shape[1] and seen.shape[2]:
                    out[i, :, r, c] = seen.max((1, 2))
    return out
