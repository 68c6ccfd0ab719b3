"""ONNX Resize, Upsample, GridSample and AffineGrid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.shape import axes_of, ints
from intaglio.ir import Value
from intaglio.ops.grid_sample import affine_grid, grid_sample
from intaglio.ops.resize import resize
from intaglio.symint import SymInt, bound, is_symbolic, values_of

MAX_DENOMINATOR = 1024  # of the scale of an open dimension


def _optional(n: OnnxNode, i: int) -> Any:
    """Constant operand `i`; None if it is absent or empty (exporters write either)."""
    v = n.input(i)
    return None if v is None or v.type.size == 0 else n.const(i)


def _scaled(x: Value, scales: Sequence[float]) -> tuple[int, ...]:
    if len(scales) != x.type.rank:
        raise BadInput(f"{len(scales)} scales are given for {x.type}; one per axis is needed")
    return tuple(scaled(d, s) for d, s in zip(x.shape, scales, strict=True))


def scaled(extent: int, scale: float) -> int:
    """floor(extent * scale) in f32, at every size."""
    if not isinstance(extent, SymInt):
        return math.floor(np.float32(extent) * np.float32(scale))
    ratio = Fraction(scale).limit_denominator(MAX_DENOMINATOR)
    result = extent * ratio.numerator // ratio.denominator
    exact = extent.map(lambda d: math.floor(np.float32(d) * np.float32(scale)))
    if exact != values_of(result, extent):
        raise Unsupported(f"extent {extent} times {scale} is not a formula; give fixed sizes")
    return result


def _changed(x: Value, shape: Sequence[int], scales: Sequence[float], **attrs: Any) -> Value:
    """Resize, restricted to the axes that change."""
    axes = [i for i, s in enumerate(scales) if s != 1 or shape[i] != x.shape[i]]
    if not axes:
        return x
    result: Value = resize(
        x,
        axes=tuple(axes),
        shape=tuple(shape[i] for i in axes),
        scales=tuple(float(scales[i]) for i in axes),
        **attrs,
    )
    return result


@importer("Upsample")
@importer("Resize", since=10)
def upsample(n: OnnxNode) -> Value:
    x = n.required(0)
    scales = n.attr("scales") or n.const(1).reshape(-1).tolist()
    mode = "nearest" if n.attr("mode", "nearest") == "nearest" else "linear"
    return _changed(
        x,
        _scaled(x, scales),
        scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="ceil" if min(scales) < 1 else "floor",
    )


@importer("Resize", since=11)
def import_resize(n: OnnxNode) -> Value:
    x = n.required(0)
    rank = x.type.rank
    axes = axes_of(n.attr("axes", range(rank)), rank)
    shape, scales = list(x.shape), [1.0] * rank
    sizes, given = _optional(n, 3), _optional(n, 2)
    if sizes is not None:
        _sizes(n, x, axes, ints(sizes), shape, scales)
    elif given is not None:
        for axis, s in zip(axes, given.reshape(-1).tolist(), strict=True):
            scales[axis] = s
        shape = list(_scaled(x, scales))
    else:
        raise BadInput("neither scales nor sizes is given; Resize needs one of them")
    attrs: dict[str, Any] = {
        "mode": n.attr("mode", "nearest"),
        "coordinate_transformation_mode": n.attr("coordinate_transformation_mode", "half_pixel"),
        "cubic_coeff_a": n.attr("cubic_coeff_a", -0.75),
        "exclude_outside": bool(n.attr("exclude_outside", 0)),
        "extrapolation_value": n.attr("extrapolation_value", 0.0),
        "nearest_mode": n.attr("nearest_mode", "round_prefer_floor"),
        "antialias": bool(n.attr("antialias", 0)),
    }
    if attrs["coordinate_transformation_mode"] != "tf_crop_and_resize":
        return _changed(x, shape, scales, **attrs)
    roi = n.const(1).reshape(-1).tolist()
    if len(roi) != 2 * len(axes):
        raise BadInput(f"roi has {len(roi)} entries; two per axis of {axes} are needed")
    whole = [k for k in range(len(axes)) if (roi[k], roi[len(axes) + k]) == (0, 1)]
    cut = [k for k in range(len(axes)) if k not in whole or shape[axes[k]] != x.shape[axes[k]]]
    return resize(
        x,
        axes=tuple(axes[k] for k in cut),
        shape=tuple(shape[axes[k]] for k in cut),
        scales=tuple(scales[axes[k]] for k in cut),
        roi=tuple(roi[k] for k in cut) + tuple(roi[len(axes) + k] for k in cut),
        **attrs,
    )


def _sizes(
    n: OnnxNode,
    x: Value,
    axes: Sequence[int],
    sizes: Sequence[int],
    shape: list[int],
    scales: list[float],
) -> None:
    if len(sizes) != len(axes):
        raise BadInput(f"{len(sizes)} sizes are given for the axes {axes}; one per axis is needed")
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis], scales[axis] = size, ratio(size, x.shape[axis])
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return
    if policy not in ("not_larger", "not_smaller"):
        raise BadInput(f"keep_aspect_ratio_policy '{policy}' is not supported")
    ratios = [scales[axis] for axis in axes]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    for axis in axes:
        shape[axis], scales[axis] = math.floor(scale * x.shape[axis] + 0.5), scale


def ratio(size: int, extent: int) -> float:
    """size / extent; 0 if it depends on open dimensions."""
    exact = Fraction(bound(size), max(bound(extent), 1))
    fits = size * exact.denominator == extent * exact.numerator
    return 0.0 if is_symbolic((size, extent)) and not fits else bound(size) / max(bound(extent), 1)


@importer("GridSample")
@importer("GridSample", domain="com.microsoft")
def import_grid_sample(n: OnnxNode) -> Value:
    mode = n.attr("mode", "linear")
    return grid_sample(
        n.required(0),
        n.required(1),
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=n.attr("padding_mode", "zeros"),
        align_corners=bool(n.attr("align_corners", 0)),
    )


@importer("AffineGrid")
def import_affine_grid(n: OnnxNode) -> Value:
    size, corners = ints(n.const(1)), bool(n.attr("align_corners", 0))
    return affine_grid(n.required(0), size=size, align_corners=corners)
