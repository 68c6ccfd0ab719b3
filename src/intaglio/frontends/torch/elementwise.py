"""Importers of arithmetic whose form differs from ours."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes, ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.compare import clamp
from intaglio.frontends.torch.importer import (
    Operand,
    as_dtype,
    floating,
    importer,
    promoted,
    tensor,
)
from intaglio.frontends.torch.tensors import number
from intaglio.ir import Value


def _scaled(other: Operand, alpha: Any) -> Operand:
    if alpha == 1:
        return other
    if isinstance(other, Value):
        return ops.mul(*promoted(other, alpha))
    return other * alpha


@importer("add", "__iadd__")
def add(self: Operand, other: Operand, alpha: Any = 1) -> Value:
    a, b = promoted(self, _scaled(other, alpha))
    result: Value = ops.logical_or(a, b) if a.dtype == "bool" else ops.add(a, b)
    return result


@importer("sub", "__isub__", "subtract")
def sub(self: Operand, other: Operand, alpha: Any = 1) -> Value:
    result: Value = ops.sub(*promoted(self, _scaled(other, alpha)))
    return result


@importer("rsub")
def rsub(self: Operand, other: Operand, alpha: Any = 1) -> Value:
    return sub(other, self, alpha)


@importer("mul", "multiply", "__imul__")
def mul(self: Operand, other: Operand) -> Value:
    a, b = promoted(self, other)
    result: Value = ops.logical_and(a, b) if a.dtype == "bool" else ops.mul(a, b)
    return result


@importer("div", "divide", "true_divide", "__idiv__")
def div(self: Operand, other: Operand, rounding_mode: str | None = None) -> Value:
    a, b = promoted(self, other)
    if rounding_mode is None:
        if not dtypes.is_float(a.dtype):
            a, b = as_dtype(a, "f32"), as_dtype(b, "f32")
        result: Value = ops.div(a, b)
        return result
    if rounding_mode == "floor":
        return floor_divide(a, b)
    if rounding_mode != "trunc":
        raise Unsupported(f"rounding_mode '{rounding_mode}' is not supported; use floor or trunc")
    return _truncated(a, b)


def _truncated(a: Value, b: Value) -> Value:
    result: Value = ops.div(a, b)  # integer division truncates
    return trunc(result) if dtypes.is_float(a.dtype) else result


@importer("floor_divide", "floordiv", "__floordiv__")
def floor_divide(self: Operand, other: Operand) -> Value:
    a, b = promoted(self, other)
    if dtypes.is_float(a.dtype):
        result: Value = ops.floor(ops.div(a, b))
        return result
    whole = ops.sub(a, ops.mod(a, b))
    result = ops.div(whole, b)
    return result


@importer("remainder", "__mod__")
def remainder(self: Operand, other: Operand) -> Value:
    result: Value = ops.mod(*promoted(self, other))
    return result


@importer("pow")
def pow_(self: Operand, exponent: Operand) -> Value:
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        x = tensor(self)
        if exponent == 2:
            result: Value = ops.mul(x, x)
            return result
        if exponent == 1:
            return x
        if exponent == 0.5:
            return sqrt_of(x)
    result = ops.pow(*promoted(self, exponent))
    return result


def sqrt_of(x: Value) -> Value:
    result: Value = ops.sqrt(floating(x))
    return result


@importer("square")
def square(self: Operand) -> Value:
    return pow_(self, 2)


@importer("rsqrt")
def rsqrt(self: Operand) -> Value:
    result: Value = ops.reciprocal(sqrt_of(tensor(self)))
    return result


@importer("trunc", "fix")
def trunc(self: Operand) -> Value:
    x = tensor(self)
    if not dtypes.is_float(x.dtype):
        return x
    down = ops.floor(ops.abs(x))
    result: Value = ops.mul(down, ops.sign(x))
    return result


@importer("frac")
def frac(self: Operand) -> Value:
    result: Value = ops.sub(tensor(self), trunc(self))
    return result


def _via_log(self: Operand, base: float) -> Value:
    x = floating(self)
    result: Value = ops.mul(ops.log(x), number(1 / math.log(base), x.dtype))
    return result


@importer("log2")
def log2(self: Operand) -> Value:
    return _via_log(self, 2)


@importer("log10")
def log10(self: Operand) -> Value:
    return _via_log(self, 10)


@importer("log1p")
def log1p(self: Operand) -> Value:
    x = floating(self)
    result: Value = ops.log(ops.add(x, number(1, x.dtype)))
    return result


@importer("expm1", "special_expm1")
def expm1(self: Operand) -> Value:
    x = floating(self)
    result: Value = ops.sub(ops.exp(x), number(1, x.dtype))
    return result


@importer("exp2")
def exp2(self: Operand) -> Value:
    x = floating(self)
    result: Value = ops.exp(ops.mul(x, number(math.log(2), x.dtype)))
    return result


@importer("atan2", "arctan2")
def atan2(self: Operand, other: Operand) -> Value:
    """atan(y / x), corrected by the quadrant."""
    y, x = (floating(v) for v in promoted(self, other))
    zero, pi = number(0, x.dtype), number(math.pi, x.dtype)
    inner = ops.atan(ops.div(y, x))
    turned = ops.where(ops.sub(inner, pi), ops.add(inner, pi), ops.less(y, zero))
    made = ops.where(turned, inner, ops.less(x, zero))
    half = ops.mul(ops.sign(y), number(math.pi / 2, x.dtype))
    result: Value = ops.where(half, made, ops.equal(x, zero))
    return result


@importer("logaddexp")
def logaddexp(self: Operand, other: Operand) -> Value:
    """max(a, b) + log(1 + exp(-|a - b|))"""
    a, b = (floating(v) for v in promoted(self, other))
    distance = ops.neg(ops.abs(ops.sub(a, b)))
    result: Value = ops.add(ops.maximum(a, b), ops.softplus(distance))
    return result


@importer("logit", "special_logit")
def logit(self: Operand, eps: float | None = None) -> Value:
    x = floating(self)
    x = x if eps is None else clamp(x, float(eps), 1 - float(eps))
    result: Value = ops.log(ops.div(x, ops.sub(number(1, x.dtype), x)))
    return result


@importer("erfc", "special_erfc")
def erfc(self: Operand) -> Value:
    x = floating(self)
    result: Value = ops.sub(number(1, x.dtype), ops.erf(x))
    return result


@importer("deg2rad")
def deg2rad(self: Operand) -> Value:
    return mul(floating(self), math.pi / 180)


@importer("rad2deg")
def rad2deg(self: Operand) -> Value:
    return mul(floating(self), 180 / math.pi)


@importer("addcmul")
def addcmul(self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return add(self, mul(tensor1, tensor2), value)


@importer("addcdiv")
def addcdiv(self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return add(self, div(tensor1, tensor2), value)


@importer("lerp")
def lerp(self: Value, end: Value, weight: Operand) -> Value:
    return add(self, mul(sub(end, self), weight))
