"""Arithmetic, comparisons and activations that are not one of our ops by another name."""

from __future__ import annotations

import math
from typing import Any

from intaglio import dtypes, ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.importer import (
    as_dtype,
    axis_of,
    cast_to,
    floating,
    importer,
    integer,
    promoted,
    reshaped,
    result_type,
    tensor,
)
from intaglio.frontends.torch.tensors import number
from intaglio.ir import Value

V = Any  # a Value or a Python number


def _scaled(other: V, alpha: Any) -> V:
    if alpha == 1:
        return other
    if isinstance(other, Value):
        return ops.mul(*promoted(other, alpha))
    return other * alpha


@importer("add", "__iadd__")
def add(self: V, other: V, alpha: Any = 1) -> Value:
    a, b = promoted(self, _scaled(other, alpha))
    made: Value = ops.logical_or(a, b) if a.dtype == "bool" else ops.add(a, b)
    return made


@importer("sub", "__isub__", "subtract")
def sub(self: V, other: V, alpha: Any = 1) -> Value:
    made: Value = ops.sub(*promoted(self, _scaled(other, alpha)))
    return made


@importer("rsub")
def rsub(self: V, other: V, alpha: Any = 1) -> Value:
    return sub(other, self, alpha)


@importer("mul", "multiply", "__imul__")
def mul(self: V, other: V) -> Value:
    a, b = promoted(self, other)
    made: Value = ops.logical_and(a, b) if a.dtype == "bool" else ops.mul(a, b)
    return made


@importer("div", "divide", "true_divide", "__idiv__")
def div(self: V, other: V, rounding_mode: str | None = None) -> Value:
    a, b = promoted(self, other)
    if rounding_mode is None:
        if not dtypes.is_float(a.dtype):
            a, b = as_dtype(a, "f32"), as_dtype(b, "f32")
        made: Value = ops.div(a, b)
        return made
    if rounding_mode == "floor":
        return floor_divide(a, b)
    if rounding_mode != "trunc":
        raise Unsupported(f"rounding_mode '{rounding_mode}' is not known")
    return _truncated(a, b)


def _truncated(a: Value, b: Value) -> Value:
    made: Value = ops.div(a, b)  # whole numbers divide towards zero
    return trunc(made) if dtypes.is_float(a.dtype) else made


@importer("floor_divide", "floordiv", "__floordiv__")
def floor_divide(self: V, other: V) -> Value:
    a, b = promoted(self, other)
    if dtypes.is_float(a.dtype):
        made: Value = ops.floor(ops.div(a, b))
        return made
    whole = ops.sub(a, ops.mod(a, b))
    made = ops.div(whole, b)
    return made


@importer("remainder", "__mod__")
def remainder(self: V, other: V) -> Value:
    made: Value = ops.mod(*promoted(self, other))
    return made


@importer("pow")
def pow_(self: V, exponent: V) -> Value:
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        x = tensor(self)
        if exponent == 2:
            made: Value = ops.mul(x, x)
            return made
        if exponent == 1:
            return x
        if exponent == 0.5:
            return sqrt_of(x)
    made = ops.pow(*promoted(self, exponent))
    return made


def sqrt_of(x: Value) -> Value:
    made: Value = ops.sqrt(floating(x))
    return made


@importer("square")
def square(self: V) -> Value:
    return pow_(self, 2)


@importer("rsqrt")
def rsqrt(self: V) -> Value:
    made: Value = ops.reciprocal(sqrt_of(tensor(self)))
    return made


@importer("trunc", "fix")
def trunc(self: V) -> Value:
    x = tensor(self)
    if not dtypes.is_float(x.dtype):
        return x
    down = ops.floor(ops.abs(x))
    made: Value = ops.mul(down, ops.sign(x))
    return made


@importer("frac")
def frac(self: V) -> Value:
    made: Value = ops.sub(tensor(self), trunc(self))
    return made


def _via_log(self: V, base: float) -> Value:
    x = floating(self)
    made: Value = ops.mul(ops.log(x), number(1 / math.log(base), x.dtype))
    return made


@importer("log2")
def log2(self: V) -> Value:
    return _via_log(self, 2)


@importer("log10")
def log10(self: V) -> Value:
    return _via_log(self, 10)


@importer("log1p")
def log1p(self: V) -> Value:
    x = floating(self)
    made: Value = ops.log(ops.add(x, number(1, x.dtype)))
    return made


@importer("expm1", "special_expm1")
def expm1(self: V) -> Value:
    x = floating(self)
    made: Value = ops.sub(ops.exp(x), number(1, x.dtype))
    return made


@importer("exp2")
def exp2(self: V) -> Value:
    x = floating(self)
    made: Value = ops.exp(ops.mul(x, number(math.log(2), x.dtype)))
    return made


