"""Importers of interpolate, upsample, grid_sample and affine_grid."""

from __future__ import annotations

import math
from typing import Any

from intaglio import ops
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.torch.importer import importer, ints
from intaglio.ir import Value


def resized(x: Value, size: Any, factors: Any, mode: str, way: str, **more: Any) -> Value:
    """Resize to a size, or by factors, which then define the coordinates."""
    n = x.type.rank - 2
    extents = x.shape[2:]
    given: list[Any] = [None] * n
    if factors is not None and factors != []:
        items = list(factors) if isinstance(factors, list | tuple) else [factors]
        given = items * n if len(items) == 1 else items
    if size is not None and size != []:
        shape = ints(size, n)
    elif all(f is not None for f in given) and len(given) == n:
        shape = tuple(math.floor(e * f) for e, f in zip(extents, given, strict=True))
    else:
        raise BadInput("neither size nor scale_factor is given; one is needed")
    if min(shape, default=0) < 1:
        raise BadInput(f"{x.type} cannot be resized to {shape}; extents must be above 0")
    scales = [
        s / e if f is None or size else f for s, e, f in zip(shape, extents, given, strict=True)
    ]
    if size and all(f is not None for f in given):
        scales = [float(f) for f in given]
    axes = [i for i in range(n) if shape[i] != extents[i] or scales[i] != 1]
    if not axes:
        return x
    result: Value = ops.resize(
        x,
        axes=tuple(2 + i for i in axes),
        shape=tuple(shape[i] for i in axes),
        scales=tuple(float(scales[i]) for i in axes),
        mode=mode,
        coordinate_transformation_mode=way,
        **more,
    )
    return result


@importer("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(
    self: Value,
    output_size: Any = None,
    *scales: Any,
    scale_factors: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
) -> Value:
    factors = _factors(scales, scale_factors, scales_h, scales_w)
    return resized(self, output_size, factors, "nearest", "asymmetric", nearest_mode="floor")


@importer("_upsample_nearest_exact1d", "_upsample_nearest_exact2d")
def upsample_nearest_exact(
    self: Value, output_size: Any = None, *scales: Any, scale_factors: Any = None
) -> Value:
    factors = _factors(scales, scale_factors, None, None)
    return resized(
        self, output_size, factors, "nearest", "half_pixel", nearest_mode="round_prefer_ceil"
    )


def _factors(scales: tuple[Any, ...], named: Any, h: Any, w: Any) -> Any:
    if named is not None:
        return named
    if h is not None or w is not None:
        return [h, w]
    if len(scales) == 1 and isinstance(scales[0], list | tuple):
        return list(scales[0])
    return list(scales) if any(s is not None for s in scales) else None


def _coordinate_mode(align_corners: bool) -> str:
    return "align_corners" if align_corners else "half_pixel"


@importer("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def upsample_linear(
    self: Value,
    output_size: Any,
    align_corners: bool,
    *scales: Any,
    scale_factors: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
) -> Value:
    factors = _factors(scales, scale_factors, scales_h, scales_w)
    return resized(self, output_size, factors, "linear", _coordinate_mode(align_corners))


@importer("upsample_bicubic2d")
def upsample_bicubic(
    self: Value,
    output_size: Any,
    align_corners: bool,
    *scales: Any,
    scale_factors: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
) -> Value:
    factors = _factors(scales, scale_factors, scales_h, scales_w)
    return resized(
        self, output_size, factors, "cubic", _coordinate_mode(align_corners), cubic_coeff_a=-0.75
    )


@importer("__interpolate")
def interpolate(
    input: Value,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Value:
    """interpolate of old files, which have no operator per mode."""
    sizes = (
        size if size is None or isinstance(size, list | tuple) else [size] * (input.type.rank - 2)
    )
    if mode == "nearest":
        return resized(input, sizes, scale_factor, "nearest", "asymmetric", nearest_mode="floor")
    if mode in ("linear", "bilinear", "trilinear"):
        return resized(input, sizes, scale_factor, "linear", _coordinate_mode(bool(align_corners)))
    if mode == "bicubic":
        return resized(input, sizes, scale_factor, "cubic", _coordinate_mode(bool(align_corners)))
    raise Unsupported(f"interpolation mode '{mode}' is not supported")


@importer("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    result: Value = ops.grid_sample(
        input,
        grid,
        mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
        align_corners=bool(align_corners),
    )
    return result


@importer("affine_grid_generator")
def affine_grid(theta: Value, size: Any, align_corners: bool) -> Value:
    result: Value = ops.affine_grid(theta, size=ints(size), align_corners=bool(align_corners))
    return result
