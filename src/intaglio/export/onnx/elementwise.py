"""ONNX forms of arithmetic, logic, activations and casts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.export.onnx.expression import Forms, Onnx, make, writes
from intaglio.frontends.onnx.tensors import element_code
from intaglio.ir import Array, Node, Value


def number(value: float, dtype: str) -> Array:
    """A scalar of an element type; for integers rounded and clamped to its range."""
    if dtypes.is_integer(dtype):
        low, high = dtypes.limits(dtype)
        value = low if value <= low else high if value >= high else int(value)
    return np.array(value).astype(dtypes.numpy_of(dtype))


def only(n: Node) -> Value:
    """The single operand of a node."""
    x = n.inputs[0]
    assert x is not None
    return x


@writes("clip")
def clip(n: Node) -> Onnx:
    x, lo, hi = only(n), n.attrs["lo"], n.attrs["hi"]
    if dtypes.is_integer(x.dtype):
        lo, hi = (f(b) if math.isfinite(b) else b for f, b in ((math.ceil, lo), (math.floor, hi)))
    least = number(lo, x.dtype) if lo > -math.inf else None
    return make("Clip", x, least, number(hi, x.dtype) if hi < math.inf else None)


@writes("swish")
def swish(n: Node) -> Forms:
    x, alpha = only(n), n.attrs["alpha"]
    scaled: Any = x if alpha == 1 else make("Mul", x, number(alpha, x.dtype))
    return make("Swish", x, alpha=alpha), make("Mul", x, make("Sigmoid", scaled))


@writes("gelu")
def gelu(n: Node) -> Forms:
    x = only(n)
    half, one = number(0.5, x.dtype), number(1, x.dtype)
    if n.attrs["approximate"] == "tanh":
        cube = make("Mul", make("Mul", x, make("Mul", x, x)), number(0.044715, x.dtype))
        inner = make("Mul", make("Add", x, cube), number(math.sqrt(2 / math.pi), x.dtype))
        bent = make("Tanh", inner)
    else:
        bent = make("Erf", make("Mul", x, number(math.sqrt(0.5), x.dtype)))
    spelled = make("Mul", make("Mul", x, half), make("Add", bent, one))
    return make("Gelu", x, approximate=n.attrs["approximate"]), spelled


@writes("mish")
def mish(n: Node) -> Forms:
    x = only(n)
    return make("Mish", x), make("Mul", x, make("Tanh", make("Softplus", x)))


@writes("is_inf")
def is_inf(n: Node) -> Onnx:
    a = n.attrs
    return make("IsInf", *n.inputs, detect_negative=a["negative"], detect_positive=a["positive"])


@writes("mod")
def mod(n: Node) -> Forms:
    """Before opset 28, Mod with the sign of the divisor is for integers only."""
    a, b = n.inputs
    if dtypes.is_integer(only(n).dtype):
        return make("Mod", a, b)
    rest = make("Mod", a, b, fmod=1)
    nothing = number(0, only(n).dtype)
    opposite = make("Less", make("Mul", make("Sign", rest), make("Sign", b)), nothing)
    return make("Mod", a, b).between(28), make("Where", opposite, make("Add", rest, b), rest)


@writes("fmod")
def fmod(n: Node) -> Onnx:
    return make("Mod", *n.inputs, fmod=1)


@writes("shift_left", "shift_right")
def shift(n: Node) -> Onnx:
    return make("BitShift", *n.inputs, direction="LEFT" if n.op == "shift_left" else "RIGHT")


@writes("where")
def where(n: Node) -> Onnx:
    a, b, cond = n.inputs
    return make("Where", cond, a, b)


@writes("cast")
def cast(n: Node) -> Onnx:
    saturate = None if n.attrs["saturate"] else 0  # only newer opsets have the attribute
    return make("Cast", only(n), to=element_code(n.attrs["dtype"]), saturate=saturate)


@writes("bitcast")
def bitcast(n: Node) -> Forms:
    """4-bit elements take one byte each here; ONNX packs two into a byte."""
    x, dtype = only(n), n.attrs["dtype"]
    small = [d.name for d in dtypes.TABLE.values() if 1 < d.bits < 8]
    if (x.dtype in small or dtype in small) and (
        dtypes.TABLE[x.dtype].bits != dtypes.TABLE[dtype].bits
    ):
        return ()
    return make("BitCast", x, to=element_code(dtype))
