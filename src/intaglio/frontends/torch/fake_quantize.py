"""Importers of fake_quantize (QAT) and of quantized_decomposed ops (torch.export)."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.torch.importer import as_dtype, axis_of, importer, integer
from intaglio.frontends.torch.tensors import dtype_of, number
from intaglio.ir import Value


def _limited(x: Value, scale: Any, zero: Any, low: int, high: int, dtype: str, axis: int) -> Value:
    """Clamp stored integers to low..high, a part of the range of the element type."""
    s, z = _parameter(scale, "f32"), _parameter(zero, dtype)
    bottom, top = dtypes.limits(dtype)
    if not bottom <= low <= high <= top:
        raise BadInput(f"the range {low}..{high} does not fit into {dtype}")
    if (low, high) != (bottom, top):
        ends = [ops.mul(ops.sub(number(e, "f32"), as_dtype(z, "f32")), s) for e in (low, high)]
        if ends[0].type.rank:
            shape = (*ends[0].shape, *[1] * (x.type.rank - axis - 1))
            ends = [ops.reshape(e, shape=shape) for e in ends]
        x = ops.minimum(ops.maximum(x, ends[0]), ends[1])
    result: Value = ops.quantize_linear(as_dtype(x, "f32"), s, z, axis=axis, dtype=dtype)
    return result


def _parameter(p: Any, dtype: str) -> Value:
    result = as_dtype(p, dtype)
    return ops.reshape(result, shape=()) if result.type.size == 1 and result.type.rank else result


def _fake(x: Value, scale: Any, zero: Any, low: int, high: int, axis: int) -> Value:
    dtype = next(
        (
            d
            for d in ("i8", "u8", "i16", "u16")
            if dtypes.limits(d)[0] <= low and high <= dtypes.limits(d)[1]
        ),
        None,
    )
    if dtype is None:
        raise Unsupported(f"fake quantisation to {low}..{high}; 8 and 16 bits are supported")
    q = _limited(x, scale, zero, low, high, dtype, axis)
    result: Value = ops.dequantize_linear(
        q, _parameter(scale, "f32"), _parameter(zero, dtype), axis=axis
    )
    return result


@importer("fake_quantize_per_tensor_affine")
def fake_quantize_per_tensor_affine(
    self: Value, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Value:
    return _fake(self, scale, zero_point, quant_min, quant_max, 0)


@importer("fake_quantize_per_channel_affine")
def fake_quantize_per_channel_affine(
    self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    return _fake(self, scale, zero_point, quant_min, quant_max, axis_of(axis, self))


@importer("quantized_decomposed::quantize_per_tensor")
def decomposed_quantize(
    input: Value, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: int
) -> Value:
    return _limited(
        input, scale, zero_point, integer(quant_min), integer(quant_max), dtype_of(dtype), 0
    )


@importer("quantized_decomposed::dequantize_per_tensor")
def decomposed_dequantize(
    input: Value,
    scale: Any,
    zero_point: Any,
    quant_min: Any,
    quant_max: Any,
    dtype: int,
    out_dtype: int | None = None,
) -> Value:
    result: Value = ops.dequantize_linear(
        input, _parameter(scale, "f32"), _parameter(zero_point, input.dtype), axis=0
    )
    return result if out_dtype is None else as_dtype(result, dtype_of(out_dtype))


@importer("quantized_decomposed::quantize_per_channel")
def decomposed_quantize_channels(
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: int,
) -> Value:
    return _limited(
        input, scales, zero_points, quant_min, quant_max, dtype_of(dtype), axis_of(axis, input)
    )


@importer("quantized_decomposed::dequantize_per_channel")
def decomposed_dequantize_channels(
    input: Value,
    scales: Value,
    zero_points: Value | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None = None,
) -> Value:
    zero = None if zero_points is None else as_dtype(zero_points, input.dtype)
    result: Value = ops.dequantize_linear(
        input, as_dtype(scales, "f32"), zero, axis=axis_of(axis, input)
    )
    return result if out_dtype is None else as_dtype(result, dtype_of(out_dtype))


@importer("quantized_decomposed::choose_qparams")
def choose_qparams(input: Value, quant_min: int, quant_max: int, eps: float, dtype: int) -> Any:
    """Scale and zero point for the range of x at run time, extended to hold 0."""
    nothing, axes = number(0, "f32"), tuple(range(input.type.rank))
    low = ops.minimum(ops.reduce_min(input, axes=axes, keepdims=False), nothing)
    high = ops.maximum(ops.reduce_max(input, axes=axes, keepdims=False), nothing)
    scale = ops.div(ops.sub(high, low), number(quant_max - quant_min, "f32"))
    scale = ops.maximum(scale, number(np.float32(eps), "f32"))
    zero = ops.sub(number(quant_min, "f32"), ops.round(ops.div(low, scale)))
    zero = ops.clip(zero, lo=float(quant_min), hi=float(quant_max))
    return scale, as_dtype(zero, "i64")
