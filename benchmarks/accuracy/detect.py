"""Detections: how models spell them, how two sets of them compare, and COCO's average precision.

Detections are rows: class, score, left, top, right, bottom.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.accuracy import Array

THRESHOLDS = np.linspace(0.5, 0.95, 10)  # of the overlap, in COCO's average precision
EVERY = 1.0  # the overlap that nothing exceeds
MOST = 100  # detections of one picture that count


def overlap(a: Array, b: Array) -> Array:
    """Intersection over union of every box of `a` with every box of `b`."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both = np.prod(np.clip(high - low, 0, None), -1)
    areas = [np.prod(np.clip(x[:, 2:] - x[:, :2], 0, None), -1) for x in (a, b)]
    return both / np.maximum(areas[0][:, None] + areas[1][None] - both, 1e-12)


def suppress(found: Array, most: float) -> Array:
    """The best without those that overlap one of the same class with a higher score by more than
    `most`; all of them where that is `EVERY`."""
    found = found[np.argsort(-found[:, 1], kind="stable")][:3000]
    if most >= EVERY:
        return found
    kept = []
    while len(found) and len(kept) < MOST:
        kept.append(found[0])
        rest = found[1:]
        covered = overlap(found[:1, 2:], rest[:, 2:])[0] > most
        found = rest[~(covered & (rest[:, 0] == found[0, 0]))]
    return np.array(kept).reshape(-1, 6)


# ---- how models spell them -----------------------------------------------------------------------
def rows(boxes: Array, scores: Array, least: float) -> Array:
    """From boxes [n, 4] and scores by class [n, classes], all above `least`."""
    i, label = np.nonzero(scores > least)
    return np.column_stack([label, scores[i, label], boxes[i]]).astype(np.float64)


def corners(centred: Array) -> Array:
    """From centre x, centre y, width, height."""
    middle, half = centred[..., :2], centred[..., 2:4] / 2
    return np.concatenate([middle - half, middle + half], -1)


