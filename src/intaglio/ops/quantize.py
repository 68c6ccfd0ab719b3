"""quantize_linear and dequantize_linear: real = scale * (stored - zero).

The scale (always f32) is one number for the tensor, one per index of `axis`, or, if `block_size` is
not 0, one per `block_size` indices of `axis`. The zero point has the same shape.
"""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value, constant
from intaglio.ops.activation import clip
from intaglio.ops.cast import cast
from intaglio.ops.compare import equal, where
from intaglio.ops.elementwise import div, maximum, minimum, neg, round, sub
from intaglio.ops.precision import to_dtype
from intaglio.ops.reduce import reduce_max, reduce_min
from intaglio.ops.registry import normalize_axis, op


def _check_granularity(
    x: Value, scale: Value, zero: Value | None, axis: int, block_size: int
) -> None:
    if scale.dtype != "f32":
        raise BadInput(f"the scale has element type {scale.dtype}, f32 is needed")
    if zero is not None and zero.type.size != scale.type.size:
        raise BadInput(f"scale {scale.shape} and zero {zero.shape} must have the same shape")
    if scale.type.size == 1 and not block_size:
        return
    axis = normalize_axis(axis, x.type.rank)
    if not block_size:
        want: tuple[int, ...] = (x.shape[axis],)
    else:
        blocks = -(-x.shape[axis] // block_size)
        want = (*x.shape[:axis], blocks, *x.shape[axis + 1 :])
    if scale.shape != want:
        raise BadInput(f"the scale has shape {scale.shape}, {want} is needed for {x.shape}")


def broadcast_parameter(p: Array, x: Array, axis: int, block_size: int) -> Array:
    """A scale or zero, shaped to broadcast against `x`."""
    if p.size == 1 and not block_size:
        return p.reshape(())
    axis = normalize_axis(axis, x.ndim)
    if block_size:
        whole = np.repeat(p, block_size, axis)
        return whole[tuple(slice(0, d) for d in x.shape)]
    return p.reshape(-1, *[1] * (x.ndim - axis - 1))


def _quantized(
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int,
    block_size: int,
    dtype: str,
    saturate: bool,
) -> Type:
    _check_granularity(x, scale, zero, axis, block_size)
    if zero is not None and zero.dtype != dtype:
        raise BadInput(f"the zero has element type {zero.dtype}, the result is {dtype}")
    return x.type.but(dtype=dtype)


@op(_quantized)
def quantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    dtype: str = "u8",
    saturate: bool = True,
) -> Array:
    """clamp(rint(x / scale) + zero), NaN to the lowest integer; float types: x / scale + zero."""
    ratio = x.astype(np.float32) / broadcast_parameter(scale, x, axis, block_size)
    offset = (
        None if zero is None else broadcast_parameter(zero, x, axis, block_size).astype(np.float32)
    )
    if dtypes.is_float(dtype):
        return to_dtype(ratio if offset is None else ratio + offset, dtype, bool(saturate))
    low, high = dtypes.limits(dtype)
    y = np.rint(ratio) if offset is None else np.rint(ratio) + offset
    return np.fmin(np.fmax(y, low), high).astype(np.int32).astype(dtypes.numpy_of(dtype))


def _dequantized(
    x: Value, scale: Value, zero: Value | None = None, *, axis: int, block_size: int, dtype: str
) -> Type:
    _check_granularity(x, scale, zero, axis, block_size)
    if zero is not None and zero.dtype != x.dtype:
        raise BadInput(f"the zero has element type {zero.dtype}, the tensor {x.dtype}")
    return x.type.but(dtype=dtype, quant=None)


@op(_dequantized, foldable=False)
def dequantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    dtype: str = "f32",
) -> Array:
    """(x - zero) * scale in f32."""
    real = x.astype(np.float32)
    if zero is not None:
        real = real - broadcast_parameter(zero, x, axis, block_size).astype(np.float32)
    return (real * broadcast_parameter(scale, x, axis, block_size)).astype(dtypes.numpy_of(dtype))


def _dynamic(x: Value) -> list[Type]:
    if x.dtype != "f32":
        raise BadInput(f"dynamic quantisation of {x.dtype}; f32 is needed")
    return [Type("u8", x.shape), Type("f32", ()), Type("u8", ())]


@op(_dynamic, onnx="DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """u8 data, scale and zero for the range of `x`, extended to hold 0; scale 1 if it is empty."""
    low, high = min(x.min(initial=np.inf), 0), max(x.max(initial=-np.inf), 0)
    scale = np.float32(high - low) / np.float32(255)
    scale = np.float32(1) if scale == 0 else scale
    zero = np.array(np.rint(np.clip(np.float32(-low) / scale, 0, 255)), np.uint8)
    return quantize_linear.body(x, np.asarray(scale), zero), np.asarray(scale), zero


@dynamic_quantize_linear.lowers
def _(x: Value) -> list[Value]:
    nothing = constant(0.0, dtype="f32")
    axes = tuple(range(x.type.rank))
    low = minimum(reduce_min(x, axes=axes, keepdims=False) if axes else x, nothing)
    high = maximum(reduce_max(x, axes=axes, keepdims=False) if axes else x, nothing)
    scale = div(sub(high, low), constant(255.0, dtype="f32"))
    scale = where(constant(1.0, dtype="f32"), scale, equal(scale, nothing))
    zero = cast(round(clip(div(neg(low), scale), lo=0.0, hi=255.0)), dtype="u8")
    return [quantize_linear(x, scale, zero), scale, zero]
