"""Importers of QUANTIZE, DEQUANTIZE and FAKE_QUANT."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.tflite.file import Tensor
from intaglio.frontends.tflite.integer_arithmetic import clamped, multiplied, rescaled
from intaglio.frontends.tflite.node import TfliteNode, importer, parameters, stored
from intaglio.ir import Array, Quant, Value, constant

BYTES = ("i8", "u8")
XNNPACK_RATIOS = 2.0**-8, 2.0**7  # of scales that XNNPACK requantises


@importer("QUANTIZE", stored=True)
def quantize(n: TfliteNode) -> Value:
    """Quantise, or requantise to the result's scale in LiteRT's integer arithmetic."""
    x, t, given = n.required(0), n.out(), n.tensor(0)
    if t.quant is None or t.quant.axis is not None or given is None:
        return stored(n.real(0) or x, t)
    if given.quant is None:
        return _wide_steps(x, t.quant) if t.dtype == "i32" and x.dtype == "f32" else stored(x, t)
    if given.dtype in BYTES:
        y: Value = ops.lookup(x, constant(_byte_table(given, t, given.quant, t.quant)))
        return y
    if given.dtype in ("i16", "i32"):
        return _requantized(x, given.quant, t.quant, t.dtype)
    return stored(n.real(0) or x, t)


def _wide_steps(x: Value, q: Quant) -> Value:
    """f32 as i32 steps, ties away from zero."""
    real = ops.div(ops.cast(x, dtype="f64"), constant(q.scale[0], dtype="f64"))
    whole = ops.floor(ops.add(ops.abs(real), constant(0.5, dtype="f64")))
    steps = ops.add(ops.mul(ops.sign(real), whole), constant(float(q.zero[0]), dtype="f64"))
    low, high = dtypes.limits("i32")
    result: Value = ops.cast(ops.clip(steps, lo=float(low), hi=float(high)), dtype="i32")
    return result


def _requantized(x: Value, given: Quant, q: Quant, dtype: str) -> Value:
    centred = ops.sub(ops.cast(x, dtype="i64"), constant(given.zero[0], dtype="i64"))
    steps = multiplied(centred, [given.scale[0] / q.scale[0]])
    steps = ops.add(steps, constant(q.zero[0], dtype="i64"))
    result: Value = ops.cast(clamped(steps, *dtypes.limits(dtype)), dtype=dtype)
    return result


def _byte_table(given: Tensor, t: Tensor, old: Quant, new: Quant) -> Array:
    """The results for all bytes. XNNPACK, which LiteRT uses for equal types, multiplies by a factor
    rounded to 1/256 and rounds ties up."""
    every = np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(given.dtype)).astype(np.int64)
    ratio = old.scale[0] / new.scale[0]
    if given.dtype == t.dtype and XNNPACK_RATIOS[0] <= ratio <= XNNPACK_RATIOS[1]:
        by = round(256 * float(np.float32(old.scale[0]) / np.float32(new.scale[0])))
        table = ((every - old.zero[0]) * by + 128) >> 8
    else:
        table = rescaled(every - old.zero[0], ratio)
    clipped = np.clip(table + new.zero[0], *dtypes.limits(t.dtype))
    return clipped.astype(dtypes.numpy_of(t.dtype))


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