def grid(size: int, strides: Sequence[int]) -> tuple[Array, Array]:
    """Column and row of every cell of the levels of a square picture, and its stride."""
    places, steps = [], []
    for stride in strides:
        y, x = np.mgrid[: size // stride, : size // stride]
        places.append(np.stack([x.ravel(), y.ravel()], -1))
        steps.append(np.full((x.size, 1), stride))
    return np.concatenate(places), np.concatenate(steps)


def yolox(outputs: list[Array], least: float, most: float = 0.65, size: int = 416) -> Array:
    """[1, cells, 85]: offsets and logarithms of extents by cell, objectness, class scores."""
    made = outputs[0][0]
    cells, steps = grid(size, (8, 16, 32))
    boxes = np.concatenate([(made[:, :2] + cells) * steps, np.exp(made[:, 2:4]) * steps], -1)
    return suppress(rows(corners(boxes), made[:, 4:5] * made[:, 5:], least), most)


def fastestdet(outputs: list[Array], least: float, most: float = 0.45) -> Array:
    """[1, 85, 22, 22]: objectness, box, class scores; boxes as shares of the picture."""
    made = outputs[0][0].reshape(85, -1).T
    side = outputs[0].shape[-1]
    cells, _ = grid(side, (1,))
    middle = (cells + np.tanh(made[:, 1:3])) / side
    boxes = np.concatenate([middle, 1 / (1 + np.exp(-made[:, 3:5]))], -1)
    scores = made[:, :1] ** 0.6 * made[:, 5:] ** 0.4
    return suppress(rows(corners(boxes), scores, least), most)


def yolov8(outputs: list[Array], least: float, most: float = 0.45) -> Array:
    """[1, 4 + classes, cells]: centred boxes in pixels, then class scores."""
    made = outputs[0][0].T
    return suppress(rows(corners(made[:, :4]), made[:, 4:], least), most)


def ultraface(outputs: list[Array], least: float, most: float = 0.3) -> Array:
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
    return np.clip(np.array(rows), 0, 1)


def ultraface_anchors(outputs: list[Array], least: float, most: float = 0.3) -> Array:
    """Offsets from the anchors [1, n, 4], then scores [1, n, (no face, face)]."""
    offsets, anchors = outputs[0][0], _priors()
    middle = offsets[:, :2] * 0.1 * anchors[:, 2:] + anchors[:, :2]
    size = np.exp(offsets[:, 2:] * 0.2) * anchors[:, 2:]
    boxes = corners(np.concatenate([middle, size], -1))
    return suppress(rows(boxes, outputs[1][0, :, 1:], least), most)


def darknet(outputs: list[Array], least: float, most: float = 0.45) -> Array:
    """[1, n, 5 + classes] at each level: centred box as shares, objectness, scores by class."""
    made = np.concatenate([a[0] for a in outputs])
    return suppress(rows(corners(made[:, :4]), made[:, 5:], least), most)


def yunet(outputs: list[Array], least: float, most: float = 0.3, size: int = 320) -> Array:
    """Class and object scores, boxes and landmarks, each at three strides."""
    cls, obj, box = (np.concatenate([a[0] for a in outputs[i : i + 3]]) for i in (0, 3, 6))
    cells, steps = grid(size, (8, 16, 32))
    boxes = np.concatenate([(cells + box[:, :2]) * steps, np.exp(box[:, 2:]) * steps], -1)
    return suppress(rows(corners(boxes), np.sqrt(np.clip(cls * obj, 0, 1)), least), most)


# ---- comparing -----------------------------------------------------------------------------------
def agreement(
    pairs: Sequence[tuple[tuple[Array, Array], tuple[Array, Array]]],
    least: float,
    overlaps: float = 0.9,
    apart: float = 0.03,
) -> tuple[int, int]:
    """How many detections of either side the other one has too, and how many there are.

    Each side of a pair has its detections, and all boxes above `least` - `apart` that they were
    chosen from. A detection above `least` is there too if a box of the same class overlaps it by
    `overlaps` and has a score no further than `apart`: so one on the threshold is not missed for
    being a hair below it, nor one that another of the same score was preferred to.
    """
    same = total = 0
    for one, other in pairs:
        for (a, _), (_, b) in ((one, other), (other, one)):
            sure = a[a[:, 1] >= least]
            near = (overlap(sure[:, 2:], b[:, 2:]) >= overlaps) & (sure[:, :1] == b[:, 0])
            near &= np.abs(sure[:, 1:2] - b[:, 1]) <= apart
            same += int(near.any(1).sum())
            total += len(sure)
    return same, total


def average_precision(
    found: Sequence[Array], truth: Sequence[Array], classes: int = 80
) -> tuple[float, float]:
    """COCO's AP (overlaps of 0.5 to 0.95) and AP50, in percent, over the classes that occur.

    `truth` has one array per picture: class, left, top, right, bottom.
    """
    by_threshold = _precisions(_ranked(found, truth, classes))
    return float(by_threshold.mean()), float(by_threshold[0])


def by_picture(
    found: Sequence[Array], truth: Sequence[Array], only50: bool = False, classes: int = 80
) -> list[float]:
    """What each picture has to do with AP or AP50: the jackknife's pseudo-values.

    Their standard error is that of the average precision, which is no mean over pictures.
    """
    ranked, count = _ranked(found, truth, classes, 1 if only50 else len(THRESHOLDS)), len(truth)
    every = _precisions(ranked).mean()
    without = [_precisions(ranked, i).mean() for i in range(count)]
    return [float(count * every - (count - 1) * w) for w in without]


@dataclass(frozen=True)
class Ranked:
    """The detections of one class, highest score first."""

    right: Array  # [thresholds, detections]
    picture: Array  # of each detection
    wanted: Array  # boxes that there are, by picture

    def precision(self, left_out: int | None) -> Array:
        """At each threshold: precision averaged over 101 recalls."""
        right, wanted = self.right, self.wanted.sum()
        if left_out is not None:
            right, wanted = right[:, self.picture != left_out], wanted - self.wanted[left_out]
        true = np.cumsum(right, 1)
        recall = true / wanted
        precision = true / np.arange(1, right.shape[1] + 1)
        precision = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
        made = np.zeros(len(right))
        for i in range(len(right)):
            at = np.searchsorted(recall[i], np.linspace(0, 1, 101), "left")
            inside = at < right.shape[1]
            made[i] = precision[i, at[inside]].sum() / 101
        return made


def _ranked(
    found: Sequence[Array], truth: Sequence[Array], classes: int, thresholds: int = len(THRESHOLDS)
) -> list[Ranked]:
    """Of every class that occurs."""
    found = [f[np.argsort(-f[:, 1], kind="stable")][:MOST] for f in found]
    made = []
    for label in range(classes):
        wanted = [t[t[:, 0] == label][:, 1:] for t in truth]
        if any(map(len, wanted)):
            own = [f[f[:, 0] == label] for f in found]
            hits = [_hits(f, t, thresholds) for f, t in zip(own, wanted, strict=True)]
            order = np.argsort(-np.concatenate([f[:, 1] for f in own]), kind="stable")
            picture = np.repeat(np.arange(len(own)), [len(f) for f in own])
            counts = np.array([len(t) for t in wanted])
            made.append(Ranked(np.concatenate(hits, 1)[:, order], picture[order], counts))
    return made


def _precisions(ranked: Sequence[Ranked], left_out: int | None = None) -> Array:
    """At each threshold, in percent: the mean over the classes that the pictures have."""
    kept = [r for r in ranked if left_out is None or r.wanted.sum() > r.wanted[left_out]]
    return np.mean([r.precision(left_out) for r in kept], 0) * 100


def _hits(found: Array, truth: Array, thresholds: int) -> Array:
    """For each threshold and detection (highest score first) whether it found a box of its own."""
    right = np.zeros((thresholds, len(found)), bool)
    between = overlap(found[:, 2:], truth)
    for i, least in enumerate(THRESHOLDS[:thresholds]):
        free = np.ones(len(truth), bool)
        for d in range(len(found)):
            open_to = np.where(free, between[d], -1) if len(truth) else np.array([-1.0])
            best = int(open_to.argmax())
            if open_to[best] >= least:
                right[i, d], free[best] = True, False
    return right
