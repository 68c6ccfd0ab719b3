"""Functions of f32 that exported C and numpy compute by the same steps, to the bit.

A C library's `expf` differs from numpy's in the last bits. This exponential has sums, products and
one rounding to a whole number, each rounded to f32, so that every compiler and numpy agree.
"""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops.registry import normalize_axis, op
from intaglio.rewrite import P, Rule, rule

LOG2_E = np.float32(1.44269504)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # whole multiples are exact
MAGIC = np.float32(12582912)  # 2^23 + 2^22: adding it rounds to a whole number
LOWEST = np.float32(-87)  # exp(x) is 0 below it
# (exp(r) - 1 - r) / r^2 for |r| < ln(2) / 2, from r^4 down; relative error of exp(r) 3e-9
POWERS = tuple(
    np.float32(float.fromhex(c))
    for c in ("0x1.6a23cep-10", "0x1.123a20p-7", "0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2")
)


def exponential(x: Array) -> Array:
    """exp(x) of f32 for x <= 0."""
    real = np.maximum(x, LOWEST)
    n = (real * LOG2_E + MAGIC) - MAGIC
    r = (real - n * LN2_HIGH) - n * LN2_LOW
    p = np.full_like(r, POWERS[0])
    for c in POWERS[1:]:
        p = p * r + c
    y = (p * (r * r) + r) + np.float32(1)
    scale = ((n.astype(np.int32) + 127) << 23).view(np.float32)
    result: Array = np.where(x < LOWEST, np.float32(0), y * scale)
    return result


def _same(x: Value, *, axis: int = 0) -> Type:
    return x.type.but(quant=None)


@op(_same, name="micro.softmax")
def micro_softmax(x: Array, *, axis: int) -> Array:
    """softmax with the exponential of this module; sums are made in order."""
    e = exponential(x - x.max(axis, keepdims=True))
    total = np.add.accumulate(e, axis, dtype=np.float32).take([-1], axis)
    result: Array = e / total
    return result


@op(_same, name="micro.sigmoid")
def micro_sigmoid(x: Array) -> Array:
    """sigmoid with the exponential of this module."""
    e, one = exponential(-np.abs(x)), np.float32(1)
    result: Array = np.where(x < 0, e, one) / (e + one)
    return result


(x,) = P["x"]


@rule(P.softmax(x))
def softmax_micro(node: Node, x: Value) -> Value | None:
    """Lower softmax of f32 to steps that C and numpy round alike."""
    if x.dtype != "f32" or x.type.size == 0:
        return None
    result: Value = micro_softmax(x, axis=normalize_axis(node.attrs["axis"], x.type.rank))
    return result


@rule(P.sigmoid(x))
def sigmoid_micro(node: Node, x: Value) -> Value | None:
    """Lower sigmoid of f32 to steps that C and numpy round alike."""
    if x.dtype != "f32":
        return None
    result: Value = micro_sigmoid(x)
    return result


@rule(P.swish(x))
def swish_micro(node: Node, x: Value) -> Value | None:
    """Lower swish of f32 to a product with a sigmoid that C and numpy round alike."""
    if x.dtype != "f32":
        return None
    scaled = ops.mul(x, constant(np.float32(node.attrs["alpha"])))
    result: Value = ops.mul(x, micro_sigmoid(scaled))
    return result


@rule(P.hardswish(x))
def hardswish_micro(node: Node, x: Value) -> Value | None:
    """Lower hardswish of f32 to arithmetic and a clip."""
    if x.dtype != "f32":
        return None
    gate = ops.clip(ops.add(x, constant(np.float32(3))), lo=0.0, hi=6.0)
    result: Value = ops.div(ops.mul(x, gate), constant(np.float32(6)))
    return result


FLOAT_FUNCTIONS: tuple[Rule, ...] = (softmax_micro, sigmoid_micro, swish_micro, hardswish_micro)
