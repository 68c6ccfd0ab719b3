"""Pixels of AI2D: layouts, resizing, affine maps and borders, in floats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array


class Format(IntEnum):
    """Layouts of pictures."""

    YUV420_NV12 = 0
    YUV420_NV21 = 1
    YUV420_I420 = 2
    NCHW_FMT = 3
    RGB_packed = 4
    RAW16 = 5


class Method(IntEnum):
    """How pixels between others are computed."""

    tf_nearest = 0
    tf_bilinear = 1
    cv2_nearest = 2
    cv2_bilinear = 3


class Mode(IntEnum):
    """Which points of two pictures lie on each other."""

    none = 0
    align_corner = 1
    half_pixel = 2


class PadMode(IntEnum):
    """What is around the picture."""

    constant = 0
    copy = 1
    mirror = 2


PLANES = (Format.YUV420_NV12, Format.YUV420_NV21, Format.YUV420_I420)
PAD = {PadMode.constant: "constant", PadMode.copy: "edge", PadMode.mirror: "reflect"}


@dataclass(frozen=True)
class Affine:
    """A matrix from input to output coordinates, and what lies outside of the input."""

    method: Method
    rounds: int
    edge: bool  # outside are the pixels of the edge, not `value`
    value: int
    smooth: bool  # pixels at the edge mix with those outside
    matrix: tuple[float, ...]


def resized(planes: Array, size: tuple[int, int], method: Method, mode: Mode) -> Array:
    """N x C x H x W at another height and width."""
    for axis, extent in ((2, size[0]), (3, size[1])):
        place = _places(planes.shape[axis], extent, method, mode)
        last = planes.shape[axis] - 1
        if method in (Method.tf_nearest, Method.cv2_nearest):
            planes = planes.take(np.clip(place, 0, last).astype(np.int64), axis)
            continue
        place = np.clip(place, 0, last)
        low = np.floor(place).astype(np.int64)
        weight = (place - low).astype(np.float32).reshape((-1, 1) if axis == 2 else (-1,))
        first, second = planes.take(low, axis), planes.take(np.minimum(low + 1, last), axis)
        planes = first + (second - first) * weight
    return planes


def _places(extent: int, out: int, method: Method, mode: Mode) -> Array:
    """The coordinate in the input of every output pixel along one axis."""
    y = np.arange(out, dtype=np.float64)
    nearest = method in (Method.tf_nearest, Method.cv2_nearest)
    if mode is Mode.align_corner:
        place = y * ((extent - 1) / max(out - 1, 1))
        return np.floor(place + 0.5) if nearest else place
    if mode is Mode.half_pixel or method is Method.cv2_bilinear:
        place = (y + 0.5) * (extent / out)
        return np.floor(place) if nearest else place - 0.5
    return np.floor(y * (extent / out)) if nearest else y * (extent / out)


def warped(planes: Array, size: tuple[int, int], affine: Affine) -> Array:
    """N x C x H x W through an affine map of coordinates."""
    a, b, tx, c, d, ty = affine.matrix
    inverse = np.linalg.inv(np.array([[a, b], [c, d]]))
    y, x = np.mgrid[: size[0], : size[1]].astype(np.float64)
    back = np.stack([x.ravel() - tx, y.ravel() - ty])
    sx, sy = np.clip(inverse @ back, -1e9, 1e9)
    height, width = planes.shape[2:]
    border = float(affine.value)

    def pixels(row: Array, column: Array) -> Array:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        found = planes[:, :, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
        return found if affine.edge else np.where(inside, found, np.float32(border))

    if affine.method in (Method.tf_nearest, Method.cv2_nearest):
        half = 0.5 if affine.rounds or affine.method is Method.cv2_nearest else 0.0
        made = pixels(np.floor(sy + half).astype(np.int64), np.floor(sx + half).astype(np.int64))
    else:
        row, column = np.floor(sy).astype(np.int64), np.floor(sx).astype(np.int64)
        v, u = (sy - row).astype(np.float32), (sx - column).astype(np.float32)
        top = pixels(row, column) * (1 - u) + pixels(row, column + 1) * u
        low = pixels(row + 1, column) * (1 - u) + pixels(row + 1, column + 1) * u
        made = top * (1 - v) + low * v
        if not affine.edge and not affine.smooth:
            inside = (sy >= 0) & (sy <= height - 1) & (sx >= 0) & (sx <= width - 1)
            made = np.where(inside, made, np.float32(border))
    return np.asarray(made.reshape(*planes.shape[:2], *size), np.float32)


def bordered(
    planes: Array, sides: tuple[int, ...], mode: PadMode, values: tuple[int, ...]
) -> Array:
    around = ((0, 0), (0, 0), sides[:2], sides[2:])
    if mode is not PadMode.constant:
        return np.pad(planes, around, PAD[mode])  # type: ignore[call-overload,no-any-return]
    made = np.pad(planes, around)
    top, left = sides[0], sides[2]
    height, width = planes.shape[2:]
    full = np.asarray(values, np.float32).reshape(1, -1, 1, 1)
    made[...] = full
    made[:, :, top : top + height, left : left + width] = planes
    return made


# ---- layouts -------------------------------------------------------------------------------------
def extents(shape: tuple[int, ...], layout: Format, what: str) -> tuple[int, int, int]:
    """Height, width and channels of a picture with this shape."""
    if len(shape) != 4 or min(shape) < 1:
        raise BadInput(f"{what} is {list(shape)}; give four extents, such as [1, 3, 224, 224]")
    if layout is Format.RGB_packed:
        return shape[1], shape[2], shape[3]
    if layout in PLANES:
        if shape[1] != 1 or shape[2] % 3 or shape[3] % 2:
            raise BadInput(
                f"{what} is {list(shape)}; {layout.name} is [1, 1, height * 3 / 2, width]"
            )
        return shape[2] * 2 // 3, shape[3], 3
    return shape[2], shape[3], shape[1]


def planar(array: Array, layout: Format) -> Array:
    if layout is Format.RGB_packed:
        return array.transpose(0, 3, 1, 2)
    return yuv_to_rgb(array, layout) if layout in PLANES else array


def packed(planes: Array, layout: Format) -> Array:
    if layout is Format.RGB_packed:
        return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return rgb_to_yuv(planes, layout) if layout in PLANES else planes


def yuv_to_rgb(array: Array, layout: Format) -> Array:
    """N x 3 x H x W of N x 1 x 3H/2 x W; colours of full range by BT.601."""
    count, _, rows, width = array.shape
    height = rows * 2 // 3
    luma = array[:, 0, :height].astype(np.float32)
    rest = array[:, 0, height:].reshape(count, -1).astype(np.float32) - 128
    small = (count, height // 2, width // 2)
    if layout is Format.YUV420_I420:
        u, v = (half.reshape(small) for half in np.split(rest, 2, axis=1))
    else:
        u, v = rest[:, 0::2].reshape(small), rest[:, 1::2].reshape(small)
        if layout is Format.YUV420_NV21:
            u, v = v, u
    u, v = (np.repeat(np.repeat(one, 2, 1), 2, 2) for one in (u, v))
    rgb = np.stack([luma + 1.402 * v, luma - 0.344136 * u - 0.714136 * v, luma + 1.772 * u], 1)
    return np.clip(np.floor(rgb + 0.5), 0, 255)


def rgb_to_yuv(planes: Array, layout: Format) -> Array:
    """The inverse of `yuv_to_rgb`, with the mean colour of each four pixels."""
    r, g, b = (planes[:, i].astype(np.float32) for i in range(3))
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    count, height, width = luma.shape

    def mean(one: Array) -> Array:
        found = one.reshape(count, height // 2, 2, width // 2, 2).mean((2, 4)) + 128
        return np.asarray(found.reshape(count, -1))

    u, v = mean((b - luma) / 1.772), mean((r - luma) / 1.402)
    if layout is Format.YUV420_I420:
        rest = np.concatenate([u, v], 1)
    else:
        pair = (v, u) if layout is Format.YUV420_NV21 else (u, v)
        rest = np.stack(pair, 2).reshape(count, -1)
    made = np.concatenate([luma.reshape(count, -1), rest], 1)
    made = made.reshape(count, 1, height * 3 // 2, width)
    return np.clip(np.floor(made + 0.5), 0, 255).astype(planes.dtype)


def cast(planes: Array, kind: Any) -> Array:
    if kind.kind == "f":
        return planes.astype(kind)
    about = np.iinfo(kind)
    return np.clip(np.floor(planes + 0.5), about.min, about.max).astype(kind)
