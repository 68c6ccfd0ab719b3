"""Resize by interpolation, one axis at a time, with tables of indices and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError, Unsupported
from intaglio.ir import Array, Type, Value, constant
from intaglio.ops.activation import clip
from intaglio.ops.cast import cast
from intaglio.ops.compare import where
from intaglio.ops.elementwise import round
from intaglio.ops.precision import SMALL
from intaglio.ops.registry import normalize_axis, op
from intaglio.symint import is_symbolic

_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_NOT_FOR_TABLES = ("axes", "extrapolation_value")  # attributes that the tables do not depend on
_ROUND = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


# ---- one axis, with tables of indices and weights ------------------------------------------------
def _interpolate(x: Value, index: Value, weight: Value, *, axis: int) -> Type:
    axis = normalize_axis(axis, x.type.rank)
    if index.dtype != "i32" or weight.dtype != "f32":
        raise BadInput(
            f"tables are {index.type} and {weight.type}; i32 indices and f32 weights are needed"
        )
    if index.type.rank != 2 or index.shape != weight.shape or index.shape[1] < 1:
        raise BadInput(f"tables {index.type} and {weight.type} must both be outputs × taps")
    if index.shape[1] > 1 and not dtypes.is_float(x.dtype):
        raise BadInput(f"interpolate with several taps on {x.type}; floats are needed")
    return Type(x.dtype, (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]))


@op(_interpolate)
def interpolate(x: Array, index: Array, weight: Array, *, axis: int) -> Array:
    """out[.., i, ..] = Σ_k weight[i, k] · x[.., index[i, k], ..]; a single tap copies."""
    if index.size and (index.min() < 0 or index.max() >= x.shape[axis]):
        raise RunError(f"interpolate: an index is outside of [0, {x.shape[axis] - 1}]")
    if index.shape[1] == 1:
        return x.take(index[:, 0], axis)
    wide = x.astype(np.float32) if x.dtype in SMALL else x
    along_axis = (-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    out = sum(
        wide.take(i, axis) * w.astype(wide.dtype).reshape(along_axis)
        for i, w in zip(index.T, weight.T, strict=True)
    )
    return np.asarray(out).astype(x.dtype)


@dataclass(frozen=True)
class _Table:
    index: Array  # outputs × taps, i32
    weight: Array  # outputs × taps, f32
    outside: Array  # outputs that get extrapolation_value (tf_crop_and_resize)


def _source(extent: int, out: int, scale: np.float32, mode: str, roi: tuple[float, float]) -> Array:
    """The input coordinate of each output element, in f32 as frameworks compute it."""
    f, y = np.float32, np.arange(out, dtype=np.float32)
    width = f(extent) * scale
    if abs(width - f(out)) < f(1e-3):  # the scale is the ratio of the extents
        width = f(out)
    match mode:
        case "half_pixel":
            return (y + f(0.5)) / scale - f(0.5)
        case "half_pixel_symmetric":
            offset = f(extent) / f(2) * (f(1) - f(out) / width)
            return offset + (y + f(0.5)) / scale - f(0.5)
        case "pytorch_half_pixel":
            return (y + f(0.5)) / scale - f(0.5) if width > 1 else np.zeros(out, f)
        case "tf_half_pixel_for_nn":
            return (y + f(0.5)) / scale
        case "align_corners":
            return np.zeros(out, f) if width == 1 else y * f(extent - 1) / (width - f(1))
        case "tf_crop_and_resize":
            span, last = f(roi[1]) - f(roi[0]), f(extent - 1)
            if width == 1:
                return np.full(out, (f(roi[0]) + f(roi[1])) * last / f(2), f)
            return f(roi[0]) * last + y * span * last / (width - f(1))
    return y / scale  # asymmetric


def cubic_weight(distance: Array, a: float) -> Array:
    """The cubic convolution kernel at this distance from its centre."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _table(
    extent: int,
    out: int,
    scale: float,
    *,
    mode: str,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: bool,
    nearest_mode: str,
    antialias: bool,
    roi: tuple[float, float],
) -> _Table:
    x = _source(extent, out, np.float32(scale), coordinate_transformation_mode, roi)
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    outside = ((x < 0) | (x > extent - 1)) if crop else np.zeros(out, np.bool_)
    if mode == "nearest":
        half = np.float32(0.5)
        rounded = {
            "round_prefer_floor": np.ceil(x - half),
            "round_prefer_ceil": np.floor(x + half),
            "floor": np.floor(x),
            "ceil": np.ceil(x),
        }[nearest_mode]
        index, weight = rounded[:, None], np.ones((out, 1))
    else:
        reach = 2 if mode == "cubic" else 1
        stretch = min(scale, 1.0) if antialias else 1.0  # a wider filter when it shrinks
        first = 1 - math.ceil(reach / stretch)
        index = np.floor(x)[:, None] + np.arange(first, 2 - first)
        distance = (index - x[:, None].astype(np.float64)) * stretch
        if mode == "cubic":
            weight = cubic_weight(distance, cubic_coeff_a)
        else:
            weight = np.clip(1 - np.abs(distance), 0, 1)
        if antialias:
            weight /= weight.sum(1, keepdims=True)
        if exclude_outside:
            weight = np.where((index < 0) | (index >= extent), 0, weight)
            weight /= weight.sum(1, keepdims=True)
    index = np.clip(index, 0, extent - 1).astype(np.int32)
    return _Table(index, weight.astype(np.float32), outside)


