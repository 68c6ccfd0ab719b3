"""Decoders: from the outputs of a detector to boxes.

A decoder takes the outputs in the model's order, the least score, the greatest overlap of two boxes
of a class, and the input's height and width. It returns rows of class, score, left, top, right,
bottom, best first. Boxes are in pixels of the input, or shares of its size.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.errors import BadInput, option
from intaglio.ir import Array
from intaglio.vision.boxes import cell_count, corners, grid, rows, suppress

STRIDES = (8, 16, 32)
# Sets of strides that one-stage detectors have; the first is by far the most common.
STRIDE_SETS = (STRIDES, (8, 16), (8, 16, 32, 64), (16, 32), (4, 8, 16, 32), (16,), (32,), (8,))
MOST_INVERTED = 0.05  # share of boxes whose right may be less than their left
Size = tuple[int, int]  # height, width


def are_cells(size: Size, n: int, anchors: int = 1) -> bool:
    """Whether n is the number of cells of a detector with usual strides."""
    return any(n == anchors * cell_count(size, strides) for strides in STRIDE_SETS)


def _cells_first(made: Array, size: Size) -> bool:
    """Whether the first axis has the cells, the second the columns."""
    first, second = (are_cells(size, n) for n in made.shape)
    return first > second or (first == second and made.shape[0] > made.shape[1])


# ---- YOLO ----
def yolov8(
    outputs: Sequence[Array],
    least: float,
    most: float = 0.45,
    *,
    size: Size | None = None,
    classes: int | None = None,
    masks: int = 0,
) -> Array:
    """[1, 4 + classes, cells] or transposed: centred boxes, then class scores (YOLOv8 to v12).

    With `masks`, the rows end with the coefficients of that many prototype maps.
    """
    result = outputs[0][0]
    result = result if size and _cells_first(result, size) else result.T
    scores = result[:, 4 : None if classes is None else 4 + classes]
    more = result[:, result.shape[1] - masks :]
    return suppress(rows(corners(result[:, :4]), scores, least, more), most)


def yolov5(
    outputs: Sequence[Array],
    least: float,
    most: float = 0.45,
    *,
    classes: int | None = None,
    masks: int = 0,
    **unused: Any,
) -> Array:
    """[1, cells, 5 + classes]: centred box, objectness, class scores (YOLOv5, v6, v7).

    With `masks`, the rows end with the coefficients of that many prototype maps.
    """
    result = outputs[0][0]
    scores = result[:, 5 : None if classes is None else 5 + classes]
    more = result[:, result.shape[1] - masks :]
    return suppress(rows(corners(result[:, :4]), result[:, 4:5] * scores, least, more), most)


def yolox(
    outputs: Sequence[Array], least: float, most: float = 0.65, *, size: Size, **unused: Any
) -> Array:
    """[1, cells, 5 + classes]: offsets and logarithms of extents by cell, objectness, scores.

    Exports with the last step inside hold centred boxes in pixels, which is seen by their values.
    """
    result = outputs[0][0]
    if float(np.abs(result[:, :4]).max(initial=0)) > max(size) / 4:
        return yolov5(outputs, least, most)
    strides = next(s for s in STRIDE_SETS if cell_count(size, s) == len(result))
    cells, steps = grid(size, strides)
    boxes = np.concatenate([(result[:, :2] + cells) * steps, np.exp(result[:, 2:4]) * steps], -1)
    return suppress(rows(corners(boxes), result[:, 4:5] * result[:, 5:], least), most)


def darknet(outputs: Sequence[Array], least: float, most: float = 0.45, **unused: Any) -> Array:
    """[1, n, 5 + classes] at each level: centred box as shares, objectness, scores by class."""
    result = np.concatenate([a[0] for a in outputs])
    return suppress(rows(corners(result[:, :4]), result[:, 5:], least), most)


def fastestdet(outputs: Sequence[Array], least: float, most: float = 0.45, **unused: Any) -> Array:
    """[1, 5 + classes, h, w]: objectness, box, class scores; boxes as shares of the picture."""
    result = outputs[0][0].reshape(outputs[0].shape[1], -1).T
    high, wide = outputs[0].shape[-2:]
    cells, _ = grid((high, wide), (1,))
    middle = (cells + np.tanh(result[:, 1:3])) / (wide, high)
    boxes = np.concatenate([middle, 1 / (1 + np.exp(-result[:, 3:5]))], -1)
    scores = result[:, :1] ** 0.6 * result[:, 5:] ** 0.4
    return suppress(rows(corners(boxes), scores, least), most)


# ---- SSD and faces ----
def ssd(outputs: Sequence[Array], least: float, most: float = 0.45, **unused: Any) -> Array:
    """Scores [1, n, 1 + classes], of which the first is background, and corners [1, n, 4]."""
    boxes, scores = sorted((a[0] for a in outputs[:2]), key=lambda a: a.shape[-1] != 4)
    if (boxes[:, 2:] < boxes[:, :2]).any(-1).mean() > MOST_INVERTED:
        raise BadInput(
            "the boxes are no corners: right is often less than left, so they are offsets from "
            "anchors, which the outputs do not hold; export the model with its last step inside, "
            f"or give {option('decode', 'ultraface_anchors')} for UltraFace"
        )
    return suppress(rows(boxes, scores[:, 1:], least), most)


def ultraface(outputs: Sequence[Array], least: float, most: float = 0.3, **unused: Any) -> Array:
    """Scores [1, n, (no face, face)] and corners as shares of the picture."""
    return suppress(rows(outputs[1][0], outputs[0][0, :, 1:], least), most)


@functools.cache
def _priors() -> Array:
    """UltraFace's anchors: centre x, centre y, width, height, as shares of a 320 x 240 picture."""
    rows = []
    sizes = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))
    for (high, wide), levels in zip(((30, 40), (15, 20), (8, 10), (4, 5)), sizes, strict=True):
        for y, x in np.ndindex(high, wide):
            rows += [((x + 0.5) / wide, (y + 0.5) / high, n / 320, n / 240) for n in levels]
    result: Array = np.clip(np.array(rows), 0, 1)
    return result


