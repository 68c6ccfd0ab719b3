"""Elementwise arithmetic: unary functions and binary operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.precision import widen
from intaglio.ops.registry import broadcast, op


def numbers(*values: Value, **attrs: Any) -> Type:
    """Numbers of one element type, broadcast together; the result has the same element type."""
    return _only("iuf", "numbers are", values)


def floats(*values: Value, **attrs: Any) -> Type:
    """Like `numbers`, floats only."""
    return _only("f", "floats are", values)


def integers(*values: Value, **attrs: Any) -> Type:
    """Like `numbers`, integers only."""
    return _only("iu", "integers are", values)


def bools(*values: Value, **attrs: Any) -> Type:
    """Like `numbers`, bools only."""
    return _only("b", "bool is", values)


def _only(kinds: str, what: str, values: Sequence[Value]) -> Type:
    for v in values:
        if dtypes.TABLE[v.dtype].kind not in kinds:
            raise BadInput(f"an operand has element type {v.dtype}; {what} needed; insert a cast")
    return broadcast(*values)


# ---- unary -------------------------------------------------------------------------------------
@op(numbers, elementwise=True, onnx="Abs", tflite="ABS", torch="abs", tf="Abs", caffe="AbsVal")
def abs(x: Array) -> Array:
    return np.abs(x)


@op(numbers, elementwise=True, onnx="Neg", tflite="NEG", torch="neg", tf="Neg")
def neg(x: Array) -> Array:
    return -x


@op(floats, elementwise=True, onnx="Sqrt", tflite="SQRT", torch="sqrt", tf="Sqrt")
@widen
def sqrt(x: Array) -> Array:
    return np.sqrt(x)


@op(floats, elementwise=True, onnx="Exp", tflite="EXP", torch="exp", tf="Exp")
@widen
def exp(x: Array) -> Array:
    return np.exp(x)


@op(floats, elementwise=True, onnx="Log", tflite="LOG", torch="log", tf="Log")
@widen
def log(x: Array) -> Array:
    return np.log(x)


@op(floats, elementwise=True, onnx="Sin", tflite="SIN", torch="sin", tf="Sin")
@widen
def sin(x: Array) -> Array:
    return np.sin(x)


@op(floats, elementwise=True, onnx="Cos", tflite="COS", torch="cos", tf="Cos")
@widen
def cos(x: Array) -> Array:
    return np.cos(x)


@op(floats, elementwise=True, onnx="Tan", torch="tan", tf="Tan")
@widen
def tan(x: Array) -> Array:
    return np.tan(x)


@op(floats, elementwise=True, onnx="Asin", torch="asin", tf="Asin")
@widen
def asin(x: Array) -> Array:
    return np.arcsin(x)


@op(floats, elementwise=True, onnx="Acos", torch="acos", tf="Acos")
@widen
def acos(x: Array) -> Array:
    return np.arccos(x)


@op(floats, elementwise=True, onnx="Atan", torch="atan", tf="Atan")
@widen
def atan(x: Array) -> Array:
    return np.arctan(x)


@op(floats, elementwise=True, onnx="Sinh", torch="sinh", tf="Sinh")
@widen
def sinh(x: Array) -> Array:
    return np.sinh(x)


@op(floats, elementwise=True, onnx="Cosh", torch="cosh", tf="Cosh")
@widen
def cosh(x: Array) -> Array:
    return np.cosh(x)


@op(
    floats,
    elementwise=True,
    onnx="Tanh",
    tflite="TANH",
    torch="tanh",
    tf="Tanh",
    caffe="TanH",
    ort_fused="Tanh",
    torch_quantized="tanh",
)
@widen
def tanh(x: Array) -> Array:
    return np.tanh(x)


@op(floats, elementwise=True, onnx="Asinh", torch="asinh", tf="Asinh")
@widen
def asinh(x: Array) -> Array:
    return np.arcsinh(x)


@op(floats, elementwise=True, onnx="Acosh", torch="acosh", tf="Acosh")
@widen
def acosh(x: Array) -> Array:
    return np.arccosh(x)


@op(floats, elementwise=True, onnx="Atanh", torch="atanh", tf="Atanh")
@widen
def atanh(x: Array) -> Array:
    return np.arctanh(x)


@op(floats, elementwise=True, onnx="Erf", torch="erf", tf="Erf")
def erf(x: Array) -> Array:
    flat = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return flat.reshape(x.shape).astype(x.dtype)


@op(floats, elementwise=True, onnx="Floor", tflite="FLOOR", torch="floor", tf="Floor")
def floor(x: Array) -> Array:
    return np.floor(x)


@op(floats, elementwise=True, onnx="Ceil", tflite="CEIL", torch="ceil", tf="Ceil")
def ceil(x: Array) -> Array:
    return np.ceil(x)


@op(floats, elementwise=True, onnx="Round", tflite="ROUND", torch="round", tf="Round")
def round(x: Array) -> Array:
    return np.rint(x)


@op(numbers, elementwise=True, onnx="Sign", tflite="SIGN", torch="sign", tf="Sign")
def sign(x: Array) -> Array:
    return np.sign(x)


@op(floats, elementwise=True, onnx="Reciprocal", torch="reciprocal", tf="Reciprocal")
@widen
def reciprocal(x: Array) -> Array:
    return 1 / x


# ---- binary -------------------------------------------------------------------------------------
@op(numbers, commutes=True, elementwise=True, onnx="Add", tflite="ADD", torch="add")
def add(a: Array, b: Array) -> Array:
    return a + b


@op(numbers, elementwise=True, onnx="Sub", tflite="SUB", torch="sub", tf="Sub")
def sub(a: Array, b: Array) -> Array:
    return a - b


@op(numbers, commutes=True, elementwise=True, onnx="Mul", tflite="MUL", torch="mul", tf="Mul")
def mul(a: Array, b: Array) -> Array:
    return a * b


@op(numbers, elementwise=True, onnx="Div", tflite="DIV", torch="div")
def div(a: Array, b: Array) -> Array:
    """Integers truncate towards zero; an integer divided by zero is 0."""
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    inexact = (quotient * b != a) & (b != 0)
    return quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)


@op(numbers, elementwise=True, onnx="Pow", tflite="POW", torch="pow", tf="Pow")
@widen
def pow(a: Array, b: Array) -> Array:
    """Integers to a negative power are 1/x**n truncated: 0 unless x is 1 or -1."""
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    power = np.power(a, np.maximum(b, b.dtype.type(0)))
    if a.dtype.kind == "u":
        return power
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)).astype(a.dtype)
    return np.where(b < 0, unit, power)


@op(numbers, elementwise=True, tflite="FLOOR_MOD", torch="remainder", tf="FloorMod")
@widen
def mod(a: Array, b: Array) -> Array:
    """The remainder with the sign of the divisor; an integer modulo zero is 0."""
    return np.mod(a, b)


@op(numbers, elementwise=True, torch="fmod")
@widen
def fmod(a: Array, b: Array) -> Array:
    """The remainder with the sign of the dividend; an integer modulo zero is 0."""
    return np.fmod(a, b)


@op(
    numbers,
    commutes=True,
    elementwise=True,
    onnx="Min",
    tflite="MINIMUM",
    torch="minimum",
    tf="Minimum",
)
def minimum(a: Array, b: Array) -> Array:
    return np.minimum(a, b)


@op(
    numbers,
    commutes=True,
    elementwise=True,
    onnx="Max",
    tflite="MAXIMUM",
    torch="maximum",
    tf="Maximum",
)
def maximum(a: Array, b: Array) -> Array:
    return np.maximum(a, b)
