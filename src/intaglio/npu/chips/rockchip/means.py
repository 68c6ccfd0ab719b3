"""Means of windows: a depthwise convolution, and a product where windows have fewer pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node
from intaglio.npu.chips.rockchip.geometry import RK3588, Convolution, Design

MOST = 127  # of a factor's byte
MOST_WRONG = 1 / 128  # of a factor: a step of the largest number


@dataclass(frozen=True, slots=True)
class Factors:
    """What sums of padded windows are multiplied by: `unit` times bytes [1, C, H, W]."""

    values: Array
    unit: float


def mean_factor(node: Node) -> float:
    """What the sum of a window is multiplied by."""
    a = node.attrs
    count = np.float32(a["kernel"][0] * a["kernel"][1])
    return float(np.float32(a["x_scale"]) / (np.float32(a["y_scale"]) * count))


def mean_geometry(node: Node, design: Design = RK3588) -> Convolution:
    """The depthwise convolution that takes means."""
    x, a = node.inputs[0], node.attrs
    assert x is not None
    one = all(k == n for k, n in zip(a["kernel"], x.shape[2:], strict=True))
    strides = (1, 1) if one else tuple(a["stride"])
    sizes = x.shape[1], x.shape[2], x.shape[3], x.shape[1]
    window = tuple(a["kernel"]), strides, tuple(a["pad"])
    return Convolution(*sizes, *window, depthwise=True, design=design)


def factors_of_windows(node: Node) -> Factors | None:
    """For a mean that leaves out padding: the pixels of a whole window by those of each window.

    None if all windows are whole; BadInput if no bytes are near enough.
    """
    a, y = node.attrs, node.outputs[0]
    if not any(a["pad"]) or a["count_include_pad"]:
        return None
    x, (top, left, _, _) = node.inputs[0], a["pad"]
    assert x is not None
    rows, columns = (
        _pixels(extent, count, kernel, stride, before)
        for extent, count, kernel, stride, before in zip(
            x.shape[2:], y.shape[2:], a["kernel"], a["stride"], (top, left), strict=True
        )
    )
    counts = np.outer(rows, columns)
    if counts.min() < 1:
        raise BadInput(f"padding is {a['pad']}; every window needs a pixel of the map")
    factors = a["kernel"][0] * a["kernel"][1] / counts
    if (factors == 1).all():
        return None
    steps = np.arange(1, int(MOST / factors.max()) + 1).reshape(-1, 1)
    kinds = np.unique(factors)
    if not steps.size:
        raise BadInput(
            f"a window has {counts.min()} of {a['kernel']} pixels; a byte is at most 127"
        )
    wrong = np.abs(np.rint(steps * kinds) / (steps * kinds) - 1).max(1)
    best = int(steps[wrong.argmin(), 0])
    if wrong.min() > MOST_WRONG:
        raise BadInput(
            f"windows of {a['kernel']} pixels at the border need factors that no byte has"
        )
    values = np.broadcast_to(np.rint(factors * best).astype(np.int8), y.shape)
    return Factors(np.ascontiguousarray(values), 1 / best)


def _pixels(extent: int, count: int, kernel: int, stride: int, before: int) -> Array:
    """How many rows or columns of the map each window has."""
    first = np.arange(count) * stride - before
    made: Array = np.minimum(first + kernel, extent) - np.maximum(first, 0)
    return made