@importer("atan2", "arctan2")
def atan2(self: V, other: V) -> Value:
    """By the half angle, which is right in every quadrant but on the negative axis itself."""
    y, x = (floating(v) for v in promoted(self, other))
    zero, pi = number(0, x.dtype), number(math.pi, x.dtype)
    inner = ops.atan(ops.div(y, x))
    turned = ops.where(ops.sub(inner, pi), ops.add(inner, pi), ops.less(y, zero))
    made = ops.where(turned, inner, ops.less(x, zero))
    half = ops.mul(ops.sign(y), number(math.pi / 2, x.dtype))
    result: Value = ops.where(half, made, ops.equal(x, zero))
    return result


def _compared(op: Any) -> Any:
    def function(self: V, other: V) -> Value:
        made: Value = op(*promoted(self, other))
        return made

    return function


for _name, _op in (
    ("less", ops.less),
    ("less_equal", ops.less_equal),
    ("greater", ops.greater),
    ("greater_equal", ops.greater_equal),
):
    importer(_name)(_compared(_op))


@importer("ne", "__ne__", "not_equal")
def ne(self: V, other: V) -> Value:
    made: Value = ops.logical_not(ops.equal(*promoted(self, other)))
    return made


def _logic(logical: Any, bits: Any | None) -> Any:
    def function(self: V, other: V) -> Value:
        a, b = promoted(self, other)
        if bits is not None and a.dtype != "bool":
            made: Value = bits(a, b)
            return made
        made = logical(as_bool(a), as_bool(b))
        return made

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
    made: Value = ops.logical_not(ops.equal(x, number(0, x.dtype)))
    return made


@importer("logical_not", "__not__")
def logical_not(self: V) -> Value:
    made: Value = ops.logical_not(as_bool(tensor(self)))
    return made


@importer("bitwise_not")
def bitwise_not(self: V) -> Value:
    x = tensor(self)
    made: Value = ops.logical_not(x) if x.dtype == "bool" else ops.bitwise_not(x)
    return made


@importer("isinf")
def isinf(self: V) -> Value:
    made: Value = ops.is_inf(floating(self))
    return made


@importer("isposinf")
def isposinf(self: V) -> Value:
    made: Value = ops.is_inf(floating(self), negative=False)
    return made


@importer("isneginf")
def isneginf(self: V) -> Value:
    made: Value = ops.is_inf(floating(self), positive=False)
    return made


