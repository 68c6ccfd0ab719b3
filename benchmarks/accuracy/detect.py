"""Detections: how two sets of them compare, and COCO's average precision.

Detections are rows: class, score, left, top, right, bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.accuracy import Array
from intaglio.vision import decode
from intaglio.vision.boxes import EVERY as EVERY
from intaglio.vision.boxes import MOST, overlap
from intaglio.vision.boxes import suppress as suppress

THRESHOLDS = np.linspace(0.5, 0.95, 10)  # of the overlap, in COCO's average precision


# The models' decoders are the library's own, at the sizes that the models have.
yolox = partial(decode.yolox, size=(416, 416))
yunet = partial(decode.yunet, size=(320, 320))
yolov8, fastestdet, darknet = decode.yolov8, decode.fastestdet, decode.darknet
ultraface, ultraface_anchors = decode.ultraface, decode.ultraface_anchors


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
