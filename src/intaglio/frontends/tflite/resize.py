"""Importers of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR; images are NHWC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.tflite.conv import STEP_JUST_BELOW_1, image
from intaglio.frontends.tflite.node import TfliteNode, importer, real, stored
from intaglio.ir import Array, Quant, Value, constant
from intaglio.ops.resize import resize_tables


def _size(n: TfliteNode) -> tuple[int, int]:
    size = n.ints(1)
    if len(size) != 2 or min(size) < 1:
        n.unsupported(f"the size is {size}; a height and a width are needed")
    return size[0], size[1]


def _bilinear(n: TfliteNode, x: Value) -> Value:
    size = _size(n)
    if n.option("AlignCorners", False):
        way = "align_corners"
    else:
        way = "half_pixel" if n.option("HalfPixelCenters", False) else "asymmetric"
    y = ops.resize(
        ops.channels_first(x),
        axes=(2, 3),
        shape=size,
        scales=tuple(s / d for s, d in zip(size, x.shape[1:3], strict=True)),
        mode="linear",
        coordinate_transformation_mode=way,
    )
    return ops.channels_last(y)


@importer("RESIZE_BILINEAR", stored=True)
def resize_bilinear(n: TfliteNode) -> Value:
    """Interpolation of stored integers. LiteRT rounds ties up; values are computed from the lowest
    integer with a step just below 1, so that ties round up here too."""
    x, t = image(n), n.out()
    if t.dtype not in ("i8", "u8"):
        return _bilinear(n, x) if t.quant is None else stored(_bilinear(n, n.real(0) or x), t)
    low = dtypes.limits(t.dtype)[0]
    y = _bilinear(n, real(x, Quant((1.0,), (low,))))
    return stored(y, replace(t, quant=Quant((STEP_JUST_BELOW_1,), (low,))))


@importer("RESIZE_NEAREST_NEIGHBOR", stored=True)
def resize_nearest(n: TfliteNode) -> Value:
    """A `resize` if it takes the pixels that LiteRT takes, otherwise a copy by LiteRT's table."""
    x, size = image(n), _size(n)
    corners, half = bool(n.option("AlignCorners", False)), bool(n.option("HalfPixelCenters", False))
    tables = [nearest_pixels(d, s, corners, half) for d, s in zip(x.shape[1:3], size, strict=True)]
    attrs: dict[str, Any] = {
        "axes": (2, 3),
        "shape": size,
        "scales": tuple(s / d for s, d in zip(size, x.shape[1:3], strict=True)),
        "mode": "nearest",
        "coordinate_transformation_mode": _transformation(corners, half),
        "nearest_mode": "round_prefer_ceil" if corners else "floor",
    }
    result = ops.resize.node(ops.channels_first(x), **attrs)
    theirs = resize_tables(list(x.shape[1:3]), **result.attrs)
    y: Value = result.outputs[0]
    if any((a != b.index[:, 0]).any() for a, b in zip(tables, theirs, strict=True)):
        y = ops.channels_first(x)
        for axis, t in enumerate(tables, 2):
            weight = constant(np.ones((len(t), 1), np.float32))
            y = ops.interpolate(y, constant(t.reshape(-1, 1)), weight, axis=axis)
    return ops.channels_last(y)


def _transformation(corners: bool, half: bool) -> str:
    if corners:
        return "align_corners"
    return "tf_half_pixel_for_nn" if half else "asymmetric"


def nearest_pixels(extent: int, out: int, corners: bool, half: bool) -> Array:
    """The input pixel of each output pixel, computed in f32 as LiteRT does.

    See GetNearestNeighbor in tensorflow/lite/kernels/internal/reference. The options may be
    combined: `half` then adds half a pixel before the scale of `corners` applies.
    """
    f = np.float32
    scale = f(extent - 1) / f(out - 1) if corners and out > 1 else f(extent) / f(out)
    at = (np.arange(out, dtype=f) + f(0.5 if half else 0)) * scale
    whole = np.floor(at + f(0.5)) if corners else np.floor(at)
    return np.minimum(whole, extent - 1).astype(np.int32)
