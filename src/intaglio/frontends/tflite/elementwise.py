"""Importers of elementwise ops whose TFLite form differs from ours."""

from __future__ import annotations

import math

from intaglio import dtypes, ops
from intaglio.frontends.tflite.file import DTYPES
from intaglio.frontends.tflite.node import TfliteNode, importer
from intaglio.ir import Value, constant


@importer("RELU6")
def relu6(n: TfliteNode) -> Value:
    y: Value = ops.clip(n.required(0), lo=0.0, hi=6.0)
    return y


@importer("RELU_N1_TO_1")
def relu_one(n: TfliteNode) -> Value:
    y: Value = ops.clip(n.required(0), lo=-1.0, hi=1.0)
    return y


@importer("RELU_0_TO_1")
def relu_unit(n: TfliteNode) -> Value:
    y: Value = ops.clip(n.required(0), lo=0.0, hi=1.0)
    return y


@importer("LEAKY_RELU")
def leaky_relu(n: TfliteNode) -> Value:
    y: Value = ops.leaky_relu(n.required(0), alpha=float(n.option("Alpha", 0.0)))
    return y


@importer("GELU")
def gelu(n: TfliteNode) -> Value:
    way = "tanh" if n.option("Approximate", False) else "none"
    y: Value = ops.gelu(n.required(0), approximate=way)
    return y


@importer("SOFTMAX")
def softmax(n: TfliteNode) -> Value:
    x, beta = n.required(0), float(n.option("Beta", 1.0))
    if beta != 1:
        x = ops.mul(x, constant(beta, dtype=x.dtype))
    y: Value = ops.softmax(x, axis=-1)
    return y


@importer("LOG_SOFTMAX")
def log_softmax(n: TfliteNode) -> Value:
    y: Value = ops.log_softmax(n.required(0), axis=-1)
    return y


@importer("SQUARE")
def square(n: TfliteNode) -> Value:
    y: Value = ops.mul(n.required(0), n.required(0))
    return y


@importer("SQUARED_DIFFERENCE")
def squared_difference(n: TfliteNode) -> Value:
    d = ops.sub(n.required(0), n.required(1))
    y: Value = ops.mul(d, d)
    return y


@importer("RSQRT")
def rsqrt(n: TfliteNode) -> Value:
    y: Value = ops.reciprocal(ops.sqrt(n.required(0)))
    return y


@importer("ADD_N")
def add_n(n: TfliteNode) -> Value:
    y = n.required(0)
    for x in n.operands()[1:]:
        y = ops.add(y, x)
    return y


@importer("FLOOR_DIV")
def floor_div(n: TfliteNode) -> Value:
    a, b = n.required(0), n.required(1)
    if dtypes.is_float(a.dtype):
        y: Value = ops.floor(ops.div(a, b))
        return y
    whole: Value = ops.div(ops.sub(a, ops.mod(a, b)), b)
    return whole


@importer("NOT_EQUAL")
def not_equal(n: TfliteNode) -> Value:
    y: Value = ops.logical_not(ops.equal(n.required(0), n.required(1)))
    return y


@importer("SELECT", "SELECT_V2")
def select(n: TfliteNode) -> Value:
    """SELECT may have one condition per row."""
    cond, a, b = n.required(0), n.required(1), n.required(2)
    if n.op.op == "SELECT" and cond.type.rank == 1 and a.type.rank > 1:
        cond = ops.reshape(cond, shape=(*cond.shape, *[1] * (a.type.rank - 1)))
    y: Value = ops.where(a, b, cond)
    return y


@importer("ATAN2")
def atan2(n: TfliteNode) -> Value:
    """atan(y / x), plus or minus pi where x is negative."""
    y, x = n.required(0), n.required(1)
    zero, pi = constant(0.0, dtype=x.dtype), constant(math.pi, dtype=x.dtype)
    half = ops.where(ops.neg(pi), pi, ops.less(y, zero))
    turned = ops.add(ops.atan(ops.div(y, x)), ops.where(half, zero, ops.less(x, zero)))
    still = ops.logical_and(ops.equal(y, zero), ops.equal(x, zero))
    result: Value = ops.where(zero, turned, still)
    return result


@importer("BITWISE_XOR", stored=True)
def bitwise_xor(n: TfliteNode) -> Value:
    y: Value = ops.bitwise_xor(n.required(0), n.required(1))
    return y


@importer("BITCAST", stored=True)
def bitcast(n: TfliteNode) -> Value:
    y: Value = ops.bitcast(n.required(0), dtype=n.out().dtype)
    return y


@importer("CAST", stored=True)
def cast(n: TfliteNode) -> Value:
    """A complex number becomes its real part."""
    dtype = DTYPES.get(n.option("OutDataType", -1), n.out().dtype)
    x = n.complex(0).real if n.is_complex(0) else n.required(0)
    y: Value = ops.cast(x, dtype=dtype if n.op.options else n.out().dtype)
    return y
