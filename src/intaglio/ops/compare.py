"""Comparisons, boolean and bitwise logic, and selection, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.elementwise import bools, integers
from intaglio.ops.registry import broadcast, broadcast_shapes, compare, op


def predicate(x: Value, **attrs: Any) -> Type:
    """One bool per element of the input."""
    return x.type.but(dtype="bool", quant=None)


@op(bools, elementwise=True, onnx="Not", tflite="LOGICAL_NOT", torch="logical_not", tf="LogicalNot")
def logical_not(x: Array) -> Array:
    return np.logical_not(x)


@op(integers, elementwise=True, onnx="BitwiseNot", torch="bitwise_not", tf="Invert")
def bitwise_not(x: Array) -> Array:
    return np.invert(x)


@op(predicate, elementwise=True, onnx="IsNaN", torch="isnan", tf="IsNan")
def is_nan(x: Array) -> Array:
    return np.isnan(x.astype(np.float32) if x.dtype.itemsize < 4 else x)


@op(predicate, elementwise=True)
def is_inf(x: Array, *, negative: bool = True, positive: bool = True) -> Array:
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    return (np.isposinf(wide) & bool(positive)) | (np.isneginf(wide) & bool(negative))


# ---- comparison and logic ----------------------------------------------------------------------
@op(compare, commutes=True, elementwise=True, onnx="Equal", tflite="EQUAL", torch="eq", tf="Equal")
def equal(a: Array, b: Array) -> Array:
    return a == b


@op(compare, elementwise=True, onnx="Less", tflite="LESS", torch="lt", tf="Less")
def less(a: Array, b: Array) -> Array:
    return a < b


@op(compare, elementwise=True, onnx="LessOrEqual", tflite="LESS_EQUAL", torch="le", tf="LessEqual")
def less_equal(a: Array, b: Array) -> Array:
    return a <= b


@op(compare, elementwise=True, onnx="Greater", tflite="GREATER", torch="gt", tf="Greater")
def greater(a: Array, b: Array) -> Array:
    return a > b


@op(
    compare,
    elementwise=True,
    onnx="GreaterOrEqual",
    tflite="GREATER_EQUAL",
    torch="ge",
    tf="GreaterEqual",
)
def greater_equal(a: Array, b: Array) -> Array:
    return a >= b


@op(
    bools,
    commutes=True,
    elementwise=True,
    onnx="And",
    tflite="LOGICAL_AND",
    torch="logical_and",
    tf="LogicalAnd",
)
def logical_and(a: Array, b: Array) -> Array:
    return np.logical_and(a, b)


@op(
    bools,
    commutes=True,
    elementwise=True,
    onnx="Or",
    tflite="LOGICAL_OR",
    torch="logical_or",
    tf="LogicalOr",
)
def logical_or(a: Array, b: Array) -> Array:
    return np.logical_or(a, b)


@op(bools, commutes=True, elementwise=True, onnx="Xor", torch="logical_xor")
def logical_xor(a: Array, b: Array) -> Array:
    return np.logical_xor(a, b)


@op(
    integers,
    commutes=True,
    elementwise=True,
    onnx="BitwiseAnd",
    torch="bitwise_and",
    tf="BitwiseAnd",
)
def bitwise_and(a: Array, b: Array) -> Array:
    return np.bitwise_and(a, b)


@op(integers, commutes=True, elementwise=True, onnx="BitwiseOr", torch="bitwise_or", tf="BitwiseOr")
def bitwise_or(a: Array, b: Array) -> Array:
    return np.bitwise_or(a, b)


@op(
    integers,
    commutes=True,
    elementwise=True,
    onnx="BitwiseXor",
    torch="bitwise_xor",
    tf="BitwiseXor",
)
def bitwise_xor(a: Array, b: Array) -> Array:
    return np.bitwise_xor(a, b)


@op(integers, elementwise=True, tf="LeftShift")
def shift_left(a: Array, b: Array) -> Array:
    """A shift count below 0 or not below the bit width gives 0."""
    bits = 8 * a.dtype.itemsize
    safe = (b >= 0) & (b < bits)
    return np.where(safe, np.left_shift(a, np.where(safe, b, b.dtype.type(0))), a.dtype.type(0))


@op(integers, elementwise=True, tf="RightShift")
def shift_right(a: Array, b: Array) -> Array:
    """Arithmetic shift; a count below 0 or not below the bit width gives 0 or, if negative, -1."""
    bits = 8 * a.dtype.itemsize
    safe = (b >= 0) & (b < bits)
    sign_only = np.where(a < 0, np.array(-1).astype(a.dtype), a.dtype.type(0))
    return np.where(safe, np.right_shift(a, np.where(safe, b, b.dtype.type(0))), sign_only)


# ---- selection ---------------------------------------------------------------------------------
def _select(a: Value, b: Value, cond: Value) -> Type:
    if cond.dtype != "bool":
        raise BadInput(f"where: the condition has element type {cond.dtype}, bool is needed")
    return broadcast(a, b).but(shape=broadcast_shapes(a, b, cond))


@op(_select, elementwise=True)
def where(a: Array, b: Array, cond: Array) -> Array:
    """`a` where `cond` is true, else `b`."""
    return np.where(cond, a, b)
