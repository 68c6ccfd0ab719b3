"""grid_sample (sampling at given coordinates) and affine_grid."""

from __future__ import annotations

import itertools
import math

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value, constant
from intaglio.ops.linear import matmul
from intaglio.ops.precision import widen
from intaglio.ops.registry import op
from intaglio.ops.resize import cubic_weight
from intaglio.ops.shape import reshape, transpose


def _grid_sample(
    x: Value, grid: Value, *, mode: str, padding_mode: str, align_corners: bool
) -> Type:
    n = x.type.rank - 2
    if n not in (2, 3) or grid.type.rank != n + 2 or grid.shape[-1] != n:
        raise BadInput(
            f"grid_sample of {x.type} at {grid.type}; images or volumes and a grid are needed"
        )
    if x.shape[0] != grid.shape[0] or not dtypes.is_float(grid.dtype):
        raise BadInput(f"grid {grid.type} does not fit {x.type}")
    if mode not in ("linear", "nearest", "cubic"):
        raise BadInput(f"grid_sample mode '{mode}' is none of linear, nearest, cubic")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise BadInput(f"padding_mode '{padding_mode}' is none of zeros, border, reflection")
    if 0 in x.shape[2:] and grid.type.size:
        raise BadInput(f"{x.type} is empty; sampling needs pixels")
    return Type(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))


def _reflected(x: Array, extent: int, align_corners: bool) -> Array:
    """Coordinates reflected at the borders until they lie inside."""
    low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
    span = high - low
    if span == 0:
        return np.zeros_like(x)
    away = np.mod(np.abs(x - low), 2 * span)
    return (np.where(away > span, 2 * span - away, away) + low).astype(x.dtype)


def _sample_taps(
    x: Array, extent: int, mode: str, padding_mode: str, align_corners: bool
) -> list[tuple[Array, Array]]:
    """(index, weight) of every element that each coordinate along one axis reads."""
    if mode == "nearest":
        x = np.rint(x)
    edge = 0.0 if align_corners else 0.5
    beyond = (x < -edge) | (x > extent - 1 + edge)
    if padding_mode == "border":
        x = np.where(beyond, np.clip(x, 0, extent - 1), x)
    elif padding_mode == "reflection":
        x = np.where(beyond, _reflected(x, extent, align_corners), x)
    low = np.floor(x)
    steps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]
    taps = []
    for step in steps:
        index = low + step
        distance = (x - index).astype(x.dtype)
        if mode == "cubic":
            weight = cubic_weight(distance, -0.75).astype(x.dtype)
        else:
            weight = 1 - np.abs(distance) if mode == "linear" else np.ones_like(x)
        inside = (index >= 0) & (index < extent)
        if padding_mode == "zeros":
            weight = np.where(inside, weight, 0)
        elif padding_mode == "reflection":
            index = np.where(inside, index, np.trunc(_reflected(index, extent, align_corners)))
        taps.append((np.clip(index, 0, extent - 1).astype(np.int64), weight))
    return taps


@op(_grid_sample)
@widen
def grid_sample(
    x: Array,
    grid: Array,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Array:
    """x sampled at `grid`, whose last axis holds (x, y[, z]), each from -1 to 1."""
    n, channels, *extents = x.shape
    points = grid.reshape(n, -1, len(extents)) if grid.size else np.zeros((n, 0, len(extents)))
    axes = []
    for i, extent in enumerate(extents):
        unit = points[:, :, len(extents) - 1 - i].astype(grid.dtype) + 1
        two, one = grid.dtype.type(2), grid.dtype.type(1)
        pixel = unit / two * (extent - 1) if align_corners else (unit * extent - one) / two
        axes.append(_sample_taps(pixel, extent, mode, padding_mode, align_corners))
    flat = x.reshape(n, channels, math.prod(extents))
    out = np.zeros((n, channels, points.shape[1]), x.dtype)
    for taps in itertools.product(*axes):
        index: Array = np.zeros((n, points.shape[1]), np.int64)
        weight: Array = np.ones(index.shape, grid.dtype)
        for (at, w), extent in zip(taps, extents, strict=True):
            index, weight = index * extent + at, weight * w
        picked = np.take_along_axis(flat, index[:, None], 2)
        if mode == "nearest":  # exact for every element type
            out = np.where((weight != 0)[:, None], picked, out)
        else:
            out += (picked * weight[:, None]).astype(x.dtype)
    return out.reshape(n, channels, *grid.shape[1:-1])


def _affine_grid(theta: Value, *, size: tuple[int, ...], align_corners: bool) -> Type:
    n = len(size) - 2
    if n not in (2, 3) or theta.shape != (size[0], n, n + 1) or not dtypes.is_float(theta.dtype):
        raise BadInput(f"affine_grid: theta {theta.type} does not fit the size {size}")
    return Type(theta.dtype, (size[0], *size[2:], n))


def _base_grid(size: tuple[int, ...], align_corners: bool) -> Array:
    """Homogeneous coordinates (x, y[, z], 1) of every pixel, one row each."""
    axes = []
    for extent in size[2:]:
        steps = np.arange(extent)
        if align_corners:
            axes.append(steps * 2 / (extent - 1) - 1 if extent > 1 else np.zeros(1))
        else:
            axes.append((2 * steps + 1) / extent - 1)
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack([*(m.reshape(-1) for m in mesh[::-1]), np.ones(mesh[0].size)], -1)


@op(_affine_grid)
@widen
def affine_grid(theta: Array, *, size: tuple[int, ...], align_corners: bool = False) -> Array:
    """The grid of an affine map, for grid_sample: theta · (x, y[, z], 1) for every pixel."""
    base = _base_grid(size, align_corners).astype(theta.dtype)
    return (base @ theta.swapaxes(1, 2)).reshape(size[0], *size[2:], -1)


@affine_grid.lowers
def _lower_affine_grid(theta: Value, *, size: tuple[int, ...], align_corners: bool) -> Value:
    base = constant(_base_grid(size, align_corners), dtype=theta.dtype)
    grid = matmul(base, transpose(theta, perm=(0, 2, 1)))
    return reshape(grid, shape=(size[0], *size[2:], len(size) - 2))