# ---- tables of extents that are known only at run time -------------------------------------------
def _resize_table(
    x: Value,
    *,
    axis: int,
    extent: int,
    scale: float,
    mode: str,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: bool,
    nearest_mode: str,
) -> list[Type]:
    normalize_axis(axis, x.type.rank)
    if coordinate_transformation_mode == "tf_crop_and_resize":
        raise BadInput("resize_table: tf_crop_and_resize needs extents that are known")
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    return [Type("i32", (extent, taps)), Type("f32", (extent, taps))]


@op(_resize_table)
def resize_table(
    x: Array,
    *,
    axis: int,
    extent: int,
    scale: float = 0.0,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    nearest_mode: str = "round_prefer_floor",
) -> tuple[Array, Array]:
    """The tables of `interpolate` that resize an axis of x to `extent`; only the shape of x counts.

    `scale` 0 is the ratio of the extents.
    """
    t = _table(
        x.shape[axis],
        extent,
        scale or extent / max(x.shape[axis], 1),
        mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        nearest_mode=nearest_mode,
        antialias=False,
        roi=(0.0, 1.0),
    )
    return t.index, t.weight


# ---- resize --------------------------------------------------------------------------------------
def _resize(
    x: Value,
    *,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    mode: str,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: bool,
    extrapolation_value: float,
    nearest_mode: str,
    antialias: bool,
    roi: tuple[float, ...],
) -> Type:
    for name, value, known in (
        ("mode", mode, ("nearest", "linear", "cubic")),
        ("coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES),
        ("nearest_mode", nearest_mode, _ROUND),
    ):
        if value not in known:
            raise BadInput(f"resize: {name} is '{value}'; it must be one of {', '.join(known)}")
    if antialias and mode == "nearest":
        raise BadInput("resize: mode 'nearest' has no antialias")
    if not len(axes) == len(shape) == len(scales) or len(roi) not in (0, 2 * len(axes)):
        raise BadInput(
            f"resize: axes {axes}, shape {shape}, scales {scales}, roi {roi} differ in length"
        )
    out = list(x.shape)
    for axis, extent, scale in zip(axes, shape, scales, strict=True):
        axis = normalize_axis(axis, x.type.rank)
        ratio = is_symbolic((extent, x.shape[axis]))  # a scale of 0 is the ratio of the extents
        if extent < 0 or not (scale > 0 or ratio) or (x.shape[axis] == 0 and extent > 0):
            raise BadInput(f"axis {axis} of {x.type} cannot be resized to {extent} by {scale}")
        out[axis] = extent
    return Type(x.dtype, tuple(out))


def _tables(
    extents: list[int],
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    roi: tuple[float, ...],
    **attrs: object,
) -> list[_Table]:
    n = len(extents)
    regions = roi or (0.0,) * n + (1.0,) * n
    return [
        _table(
            extents[i],
            shape[i],
            scales[i] or shape[i] / max(extents[i], 1),
            roi=(regions[i], regions[n + i]),
            **attrs,  # type: ignore[arg-type]
        )
        for i in range(n)
    ]


def resize_tables(extents: list[int], **attrs: Any) -> list[_Table]:
    """The index and weight tables of a resize with these attributes, one pair per axis."""
    return _tables(extents, **{k: v for k, v in attrs.items() if k not in _NOT_FOR_TABLES})


def _outside(tables: list[_Table], axes: tuple[int, ...], rank: int) -> Array | None:
    """A broadcastable mask of output elements outside of the input; None if there are none."""
    if not any(t.outside.any() for t in tables):
        return None
    mask = np.zeros((1,) * rank, np.bool_)
    for t, axis in zip(tables, axes, strict=True):
        mask = mask | t.outside.reshape(-1, *[1] * (rank - 1 - axis % rank))
    return mask


@op(_resize)
def resize(
    x: Array,
    *,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    nearest_mode: str = "round_prefer_floor",
    antialias: bool = False,
    roi: tuple[float, ...] = (),
) -> Array:
    """Resize axis axes[i] to shape[i]; scales[i] relates output to input coordinates."""
    tables = _tables(
        [x.shape[a] for a in axes],
        shape,
        scales,
        roi,
        mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        nearest_mode=nearest_mode,
        antialias=antialias,
    )
    float64 = x.dtype == np.float64
    y = x if mode == "nearest" or float64 else x.astype(np.float32)
    for axis, t in zip(axes, tables, strict=True):
        y = interpolate.body(y, t.index, t.weight, axis=axis)
    outside = _outside(tables, axes, x.ndim)
    if outside is not None:
        y = np.where(outside, np.asarray(extrapolation_value).astype(y.dtype), y)
    if y.dtype != x.dtype and not dtypes.is_float(dtypes.name_of(x.dtype)):
        y = np.clip(np.rint(y), *dtypes.limits(dtypes.name_of(x.dtype)))
    return y.astype(x.dtype)


@resize.lowers
def _lower_resize(
    x: Value,
    *,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    extrapolation_value: float,
    roi: tuple[float, ...],
    mode: str,
    **attrs: Any,
) -> Value:
    between = mode != "nearest" and not dtypes.is_float(x.dtype)
    y = cast(x, dtype="f32") if between else x
    tables: list[_Table] = []
    if is_symbolic((*shape, *(x.shape[a] for a in axes))):
        y = _resize_at_run_time(y, axes, shape, scales, mode=mode, **attrs)
    else:
        tables = _tables([x.shape[a] for a in axes], shape, scales, roi, mode=mode, **attrs)
    for axis, t in zip(axes, tables, strict=False):
        y = interpolate(y, constant(t.index), constant(t.weight), axis=axis)
    outside = _outside(tables, axes, x.type.rank)
    if outside is not None:
        y = where(constant(extrapolation_value, dtype=y.dtype), y, constant(outside))
    if between:
        lo, hi = dtypes.limits(x.dtype)
        y = cast(clip(round(y), lo=float(lo), hi=float(hi)), dtype=x.dtype)
    return y


def _resize_at_run_time(
    x: Value,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    *,
    antialias: bool,
    **attrs: Any,
) -> Value:
    if antialias:
        raise Unsupported("resize: antialias needs extents that are known; give them")
    for axis, extent, scale in zip(axes, shape, scales, strict=True):
        index, weight = resize_table(x, axis=axis, extent=extent, scale=scale, **attrs)
        x = interpolate(x, index, weight, axis=axis)
    return x
