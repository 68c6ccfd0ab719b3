"""Boxes as rows of class, score, left, top, right, bottom: overlap and non-maximum suppression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.ir import Array

EVERY = 1.0  # the overlap that nothing exceeds: boxes are not suppressed
MOST = 100  # detections of one picture
CANDIDATES = 3000  # boxes that suppression considers, best first


def overlap(a: Array, b: Array) -> Array:
    """Intersection over union of every box of `a` with every box of `b`."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both = np.prod(np.clip(high - low, 0, None), -1)
    areas = [np.prod(np.clip(x[:, 2:] - x[:, :2], 0, None), -1) for x in (a, b)]
    result: Array = both / np.maximum(areas[0][:, None] + areas[1][None] - both, 1e-12)
    return result


def suppress(found: Array, most: float) -> Array:
    """Non-maximum suppression, class by class.

    A box is dropped if it overlaps one of its class with a higher score by more than `most`. With
    `EVERY` all boxes stay, best first.
    """
    found = found[np.argsort(-found[:, 1], kind="stable")][:CANDIDATES]
    if most >= EVERY:
        return found
    kept, columns = list[Array](), found.shape[1]
    while len(found) and len(kept) < MOST:
        kept.append(found[0])
        rest = found[1:]
        covered = overlap(found[:1, 2:6], rest[:, 2:6])[0] > most
        found = rest[~(covered & (rest[:, 0] == found[0, 0]))]
    return np.array(kept).reshape(-1, columns)


def rows(boxes: Array, scores: Array, least: float, more: Array | None = None) -> Array:
    """Rows from boxes [n, 4] and scores by class [n, classes], all above `least`; `more` are
    columns behind those of the boxes."""
    i, label = np.nonzero(scores > least)
    behind = [] if more is None else [more[i]]
    return np.column_stack([label, scores[i, label], boxes[i], *behind]).astype(np.float64)


def corners(centred: Array) -> Array:
    """Left, top, right, bottom from centre x, centre y, width, height."""
    middle, half = centred[..., :2], centred[..., 2:4] / 2
    return np.concatenate([middle - half, middle + half], -1)


def grid(size: tuple[int, int], strides: Sequence[int]) -> tuple[Array, Array]:
    """Column and row of every cell of the levels of a picture (height, width), and its stride."""
    places, steps = [], []
    for stride in strides:
        y, x = np.mgrid[: size[0] // stride, : size[1] // stride]
        places.append(np.stack([x.ravel(), y.ravel()], -1))
        steps.append(np.full((x.size, 1), stride))
    return np.concatenate(places), np.concatenate(steps)


def cell_count(size: tuple[int, int], strides: Sequence[int]) -> int:
    """The number of cells of `grid`."""
    return sum((size[0] // s) * (size[1] // s) for s in strides)
