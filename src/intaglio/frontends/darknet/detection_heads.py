"""YOLO detection heads: one row per box, x, y, w, h, objectness, scores.

Coordinates are relative to the image size. Rows are ordered by cell row, cell column and anchor. A
score is the objectness times the class probability, as Darknet's tools report it; no threshold is
applied.
"""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile
from intaglio.frontends.darknet.file import Section
from intaglio.frontends.darknet.layers import Net, centres, head_channels, layer, sized
from intaglio.ir import Value


def _anchors(section: Section, mask: list[int]) -> tuple[list[float], list[float]]:
    values = section.reals("anchors")
    if len(values) < 2 * (max(mask, default=-1) + 1) or min(mask, default=-1) < 0:
        raise BadFile(f"darknet: {section}: mask {mask} does not fit {len(values) // 2} anchors")
    return [values[2 * i] for i in mask], [values[2 * i + 1] for i in mask]


def _rows(parts: list[Value], n: int) -> Value:
    result = ops.concat(*parts, axis=4)
    return ops.reshape(result, shape=(n, result.type.size // n // result.shape[4], result.shape[4]))


@layer("yolo", "Gaussian_yolo")
def yolo(net: Net, section: Section, x: Value) -> Value:
    """YOLO 3 and 4: anchors in pixels of the net's input."""
    if section.name != "yolo":
        raise BadFile(f"darknet: {section}: Gaussian boxes are not supported; train with [yolo]")
    mask = section.wholes("mask") or list(range(section.whole("num", 1)))
    wide, high = _anchors(section, mask)
    (tx, ty, tw, th, confidence, classes), h, w = head_channels(x, len(mask), section)
    across, down = centres(h, w)
    scale, plain = section.real("scale_x_y", 1.0), section.whole("new_coords", 0)
    shift = np.float32((scale - 1) / 2)

    def place(t: Value, cell: np.ndarray, cells: int) -> Value:
        inside = t if plain else ops.sigmoid(t)
        if scale != 1.0:
            inside = ops.sub(ops.mul(inside, np.float32(scale)), shift)
        return ops.mul(ops.add(inside, cell), np.float32(1 / cells))

    def extent(t: Value, anchors: list[float], whole: int) -> Value:
        if plain:  # (2 t)^2
            return ops.mul(ops.mul(t, t), sized([4 * a / whole for a in anchors]))
        return ops.mul(ops.exp(t), sized([a / whole for a in anchors]))

    sure = confidence if plain else ops.sigmoid(confidence)
    scores = ops.mul(classes if plain else ops.sigmoid(classes), sure)
    net.heads.append(section.number)
    return _rows(
        [
            place(tx, across, w),
            place(ty, down, h),
            extent(tw, wide, net.width),
            extent(th, high, net.height),
            sure,
            scores,
        ],
        x.shape[0],
    )


@layer("region")
def region(net: Net, section: Section, x: Value) -> Value:
    """YOLO 2: anchors in units of cells, softmax over classes."""
    count = section.whole("num", 1)
    if section.text("tree"):
        raise BadFile(f"darknet: {section}: class trees are not supported; train without tree=")
    wide, high = _anchors(section, list(range(count)))
    (tx, ty, tw, th, confidence, classes), h, w = head_channels(x, count, section)
    across, down = centres(h, w)
    sure = ops.sigmoid(confidence)
    share = ops.softmax(classes, axis=4) if section.whole("softmax", 0) else ops.sigmoid(classes)
    net.heads.append(section.number)
    return _rows(
        [
            ops.mul(ops.add(ops.sigmoid(tx), across), np.float32(1 / w)),
            ops.mul(ops.add(ops.sigmoid(ty), down), np.float32(1 / h)),
            ops.mul(ops.exp(tw), sized([a / w for a in wide])),
            ops.mul(ops.exp(th), sized([a / h for a in high])),
            sure,
            ops.mul(share, sure),
        ],
        x.shape[0],
    )
