"""Masks of instances: coefficients of each kept box times the model's prototype maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.ir import Array
from intaglio.quant.samples.images import Fit, pillow
from intaglio.vision.decode import Size

Region = tuple[float, float, float, float]  # left, top, right, bottom


def channels_axis(shape: Sequence[int], size: Size) -> int | None:
    """The axis of the channels of prototype maps [1, C, h, w] or [1, h, w, C]; None if the other
    axes do not have the form of the input."""
    if len(shape) != 4 or shape[0] != 1:
        return None
    for axis, (h, w) in ((1, shape[2:]), (3, shape[1:3])):
        if 1 < h <= size[0] and h * size[1] == w * size[0]:
            return axis
    return None


def prototypes(shapes: Sequence[Sequence[int]], size: Size) -> tuple[int, int] | None:
    """Which output behind the first holds prototype maps, and how many; None without any."""
    for i, shape in enumerate(shapes[1:], 1):
        if (axis := channels_axis(shape, size)) is not None:
            return i, shape[axis]
    return None


def region_of(fit: Fit, into: Size) -> Region:
    """Where a picture lies in an input, in shares of it."""
    right, bottom = fit.left + fit.width, fit.top + fit.height
    return fit.left / into[1], fit.top / into[0], right / into[1], bottom / into[0]


def instance_masks(
    coefficients: Array, maps: Array, boxes: Array, region: Region, size: Size
) -> list[Array]:
    """The mask of each box: a bool array [bottom - top, right - left] of its whole pixels.

    `maps` are [C, h, w] over the input; `region` is the picture's place in it in shares. The maps'
    sum is brought to the picture by lines between centres of pixels; a pixel belongs to the object
    where it is above 0, inside of the box.
    """
    count, high, wide = maps.shape
    sums = (coefficients.astype(np.float32) @ maps.reshape(count, -1).astype(np.float32)).reshape(
        -1, high, wide
    )
    return [_mask(s, box, region, size) for s, box in zip(sums, boxes, strict=True)]


def pixels(box: Sequence[float] | Array, size: Size) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of the whole pixels of a box, inside of the picture."""
    left, top = (max(math.floor(n), 0) for n in box[:2])
    right, bottom = min(math.ceil(box[2]), size[1]), min(math.ceil(box[3]), size[0])
    return left, top, max(right, left), max(bottom, top)


def _mask(sums: Array, box: Array, region: Region, size: Size) -> Array:
    left, top, right, bottom = pixels(box, size)
    high, wide = sums.shape
    # the pixels' place in the map; the part of the picture that the input cuts off has no object
    columns = (
        region[0] + (np.arange(left, right) + 0.5) / size[1] * (region[2] - region[0])
    ) * wide
    rows = (region[1] + (np.arange(top, bottom) + 0.5) / size[0] * (region[3] - region[1])) * high
    inside = ((rows >= 0) & (rows <= high))[:, None] & ((columns >= 0) & (columns <= wide))[None]
    a, b, share = _between(columns, high=wide, ends=(region[0] * wide, region[2] * wide))
    across = sums[:, a] * (1 - share) + sums[:, b] * share
    a, b, share = _between(rows, high=high, ends=(region[1] * high, region[3] * high))
    made = across[a] * (1 - share)[:, None] + across[b] * share[:, None]
    result: Array = (made > 0) & inside
    return result


def _between(places: Array, high: int, ends: tuple[float, float]) -> tuple[Array, Array, Array]:
    """The two cells that each place lies between, and the share of the second; cells beside the
    picture (a letterbox) are not read."""
    first, last = max(round(ends[0]), 0), min(round(ends[1]), high) - 1
    at = np.clip(places - 0.5, first, max(last, first))
    a = np.floor(at).astype(np.int64)
    b = np.minimum(a + 1, max(last, first))
    return a, b, (at - a).astype(np.float32)


def tinted(image: Any, places: Sequence[tuple[tuple[int, int, int], Array, Region]]) -> Any:
    """A copy of a Pillow image with masks in colours, half transparent; the first lies on top."""
    made = np.array(image.convert("RGB"), np.float32)
    for colour, mask, box in reversed(places):
        left, top, right, bottom = pixels(box, made.shape[:2])
        part = made[top:bottom, left:right]
        part[mask] = part[mask] * 0.5 + np.array(colour, np.float32) * 0.5
    return pillow().fromarray(np.rint(made).astype(np.uint8))


def overlay(places: Sequence[tuple[tuple[int, int, int], Array, Region]], size: Size) -> Any:
    """The masks in colours, half transparent, as a Pillow image [RGBA] of a picture's size; the
    first lies on top."""
    made: Array = np.zeros((*size, 4), np.uint8)
    for colour, mask, box in reversed(places):
        left, top, right, bottom = pixels(box, size)
        made[top:bottom, left:right][mask] = *colour, 128
    return pillow().fromarray(made)


def whole(mask: Array, box: Sequence[float], size: Size) -> Array:
    """The mask of a box in a picture of this size."""
    result = np.zeros(size, bool)
    left, top, right, bottom = pixels(box, size)
    result[top:bottom, left:right] = mask
    return result


def run_lengths(mask: Array, box: Sequence[float], size: Size) -> dict[str, Any]:
    """The mask in the whole picture as COCO's run lengths: down the columns, zeros first."""
    flat = whole(mask, box, size).T.ravel()
    ends = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    counts = np.diff([0, *ends, flat.size]).tolist()
    return {"size": [*size], "counts": [0, *counts] if flat.size and flat[0] else counts}
