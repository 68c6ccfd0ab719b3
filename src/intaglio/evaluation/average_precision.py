"""Average precision of detections as COCO defines it.

AP is the mean over classes and over overlaps 0.5, 0.55, ... 0.95 of the precision at 101 recalls.
A picture counts at most 100 detections. Crowds are ignored: detections inside of them are neither
right nor wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio.ir import Array

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)
MOST = 100  # detections of a picture


@dataclass(frozen=True)
class Matches:
    """The detections of one class in one picture, best first, and the number of true boxes."""

    scores: Array  # [n]
    right: Array  # [overlaps, n]
    ignored: Array  # [overlaps, n]
    truths: int


@dataclass
class AveragePrecision:
    """Collects detections and true boxes picture by picture.

    Boxes are left, top, right, bottom; masks are bool arrays of the whole picture in their place.
    """

    pictures: list[dict[int, Matches]] = field(default_factory=list)

    def add(
        self,
        found: Sequence[tuple[int, float, Any]],
        truths: Sequence[tuple[int, Any]],
        crowds: Sequence[bool] = (),
    ) -> None:
        """Add a picture: detections (class, score, box) and true boxes (class, box)."""
        crowd = list(crowds) or [False] * len(truths)
        best = sorted(found, key=lambda f: -f[1])
        result: dict[int, Matches] = {}
        for label in {f[0] for f in best} | {t[0] for t in truths}:
            mine = [f for f in best if f[0] == label][:MOST]
            real = [(t[1], c) for t, c in zip(truths, crowd, strict=True) if t[0] == label]
            result[label] = _matched(mine, real)
        self.pictures.append(result)

    def by_class(self, picked: Sequence[int] | None = None) -> dict[int, Array]:
        """AP by class at every overlap; classes without true boxes are left out."""
        pictures = self.pictures if picked is None else [self.pictures[i] for i in picked]
        collected: dict[int, list[Matches]] = {}
        for p in pictures:
            for label, m in p.items():
                collected.setdefault(label, []).append(m)
        return {
            label: _precision(each)
            for label, each in sorted(collected.items())
            if sum(m.truths for m in each)
        }

    def figures(self, picked: Sequence[int] | None = None) -> dict[str, float]:
        """AP, AP50 and AP75, from 0 to 1; NaN without any true box."""
        every = list(self.by_class(picked).values())
        if not every:
            return dict.fromkeys(("AP", "AP50", "AP75"), float("nan"))
        table = np.stack(every)
        return {
            "AP": float(table.mean()),
            "AP50": float(table[:, 0].mean()),
            "AP75": float(table[:, 5].mean()),
        }


def _matched(
    found: Sequence[tuple[int, float, Any]], truths: Sequence[tuple[Any, bool]]
) -> Matches:
    """Every detection takes the free true box that it overlaps most, if by enough."""
    truths = sorted(truths, key=lambda t: t[1])  # crowds last
    crowd = np.array([c for _, c in truths], bool)
    shares = _shares([f[2] for f in found], [t[0] for t in truths], crowd)
    right = np.zeros((len(OVERLAPS), len(found)), bool)
    ignored = np.zeros_like(right)
    for t, least in enumerate(OVERLAPS):
        taken = np.zeros(len(truths), bool)
        for d in range(len(found)):
            best, at = min(least, 1 - 1e-10), -1
            for g in range(len(truths)):
                if taken[g] and not crowd[g]:
                    continue
                if at >= 0 and not crowd[at] and crowd[g]:
                    break
                if shares[d, g] >= best:
                    best, at = shares[d, g], g
            if at >= 0:
                taken[at] = True
                right[t, d], ignored[t, d] = True, crowd[at]
    scores = np.array([f[1] for f in found], np.float64)
    return Matches(scores, right, ignored, int((~crowd).sum()))


def _shares(found: Sequence[Any], truths: Sequence[Any], crowd: Array) -> Array:
    """The overlap of every detection with every true object: of masks, or of boxes."""
    if any(np.ndim(m) == 2 for m in (*found, *truths)):
        a, b = ([np.ravel(m) for m in each] for each in (found, truths))
        result = np.zeros((len(a), len(b)))
        for i, j in np.ndindex(*result.shape):
            both, own = int(np.count_nonzero(a[i] & b[j])), int(np.count_nonzero(a[i]))
            union = own if crowd[j] else own + int(np.count_nonzero(b[j])) - both
            result[i, j] = both / (union or 1)
        return result
    boxes = [np.array(each, np.float64).reshape(-1, 4) for each in (found, truths)]
    return _overlap(boxes[0], boxes[1], crowd)


def _overlap(a: Array, b: Array, crowd: Array) -> Array:
    """Intersection over union; over the detection's own area for crowds."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both = np.prod(np.clip(high - low, 0, None), -1)
    own, real = (np.prod(x[:, 2:] - x[:, :2], -1) for x in (a, b))
    union = np.where(crowd[None], own[:, None], own[:, None] + real[None] - both)
    result: Array = both / np.maximum(union, 1e-300)
    return result


def _precision(each: Sequence[Matches]) -> Array:
    """The mean precision at all recalls, at every overlap."""
    scores = np.concatenate([m.scores for m in each])
    order = np.argsort(-scores, kind="mergesort")
    right = np.concatenate([m.right for m in each], 1)[:, order]
    ignored = np.concatenate([m.ignored for m in each], 1)[:, order]
    total = sum(m.truths for m in each)
    result = np.zeros(len(OVERLAPS))
    for t in range(len(OVERLAPS)):
        hits = np.cumsum(right[t] & ~ignored[t]).astype(np.float64)
        misses = np.cumsum(~right[t] & ~ignored[t]).astype(np.float64)
        precision = hits / (hits + misses + np.spacing(1))
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        places = np.searchsorted(hits / total, RECALLS, side="left")
        inside = places < len(precision)
        result[t] = precision[places[inside]].sum() / len(RECALLS)
    return result


def names_to_indices(names: Sequence[str], known: Sequence[str]) -> dict[int, int]:
    """Classes of a model by their names in a dataset; those that it lacks are left out.

    If both have the same number of classes, names that neither knows of the other (motorbike,
    motorcycle) are the same at the same place.
    """
    mine, theirs = ([n.strip().lower() for n in each] for each in (names, known))
    place = {n: i for i, n in enumerate(theirs)}
    found = {i: place[n] for i, n in enumerate(mine) if n and n in place}
    if len(mine) == len(theirs):
        taken = set(found.values())
        found |= {i: i for i in range(len(mine)) if i not in found and i not in taken}
    return found
