"""Measures of single pictures, and confidence intervals of their means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intaglio.ir import Array

RESAMPLES = 1000  # of the bootstrap
CONFIDENCE = 95.0  # per cent


def edit_distance(a: str, b: str) -> int:
    """The number of characters to insert, delete or replace (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def ctc_text(output: Array, characters: Sequence[str], blank: int = 0) -> str:
    """The text of [1, T, C] or [T, 1, C]: the best class of each step, without repeats and blanks.

    `characters` has the names of the classes but for the blank.
    """
    best = output.reshape(-1, output.shape[-1]).argmax(-1)
    kept = [int(c) for i, c in enumerate(best) if c != blank and (not i or c != best[i - 1])]
    places = [c - (c > blank) for c in kept]
    return "".join(characters[p] for p in places if p < len(characters))


def class_map(output: Array) -> Array:
    """The class of every pixel of [1, C, H, W], [1, H, W, C] or [1, H, W]."""
    a = output[0] if output.ndim > 2 and output.shape[0] == 1 else output
    if a.ndim == 2:
        return a.astype(np.int64) if a.dtype.kind in "iu" else np.rint(a).astype(np.int64)
    first = a.shape[0] <= a.shape[-1] and a.shape[0] != a.shape[1]
    if (a.shape[0] if first else a.shape[-1]) == 1:
        result: Array = (a.reshape(a.shape[1:] if first else a.shape[:2]) > 0.5).astype(np.int64)
        return result
    found: Array = a.argmax(0 if first else -1)
    return found


def confusion(found: Array, truth: Array, classes: int, ignore: int = 255) -> Array:
    """Pixels by true class (rows) and found class (columns)."""
    kept = (truth != ignore) & (truth < classes) & (truth >= 0)
    index = truth[kept].astype(np.int64) * classes + np.clip(found[kept], 0, classes - 1)
    return np.bincount(index, minlength=classes * classes).reshape(classes, classes)


def mean_iou(table: Array) -> float:
    """The mean intersection over union of classes that occur."""
    both = np.diag(table).astype(np.float64)
    union = table.sum(0) + table.sum(1) - both
    known = union > 0
    return float((both[known] / union[known]).mean()) if known.any() else float("nan")


def interval(
    figure: Callable[[Array], float], count: int, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """The 95 % bootstrap interval of a figure that is computed from some of the pictures."""
    rng = np.random.default_rng(seed)
    found = [figure(rng.integers(0, count, count)) for _ in range(resamples)]
    edge = (100 - CONFIDENCE) / 2
    low, high = np.nanpercentile(found, [edge, 100 - edge])
    return float(low), float(high)