@importer("isclose")
def isclose(
    self: V, other: V, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    a, b = (floating(v) for v in promoted(self, other))
    near = ops.add(ops.mul(ops.abs(b), number(rtol, b.dtype)), number(atol, b.dtype))
    made: Value = ops.less_equal(ops.abs(ops.sub(a, b)), near)
    return made


@importer("logaddexp")
def logaddexp(self: V, other: V) -> Value:
    """The larger one plus log(1 + exp(-distance))."""
    a, b = (floating(v) for v in promoted(self, other))
    apart = ops.neg(ops.abs(ops.sub(a, b)))
    made: Value = ops.add(ops.maximum(a, b), ops.softplus(apart))
    return made


@importer("logit", "special_logit")
def logit(self: V, eps: float | None = None) -> Value:
    x = floating(self)
    x = x if eps is None else clamp(x, float(eps), 1 - float(eps))
    made: Value = ops.log(ops.div(x, ops.sub(number(1, x.dtype), x)))
    return made


@importer("erfc", "special_erfc")
def erfc(self: V) -> Value:
    x = floating(self)
    made: Value = ops.sub(number(1, x.dtype), ops.erf(x))
    return made


@importer("deg2rad")
def deg2rad(self: V) -> Value:
    return mul(floating(self), math.pi / 180)


@importer("rad2deg")
def rad2deg(self: V) -> Value:
    return mul(floating(self), 180 / math.pi)


@importer("isfinite")
def isfinite(self: V) -> Value:
    x = floating(self)
    made: Value = ops.logical_not(ops.logical_or(ops.is_nan(x), ops.is_inf(x)))
    return made


@importer("where")
def where(condition: Value, self: V = None, other: V = None) -> Value:
    if self is None or other is None:
        raise Unsupported(
            "where with a condition alone gives indices, whose count is known only at run time"
        )
    a, b = promoted(self, other)
    made: Value = ops.where(a, b, as_bool(condition))
    return made


@importer("masked_fill")
def masked_fill(self: Value, mask: Value, value: V) -> Value:
    made: Value = ops.where(as_dtype(value, self.dtype), self, as_bool(mask))
    return made


@importer("clamp", "clip")
def clamp(self: Value, min: V = None, max: V = None) -> Value:
    x = tensor(self)
    numbers = all(v is None or isinstance(v, int | float) for v in (min, max))
    if numbers and dtypes.is_float(x.dtype):
        lo = -math.inf if min is None else float(min)
        hi = math.inf if max is None else float(max)
        made: Value = ops.clip(x, lo=lo, hi=hi) if lo <= hi else ops.clip(x, lo=hi, hi=hi)
        return made
    if min is not None:
        x = ops.maximum(*promoted(x, min))
    if max is not None:
        x = ops.minimum(*promoted(x, max))
    return x


@importer("clamp_min")
def clamp_min(self: Value, min: V) -> Value:
    return clamp(self, min)


@importer("clamp_max")
def clamp_max(self: Value, max: V) -> Value:
    return clamp(self, None, max)


@importer("addcmul")
def addcmul(self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return add(self, mul(tensor1, tensor2), value)


@importer("addcdiv")
def addcdiv(self: Value, tensor1: Value, tensor2: Value, value: Any = 1) -> Value:
    return add(self, div(tensor1, tensor2), value)


@importer("lerp")
def lerp(self: Value, end: Value, weight: V) -> Value:
    return add(self, mul(sub(end, self), weight))


@importer("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "native_dropout")
def dropout(input: Value, p: float = 0.5, train: bool = False) -> Value:
    """Nothing, unless the model was saved for training, where its results are random."""
    if train and p:
        raise Unsupported("dropout is in training mode; call model.eval() before saving")
    return input


@importer(
    "to", "_to_copy", "type_as", "_autocast_to_reduced_precision", "_autocast_to_full_precision"
)
def to(self: Value, *args: Any, dtype: int | None = None, **kwargs: Any) -> Value:
    """Only the element type matters; it is a number, or that of another tensor."""
    for a in args:
        if isinstance(a, Value):
            return as_dtype(self, a.dtype)
        if type(a) is int and dtype is None:
            dtype = a
            break
    return cast_to(tensor(self), dtype)


_CASTS = {
    "_cast_Long": "i64",
    "_cast_Float": "f32",
    "_cast_Int": "i32",
    "_cast_Byte": "u8",
    "_cast_Double": "f64",
    "_cast_Half": "f16",
    "_cast_Char": "i8",
    "_cast_Short": "i16",
}


def _cast(dtype: str) -> Any:
    def function(self: Value, non_blocking: bool = False) -> Value:
        return as_dtype(self, dtype)

    return function


for _name, _dtype in _CASTS.items():
    importer(_name)(_cast(_dtype))


@importer(
    "clone",
    "detach",
    "detach_copy",
    "alias",
    "contiguous",
    "lift_fresh",
    "lift_fresh_copy",
    "cpu",
    "cuda",
    "resolve_conj",
    "resolve_neg",
    "positive",
    "requires_grad",
    "view_of",
)
def itself(self: Value, *args: Any, **kwargs: Any) -> Value:
    return tensor(self)


@importer("copy")
def copy(self: Value, src: V, non_blocking: bool = False) -> Value:
    """What overwrites a tensor: another, spread to its shape."""
    made: Value = ops.expand(as_dtype(src, self.dtype), shape=self.shape)
    return made if tensor(src).shape != self.shape else as_dtype(src, self.dtype)


@importer("bitwise_left_shift", "__lshift__")
def shift_left(self: V, other: V) -> Value:
    made: Value = ops.shift_left(*promoted(self, other))
    return made


@importer("bitwise_right_shift", "__rshift__")
def shift_right(self: V, other: V) -> Value:
    made: Value = ops.shift_right(*promoted(self, other))
    return made


@importer("heaviside")
def heaviside(self: Value, values: Value) -> Value:
    a, v = promoted(self, values)
    one, zero = number(1, a.dtype), number(0, a.dtype)
    step = ops.where(one, zero, ops.greater(a, zero))
    made: Value = ops.where(v, step, ops.equal(a, zero))
    return made


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


@importer("result_type")
def result(tensor1: V, tensor2: V) -> int:
    from intaglio.frontends.torch.tensors import CODE_OF

    return CODE_OF[result_type(tensor1, tensor2)]


@importer("roll")
def roll(self: Value, shifts: Any, dims: Any = ()) -> Value:
    moves = shifts if isinstance(shifts, list | tuple) else [shifts]
    axes = dims if isinstance(dims, list | tuple) else [dims]
    x = self if axes else reshaped(self, (self.type.size,))
    for shift, dim in zip(moves, axes or [0], strict=True):
        axis = axis_of(dim, x)
        extent = x.shape[axis]
        cut = -integer(shift) % max(extent, 1)
        if cut:
            x = ops.concat(
                ops.part(x, cut, extent, axis=axis), ops.part(x, 0, cut, axis=axis), axis=axis
            )
    return reshaped(x, self.shape)
