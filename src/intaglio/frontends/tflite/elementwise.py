"""Importers of elementwise ops whose TFLite form differs from ours."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.tflite.file import DTYPES
from intaglio.frontends.tflite.node import TfliteNode, importer, parameters, stored
from intaglio.ir import Quant, Value, constant


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
    made: Value = ops.where(zero, turned, still)
    return made


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
    dtype = DTYPES.get(n.option("OutDataType", -1), n.out().dtype)
    y: Value = ops.cast(n.required(0), dtype=dtype if n.op.options else n.out().dtype)
    return y


@importer("QUANTIZE", stored=True)
def quantize(n: TfliteNode) -> Value:
    """Requantise to the result's scale. Between 8-bit types XNNPACK multiplies by a factor rounded
    to 1/256 and rounds ties up; a lookup table reproduces that."""
    x, t, given = n.required(0), n.out(), n.tensor(0)
    if given is None or given.quant is None or t.quant is None:
        return stored(n.real(0) or x, t)
    ratio = given.quant.scale[0] / t.quant.scale[0]
    if given.dtype != t.dtype or t.dtype not in ("i8", "u8") or not 2.0**-8 <= ratio <= 2.0**7:
        return stored(n.real(0) or x, t)
    every = np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(t.dtype)).astype(np.int64)
    by = round(256 * float(np.float32(given.quant.scale[0]) / np.float32(t.quant.scale[0])))
    table = (((every - given.quant.zero[0]) * by + 128) >> 8) + t.quant.zero[0]
    table = np.clip(table, *dtypes.limits(t.dtype)).astype(dtypes.numpy_of(t.dtype))
    y: Value = ops.lookup(x, constant(table))
    return y


@importer("DEQUANTIZE", "DENSIFY")
def identity(n: TfliteNode) -> Value:
    """The operand itself; the result is requantised to its tensor's scale."""
    x, t = n.required(0), n.out()
    if dtypes.is_float(t.dtype) and x.dtype != t.dtype:
        y: Value = ops.cast(x, dtype=t.dtype)
        return y
    return x


@importer("FAKE_QUANT")
def fake_quant(n: TfliteNode) -> Value:
    """FAKE_QUANT: quantise and dequantise within a range."""
    lo, hi, bits = (n.option(f, d) for f, d in (("Min", 0.0), ("Max", 0.0), ("NumBits", 8)))
    if bits != 8 or not lo <= 0 <= hi or lo == hi:
        n.unsupported(f"num_bits is {bits} from {lo} to {hi}; only 8 bits around 0 are supported")
    scale = (hi - lo) / 255
    zero = min(max(round(-lo / scale), 0), 255)
    s, z, attrs = parameters(Quant((scale,), (zero,)), "u8")
    q = ops.quantize_linear(n.required(0), s, z, dtype="u8", **attrs)
    y: Value = ops.dequantize_linear(q, s, z, **attrs)
    return y
