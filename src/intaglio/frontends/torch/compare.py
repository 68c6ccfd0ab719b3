"""Importers of comparisons, logic, tests for inf and NaN, clamp and where."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes, ops
from intaglio.errors import Unsupported
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


def _compared(op: Any) -> Any:
    def function(self: Operand, other: Operand) -> Value:
        result: Value = op(*promoted(self, other))
        return result

    return function


for _name, _op in (
    ("less", ops.less),
    ("less_equal", ops.less_equal),
    ("greater", ops.greater),
    ("greater_equal", ops.greater_equal),
):
    importer(_name)(_compared(_op))


@importer("ne", "__ne__", "not_equal")
def ne(self: Operand, other: Operand) -> Value:
    result: Value = ops.logical_not(ops.equal(*promoted(self, other)))
    return result


def _logic(logical: Any, bits: Any | None) -> Any:
    def function(self: Operand, other: Operand) -> Value:
        a, b = promoted(self, other)
        if bits is not None and a.dtype != "bool":
            result: Value = bits(a, b)
            return result
        result = logical(as_bool(a), as_bool(b))
        return result

    return function


for _names, _logical, _bits in (
    (("logical_and",), ops.logical_and, None),
    (("logical_or",), ops.logical_or, None),
    (("logical_xor",), ops.logical_xor, None),
    (("__and__", "bitwise_and", "and"), ops.logical_and, ops.bitwise_and),
    (("__or__", "bitwise_or", "or"), ops.logical_or, ops.bitwise_or),
    (("__xor__", "bitwise_xor", "xor"), ops.logical_xor, ops.bitwise_xor),
):
    importer(*_names)(_logic(_logical, _bits))


def as_bool(x: Value) -> Value:
    if x.dtype == "bool":
        return x
    result: Value = ops.logical_not(ops.equal(x, number(0, x.dtype)))
    return result


@importer("logical_not", "__not__", "not_", "sym_not")
def logical_not(self: Operand) -> Value:
    result: Value = ops.logical_not(as_bool(tensor(self)))
    return result


@importer("bitwise_not")
def bitwise_not(self: Operand) -> Value:
    x = tensor(self)
    result: Value = ops.logical_not(x) if x.dtype == "bool" else ops.bitwise_not(x)
    return result


@importer("isinf")
def isinf(self: Operand) -> Value:
    result: Value = ops.is_inf(floating(self))
    return result


@importer("isposinf")
def isposinf(self: Operand) -> Value:
    result: Value = ops.is_inf(floating(self), negative=False)
    return result


@importer("isneginf")
def isneginf(self: Operand) -> Value:
    result: Value = ops.is_inf(floating(self), positive=False)
    return result


@importer("isclose")
def isclose(
    self: Operand, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    a, b = (floating(v) for v in promoted(self, other))
    near = ops.add(ops.mul(ops.abs(b), number(rtol, b.dtype)), number(atol, b.dtype))
    result: Value = ops.less_equal(ops.abs(ops.sub(a, b)), near)
    return result


@importer("isfinite")
def isfinite(self: Operand) -> Value:
    x = floating(self)
    result: Value = ops.logical_not(ops.logical_or(ops.is_nan(x), ops.is_inf(x)))
    return result


@importer("where")
def where(condition: Value, self: Operand = None, other: Operand = None) -> Value:
    if self is None or other is None:
        raise Unsupported(
            "where without operands gives indices, whose number is known only at run time; use "
            "where(condition, a, b)"
        )
    a, b = promoted(self, other)
    result: Value = ops.where(a, b, as_bool(condition))
    return result


@importer("masked_fill")
def masked_fill(self: Value, mask: Value, value: Operand) -> Value:
    result: Value = ops.where(as_dtype(value, self.dtype), self, as_bool(mask))
    return result


@importer("clamp", "clip")
def clamp(self: Value, min: Operand = None, max: Operand = None) -> Value:
    x = tensor(self)
    numbers = all(v is None or isinstance(v, int | float) for v in (min, max))
    if numbers and dtypes.is_float(x.dtype):
        lo = -math.inf if min is None else float(min)
        hi = math.inf if max is None else float(max)
        result: Value = ops.clip(x, lo=lo, hi=hi) if lo <= hi else ops.clip(x, lo=hi, hi=hi)
        return result
    if min is not None:
        x = ops.maximum(*promoted(x, min))
    if max is not None:
        x = ops.minimum(*promoted(x, max))
    return x


@importer("clamp_min")
def clamp_min(self: Value, min: Operand) -> Value:
    return clamp(self, min)


@importer("clamp_max")
def clamp_max(self: Value, max: Operand) -> Value:
    return clamp(self, None, max)


@importer("bitwise_left_shift", "__lshift__")
def shift_left(self: Operand, other: Operand) -> Value:
    result: Value = ops.shift_left(*promoted(self, other))
    return result


@importer("bitwise_right_shift", "__rshift__")
def shift_right(self: Operand, other: Operand) -> Value:
    result: Value = ops.shift_right(*promoted(self, other))
    return result


@importer("heaviside")
def heaviside(self: Value, values: Value) -> Value:
    a, v = promoted(self, values)
    one, zero = number(1, a.dtype), number(0, a.dtype)
    step = ops.where(one, zero, ops.greater(a, zero))
    result: Value = ops.where(v, step, ops.equal(a, zero))
    return result


@importer("nan_to_num")
def nan_to_num(
    self: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    x = floating(self)
    big = float(dtypes.numpy_of(x.dtype).type(3.4028234663852886e38))
    made = ops.where(number(nan or 0.0, x.dtype), x, ops.is_nan(x))
    low, high = -big if neginf is None else neginf, big if posinf is None else posinf
    made = ops.where(number(high, x.dtype), made, ops.is_inf(x, negative=False))
    result: Value = ops.where(number(low, x.dtype), made, ops.is_inf(x, positive=False))
    return result