def ultraface_anchors(
    outputs: Sequence[Array], least: float, most: float = 0.3, **unused: Any
) -> Array:
    """Offsets from the anchors [1, n, 4], then scores [1, n, (no face, face)]."""
    offsets, anchors = outputs[0][0], _priors()
    middle = offsets[:, :2] * 0.1 * anchors[:, 2:] + anchors[:, :2]
    extents = np.exp(offsets[:, 2:] * 0.2) * anchors[:, 2:]
    boxes = corners(np.concatenate([middle, extents], -1))
    return suppress(rows(boxes, outputs[1][0, :, 1:], least), most)


def yunet(
    outputs: Sequence[Array], least: float, most: float = 0.3, *, size: Size, **unused: Any
) -> Array:
    """Class and object scores, boxes and landmarks, each at three strides."""
    cls, obj, box = (np.concatenate([a[0] for a in outputs[i : i + 3]]) for i in (0, 3, 6))
    cells, steps = grid(size, STRIDES)
    boxes = np.concatenate([(cells + box[:, :2]) * steps, np.exp(box[:, 2:]) * steps], -1)
    return suppress(rows(corners(boxes), np.sqrt(np.clip(cls * obj, 0, 1)), least), most)


# ---- boxes that went through non-maximum suppression ----
def nms_rows(outputs: Sequence[Array], least: float, most: float = 0.45, **unused: Any) -> Array:
    """Rows of finished boxes, in the order that their number of columns tells.

    6: corners, score, class (YOLOv10, Ultralytics with nms). 7: picture, corners, class, score
    (YOLOv7), or picture, class, score, corners (Caffe's DetectionOutput, four axes).
    """
    result = outputs[0].reshape(-1, outputs[0].shape[-1]).astype(np.float64)
    order = [5, 4, 0, 1, 2, 3]
    if result.shape[1] == 7:
        order = [1, 2, 3, 4, 5, 6] if outputs[0].ndim == 4 else [5, 6, 1, 2, 3, 4]
    return _best_first(result[:, order], least)


def nms_outputs(outputs: Sequence[Array], least: float, most: float = 0.45, **unused: Any) -> Array:
    """Boxes [n, 4], classes [n] and scores [n], and often the number of boxes (SSD with NMS).

    TensorFlow's boxes are top, left, bottom, right and its classes floats; where classes are
    integers, boxes are left, top, right, bottom.
    """
    flat = [a.reshape(a.shape[1:]) if a.ndim > 1 and a.shape[0] == 1 else a for a in outputs]
    boxes = next(a for a in flat if a.ndim == 2 and a.shape[-1] == 4)
    lists = [a.reshape(-1) for a in flat if a is not boxes and a.size == len(boxes)]
    label, score = _classes_and_scores(lists)
    count = [int(a.reshape(-1)[0]) for a in flat if a.size == 1 and len(boxes) != 1]
    found = slice(0, count[0] if count else len(boxes))
    if label.dtype.kind == "f":
        boxes = boxes[:, [1, 0, 3, 2]]
    return _best_first(np.column_stack([label, score, boxes]).astype(np.float64)[found], least)


def _classes_and_scores(lists: Sequence[Array]) -> tuple[Array, Array]:
    """Which of two lists has the classes: the integers, or the whole numbers."""
    one, other = lists[:2]
    if one.dtype.kind != other.dtype.kind:
        return (other, one) if one.dtype.kind == "f" else (one, other)
    whole = bool((one == np.round(one)).all()) and not bool((other == np.round(other)).all())
    return (one, other) if whole or float(one.max(initial=0)) > 1 else (other, one)


def _best_first(found: Array, least: float) -> Array:
    found = found[(found[:, 1] > least) & (found[:, 0] >= 0)]
    return found[np.argsort(-found[:, 1], kind="stable")]
