"""Arithmetic, logic, activations and casts whose ONNX form differs from ours."""

from __future__ import annotations

import functools
import math

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.onnx.importer import OnnxNode, importer, scalar
from intaglio.frontends.onnx.tensors import element_type
from intaglio.ir import Value, constant

_EXACT = 2**53  # largest integer that is exact in the float attributes of clip


@importer("Dropout")
def dropout(n: OnnxNode) -> list[Value | None]:
    """The identity at inference, with a mask of ones."""
    x = n.required(0)
    training = n.input(2) is not None and bool(scalar(n.const(2)))
    ratio = float(scalar(n.const(1))) if n.input(1) is not None else n.attr("ratio", 0.5)
    if training and ratio > 0:
        n.unsupported("training_mode is set; re-export the model for inference")
    mask_type = "bool" if n.opset >= 10 else x.dtype
    return [x, constant(np.ones(x.shape, dtypes.numpy_of(mask_type))) if n.wants(1) else None]


# ---- variadic ----------------------------------------------------------------------------------
@importer("Sum")
def sum_(n: OnnxNode) -> Value:
    return functools.reduce(ops.add, [n.required(i) for i in range(len(n.inputs))])


@importer("Mean")
def mean(n: OnnxNode) -> Value:
    total = sum_(n)
    return total if len(n.inputs) == 1 else ops.div(total, _like(len(n.inputs), total))  # type: ignore[return-value,arg-type]


@importer("Max")
def max_(n: OnnxNode) -> Value:
    return functools.reduce(ops.maximum, [n.required(i) for i in range(len(n.inputs))])


@importer("Min")
def min_(n: OnnxNode) -> Value:
    return functools.reduce(ops.minimum, [n.required(i) for i in range(len(n.inputs))])


def _like(number: float, x: Value) -> Value:
    return constant(np.array(number).astype(dtypes.numpy_of(x.dtype)))


# ---- clip --------------------------------------------------------------------------------------
@importer("Clip", since=6)
def clip_attributes(n: OnnxNode) -> Value:
    return ops.clip(n.required(0), lo=n.attr("min", -math.inf), hi=n.attr("max", math.inf))


@importer("Clip", since=11)
def clip(n: OnnxNode) -> Value:
    x = n.required(0)
    lo, hi = _bound(n, 1), _bound(n, 2)
    if lo is not None and hi is not None:
        return ops.clip(x, lo=-math.inf if lo != lo else lo, hi=math.inf if hi != hi else hi)
    y = x if n.input(1) is None else ops.maximum(x, n.required(1))
    return y if n.input(2) is None else ops.minimum(y, n.required(2))


def _bound(n: OnnxNode, i: int) -> float | None:
    """The constant bound at operand `i`, infinite if absent; None if it is no exact constant."""
    if n.input(i) is None:
        return -math.inf if i == 1 else math.inf
    if not n.is_const(i) or n.required(i).type.size != 1:
        return None
    bound = scalar(n.const(i))
    if isinstance(bound, int) and abs(bound) > _EXACT:
        low, high = dtypes.limits(n.required(i).dtype)
        return -math.inf if bound == low else math.inf if bound == high else None
    return float(bound)


# ---- binary ------------------------------------------------------------------------------------
@importer("Pow")
def pow_(n: OnnxNode) -> Value:
    """The exponent may have another element type; the result has that of the base."""
    base, exponent = n.required(0), n.required(1)
    if base.dtype == exponent.dtype:
        return ops.pow(base, exponent)
    if dtypes.is_float(base.dtype):
        return ops.pow(base, ops.cast(exponent, dtype=base.dtype))
    wide = exponent.dtype if dtypes.is_float(exponent.dtype) else "i64"
    y = ops.pow(ops.cast(base, dtype=wide), ops.cast(exponent, dtype=wide))
    return ops.cast(y, dtype=base.dtype)


@importer("Mod")
def mod(n: OnnxNode) -> Value:
    return (ops.fmod if n.attr("fmod", 0) else ops.mod)(n.required(0), n.required(1))


@importer("BitShift")
def bit_shift(n: OnnxNode) -> Value:
    shift = ops.shift_left if n.attr("direction") == "LEFT" else ops.shift_right
    return shift(n.required(0), n.required(1))


@importer("Where")
def where(n: OnnxNode) -> Value:
    return ops.where(n.required(1), n.required(2), n.required(0))


@importer("SwiGLU")
def swiglu(n: OnnxNode) -> Value:
    return ops.mul(ops.swish(n.required(0), alpha=n.attr("alpha", 1.0)), n.required(1))


@importer("IsInf")
def is_inf(n: OnnxNode) -> Value:
    negative, positive = n.attr("detect_negative", 1), n.attr("detect_positive", 1)
    return ops.is_inf(n.required(0), negative=bool(negative), positive=bool(positive))


# ---- casts -------------------------------------------------------------------------------------
@importer("Cast")
def cast(n: OnnxNode) -> Value:
    return cast_to(n, n.required(0), element_type(n.attr("to"), "attribute 'to'"))


@importer("CastLike")
def cast_like(n: OnnxNode) -> Value:
    return cast_to(n, n.required(0), n.required(1).dtype)


def cast_to(n: OnnxNode, x: Value, dtype: str) -> Value:
    saturate = bool(n.attr("saturate", 1))
    if dtype == "f8e8m0fnu" and n.attr("round_mode", "up") != "up":
        x = _to_power_of_two(x, n.attr("round_mode"))
    return x if x.dtype == dtype else ops.cast(x, dtype=dtype, saturate=saturate)


def _to_power_of_two(x: Value, mode: str) -> Value:
    """Round down, or to the nearest with ties up, by arithmetic on the bits of f32."""
    bits = ops.bitcast(ops.cast(x, dtype="f32"), dtype="u32")
    if mode == "nearest":
        bits = ops.add(bits, constant(1 << 22, dtype="u32"))
    return ops.bitcast(ops.bitwise_and(bits, constant(0x7F800000, dtype="u32")), dtype="f32")


@importer("BitCast")
def bit_cast(n: OnnxNode) -> Value:
    """Sub-byte elements take one byte each: unused bits are cleared before and after."""
    x, dtype = n.required(0), element_type(n.attr("to"), "attribute 'to'")
    bits = dtypes.TABLE[x.dtype].bits
    if bits >= 8 or x.dtype == "bool":
        return ops.bitcast(x, dtype=dtype)
    if bits != dtypes.TABLE[dtype].bits:
        n.unsupported(f"{x.dtype} and {dtype} differ in width; they must be equal")
    plain = f"u{bits}"
    y = ops.cast(x, dtype=plain) if dtypes.is_integer(x.dtype) else ops.bitcast(x, dtype=plain)
    return ops.cast(y, dtype=dtype) if dtypes.is_integer(dtype) else ops.bitcast(y, dtype=dtype)
