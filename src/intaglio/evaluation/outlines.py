"""True masks of objects: polygons and run lengths as COCO stores them, as arrays of pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio.ir import Array

FINE = 5  # steps of a pixel in which COCO draws the outline of a polygon


def pixels_of(outline: Any, size: tuple[int, int]) -> Array:
    """The bool array [height, width] of a list of polygons or of run lengths."""
    if isinstance(outline, Mapping):
        return _runs(outline["counts"], size)
    result = np.zeros(size, bool)
    for polygon in outline:
        result |= _polygon(polygon, size)
    return result


def _runs(counts: Any, size: tuple[int, int]) -> Array:
    """Run lengths down the columns, zeros first; COCO also packs them into text."""
    numbers = _unpacked(counts) if isinstance(counts, str | bytes) else [int(n) for n in counts]
    flat = np.repeat(np.arange(len(numbers)) % 2 == 1, numbers)
    result: Array = flat.reshape(size[1], size[0]).T
    return result


def _unpacked(text: str | bytes) -> list[int]:
    """Numbers of five bits a character, low ones first; from the fourth on, they are differences
    to the number two places before."""
    data = text.encode() if isinstance(text, str) else text
    found: list[int] = []
    value = shift = 0
    for byte in data:
        code = byte - 48
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:
            value -= 1 << shift
        found.append(value + (found[-2] if len(found) > 2 else 0))
        value = shift = 0
    return found


def _polygon(corners: Sequence[float], size: tuple[int, int]) -> Array:
    """The pixels inside of a polygon x, y, x, y, ..., as pycocotools counts them: where its outline
    on a grid five times as fine passes the middle column of a pixel, inside and outside change."""
    height, width = size
    points = np.floor(np.asarray(corners, np.float64).reshape(-1, 2) * FINE + 0.5).astype(np.int64)
    line = np.concatenate(
        [_line(a, b) for a, b in zip(points, np.roll(points, -1, 0), strict=True)]
    )
    (u0, v0), (u1, v1) = line[:-1].T, line[1:].T
    x = (np.where(u1 < u0, u1, u1 - 1) + 0.5) / FINE - 0.5
    y = (np.minimum(v0, v1) + 0.5) / FINE - 0.5
    crossing = (u0 != u1) & (np.floor(x) == x) & (x >= 0) & (x <= width - 1)
    rows = np.ceil(np.clip(y[crossing], 0, height)).astype(np.int64)
    places = x[crossing].astype(np.int64) * height + rows
    changes = np.bincount(places, minlength=height * width + 1)[: height * width]
    inside: Array = (np.cumsum(changes) % 2 == 1).reshape(width, height).T
    return inside


def _line(a: Array, b: Array) -> Array:
    """The points of a line, one for each step along its longer axis, in its direction."""
    extent = np.abs(b - a)
    steps = int(extent.max())
    if steps == 0:
        return a[None]
    along = 0 if extent[0] >= extent[1] else 1  # rounding goes from the lower end on
    first, last = (b, a) if a[along] > b[along] else (a, b)
    t = np.arange(steps + 1)
    points = np.empty((steps + 1, 2), np.int64)
    points[:, along] = first[along] + t
    slope = (last[1 - along] - first[1 - along]) / steps
    points[:, 1 - along] = (first[1 - along] + slope * t + 0.5).astype(np.int64)
    return points if first is a else points[::-1]
