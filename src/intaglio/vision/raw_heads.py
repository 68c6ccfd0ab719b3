"""Decoders of detectors that were cut before their last step, as compilers for NPUs want them.

The outputs are the maps of the last convolutions. Scores may be logits, or have gone through a
sigmoid, which is seen by their values.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.errors import BadInput, option
from intaglio.ir import Array
from intaglio.vision.boxes import corners, grid, rows, suppress

Size = tuple[int, int]  # height, width
BINS = 16  # of the distance to each side, in YOLOv8 and later
SIDES = 4
EPSILON = 1e-3
# Width and height of the three boxes of a cell, by level, in pixels.
ANCHORS_V5 = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
ANCHORS_V7 = (
    ((12, 16), (19, 36), (40, 28)),
    ((36, 75), (76, 55), (72, 146)),
    ((142, 110), (192, 243), (459, 401)),
)
SSD_LEVELS, SSD_LEAST, SSD_MOST = 6, 0.2, 0.95
SSD_RATIOS = (1.0, 2.0, 0.5, 3.0, 1 / 3)
SSD_FIRST = ((0.1, 1.0), (SSD_LEAST, 2.0), (SSD_LEAST, 0.5))  # scale, ratio of the largest map
SSD_VARIANCES = (10.0, 10.0, 5.0, 5.0)


def _scores(a: Array) -> Array:
    """Scores from logits; those between 0 and 1 are scores already."""
    if a.size and float(a.min()) >= -EPSILON and float(a.max()) <= 1 + EPSILON:
        return a
    result: Array = 1 / (1 + np.exp(-np.clip(a, -80, 80)))
    return result


def _levels(outputs: Sequence[Array]) -> list[list[Array]]:
    """The maps [C, h, w] by level, the finest first; each level in the order of the outputs."""
    found: dict[tuple[int, int], list[Array]] = {}
    for a in outputs:
        if a.ndim == 4:
            found.setdefault((a.shape[2], a.shape[3]), []).append(a[0])
    return [found[place] for place in sorted(found, reverse=True)]


def _anchored(
    outputs: Sequence[Array], least: float, most: float, size: Size, anchors: Any
) -> Array:
    levels = _levels(outputs)
    if len(levels) != len(anchors):
        raise BadInput(
            f"the outputs have maps of {len(levels)} sizes; the anchors are for {len(anchors)}"
        )
    each = []
    for (made, *_), sizes in zip(levels, anchors, strict=True):
        high, wide = made.shape[1:]
        values = _scores(made.reshape(len(sizes), -1, high * wide).transpose(0, 2, 1))
        cells, _ = grid((high, wide), (1,))
        stride = size[1] / wide, size[0] / high
        middle = (values[..., :2] * 2 - 0.5 + cells) * stride
        extents = (values[..., 2:4] * 2) ** 2 * np.array(sizes)[:, None]
        boxes = corners(np.concatenate([middle, extents], -1)).reshape(-1, 4)
        scores = (values[..., 4:5] * values[..., 5:]).reshape(len(boxes), -1)
        each.append(rows(boxes, scores, least))
    return suppress(np.concatenate(each), most)


def yolov5_raw(
    outputs: Sequence[Array], least: float, most: float = 0.45, *, size: Size, **unused: Any
) -> Array:
    """[1, 3 * (5 + classes), h, w] at three strides, with the anchors of YOLOv5."""
    return _anchored(outputs, least, most, size, ANCHORS_V5)


def yolov7_raw(
    outputs: Sequence[Array], least: float, most: float = 0.45, *, size: Size, **unused: Any
) -> Array:
    """[1, 3 * (5 + classes), h, w] at three strides, with the anchors of YOLOv7."""
    return _anchored(outputs, least, most, size, ANCHORS_V7)


def yolov8_raw(
    outputs: Sequence[Array], least: float, most: float = 0.45, *, size: Size, **unused: Any
) -> Array:
    """At each stride a map with the distances to the four sides, [1, 64, h, w] or [1, 4, h, w],
    and one with the scores of the classes; or both in one (YOLOv6, v8 to v12).

    Maps of one channel beside them (sums of the scores) are not needed.
    """
    each, levels = [], _levels(outputs)
    if len(levels) < 2:
        raise BadInput(
            f"YOLOv8 has maps of three or more sizes, the outputs have {len(levels)}; give another "
            f"{option('decode')}"
        )
    for maps in levels:
        box, score = _split(maps)
        high, wide = box.shape[1:]
        sides = box.reshape(SIDES, -1, high * wide).astype(np.float64)
        if sides.shape[1] > 1:  # the mean of a distribution over the bins
            share = np.exp(sides - sides.max(1, keepdims=True))
            bins = np.arange(sides.shape[1])[None, :, None]
            sides = (share * bins).sum(1, keepdims=True) / share.sum(1, keepdims=True)
        left, top, right, bottom = sides[:, 0]
        cells, _ = grid((high, wide), (1,))
        x, y = (cells + 0.5).T
        boxes = np.stack([x - left, y - top, x + right, y + bottom], -1)
        boxes *= (size[1] / wide, size[0] / high) * 2
        scores = _scores(score.reshape(len(score), -1).T)
        each.append(rows(boxes, scores, least))
    return suppress(np.concatenate(each), most)


def _split(maps: Sequence[Array]) -> tuple[Array, Array]:
    """The maps of the boxes and of the classes of a level."""
    if len(maps) == 1:
        whole = maps[0]
        sides = SIDES * BINS if len(whole) > SIDES * BINS else SIDES
        if len(whole) <= sides:
            raise BadInput(f"a map of {len(whole)} channels has no room for boxes and classes")
        return whole[:sides], whole[sides:]
    box = next((m for m in maps if len(m) in (SIDES * BINS, SIDES)), None)
    others = [m for m in maps if m is not box]
    if box is None:
        raise BadInput("no map has 64 or 4 channels, for the distances to the sides")
    return box, max(others, key=len)


@functools.cache
def ssd_boxes(size: Size) -> Array:
    """The default boxes of TensorFlow's SSD with six maps: centre y, x, height, width as shares."""
    scales = np.linspace(SSD_LEAST, SSD_MOST, SSD_LEVELS)
    high, wide = (-(-n // 16) for n in size)
    result = []
    for k, scale in enumerate(scales):
        after = scales[k + 1] if k + 1 < SSD_LEVELS else 1.0
        kinds: Any = [(scale, r) for r in SSD_RATIOS] + [(np.sqrt(scale * after), 1.0)]
        for y, x in np.ndindex(high, wide):
            for s, ratio in kinds if k else SSD_FIRST:
                middle = (y + 0.5) / high, (x + 0.5) / wide
                result.append((*middle, s / np.sqrt(ratio), s * np.sqrt(ratio)))
        high, wide = -(-high // 2), -(-wide // 2)
    return np.array(result)


def ssd_raw(
    outputs: Sequence[Array], least: float, most: float = 0.6, *, size: Size, **unused: Any
) -> Array:
    """Offsets from TensorFlow's default boxes [1, n, 4] (also [1, n, 1, 4]), and scores of
    background and classes [1, n, 1 + classes] (MobileNet-SSD before its last step)."""
    flat = [a.reshape(-1, a.shape[-1]).astype(np.float64) for a in outputs[:2]]
    offsets, scores = sorted(flat, key=lambda a: a.shape[-1] != SIDES)
    known = ssd_boxes(size)
    if len(known) != len(offsets):
        raise BadInput(
            f"the outputs have {len(offsets)} boxes, TensorFlow's SSD with six maps has "
            f"{len(known)} at {size[1]}x{size[0]}; export the model with its last step inside, or "
            f"read its outputs with another {option('decode')}"
        )
    offsets = offsets / SSD_VARIANCES
    middle = offsets[:, :2] * known[:, 2:] + known[:, :2]
    extents = np.exp(np.clip(offsets[:, 2:], None, 20)) * known[:, 2:]
    boxes = corners(np.concatenate([middle, extents], -1))[:, [1, 0, 3, 2]]
    return suppress(rows(boxes, _scores(scores)[:, 1:], least), most)
