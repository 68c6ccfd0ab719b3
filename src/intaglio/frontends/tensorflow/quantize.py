"""FakeQuant ops of quantisation-aware training, as quantise and dequantise pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Array, Value, constant


def nudged(low: Array, high: Array, bits: int, narrow: bool) -> tuple[Array, Array]:
    """Scale and zero point of a range, nudged as in TensorFlow so that 0 is exact."""
    lowest, highest = np.float32(1 if narrow else 0), np.float32((1 << bits) - 1)
    scale = (high - low) / (highest - lowest)
    zero = np.floor(lowest - low / scale + np.float32(0.5))
    return scale, np.clip(zero, lowest, highest).astype(np.int64)


def _fake_quant(n: TfNode, low: Array, high: Array, axis: int | None) -> Value:
    """8 bits: u8 for activations, i8 around 0 for narrow ranges (weights)."""
    x, bits, narrow = n.value(0), n.attr("num_bits", 8), n.attr("narrow_range", False)
    low, high = low.astype(np.float32), high.astype(np.float32)
    if not 2 <= bits <= 16 or low.shape != high.shape:
        raise BadInput(f"{bits} bits from {low.shape} to {high.shape} ends")
    empty = (low == 0) & (high == 0)
    if not np.all(np.isfinite(low) & np.isfinite(high) & ((low < high) | empty)):
        raise BadInput("a range has min above max; min must be below max")
    scale, zero = nudged(low, np.where(empty, np.float32(1), high), bits, narrow)
    dtype = "u8" if bits <= 8 else "u16"
    if narrow and bits == 8:
        dtype, zero = "i8", zero - 128
    if narrow or bits not in (8, 16):
        first = 1 if narrow else 0
        if dtype == "i8":
            first -= 128
        steps = (1 << bits) - 1 - (1 if narrow else 0)
        x = _clipped(x, (first - zero) * scale, (first + steps - zero) * scale, axis)
    s = constant(scale.astype(np.float32) if axis is not None else scale.reshape(()))
    kept = zero if axis is not None else zero.reshape(())
    z = constant(kept, dtype=dtype)
    grain: dict[str, Any] = {"axis": axis or 0, "block_size": 0}
    q = ops.quantize_linear(x, s, z, dtype=dtype, **grain)
    y: Value = ops.dequantize_linear(q, s, z, **grain)
    if empty.any():
        y = ops.mul(y, constant((~empty).astype(np.float32)))
    return y


def _clipped(x: Value, low: Array, high: Array, axis: int | None) -> Value:
    if axis is None:
        result: Value = ops.clip(x, lo=float(low.reshape(-1)[0]), hi=float(high.reshape(-1)[0]))
        return result
    low, high = low.astype(np.float32), high.astype(np.float32)
    result = ops.minimum(ops.maximum(x, constant(low)), constant(high))
    return result


@importer("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def quantize_and_dequantize(n: TfNode) -> Value:
    """A symmetric range around 0 that holds both ends."""
    x, signed, narrow = n.value(0), n.attr("signed_input", True), n.attr("narrow_range", False)
    bits = n.whole(3) if n.op.endswith("V3") else n.attr("num_bits", 8)
    if (
        n.attr("axis", -1) != -1
        or bits != 8
        or n.attr("round_mode", "HALF_TO_EVEN") not in ("HALF_TO_EVEN", "HALF_UP")
    ):
        n.unsupported(
            f"{bits} bits along axis {n.attr('axis', -1)}; only 8 bits per tensor are supported"
        )
    if n.attr("range_given", False):
        low, high = n.number(1), n.number(2)
    elif x.data is not None and x.type.size:
        low, high = float(x.data.min()), float(x.data.max())
    else:
        n.unsupported(
            "its range is known only at run time; calibrate the model and export it again"
        )
    first, last = (-127 if narrow else -128, 127) if signed else (0, 255)
    steps = [low / first if first else 0.0, high / last]
    scale = np.float32(max(steps))
    if not 0 < scale < np.inf:
        raise BadInput(f"its range is {low} to {high}; min must be below max")
    if narrow and signed:
        x = ops.clip(x, lo=float(first * scale), hi=float(last * scale))
    kind = "i8" if signed else "u8"
    s, z = constant(np.asarray(scale)), constant(0, dtype=kind)
    q = ops.quantize_linear(x, s, z, dtype=kind, axis=0)
    result: Value = ops.dequantize_linear(q, s, z, axis=0)
    return result


@importer("Dequantize")
def dequantize(n: TfNode) -> Value:
    """Weights that are stored in 8 bits with a range."""
    x, low, high, way = n.value(0), n.number(1), n.number(2), n.attr("mode", "MIN_COMBINED")
    if x.dtype not in ("u8", "i8") or n.attr("axis", -1) != -1:
        n.unsupported(
            f"{x.dtype} along axis {n.attr('axis', -1)}; only 8 bits per tensor are supported"
        )
    real = ops.cast(x, dtype="f32")
    if way == "SCALED":
        last = 127 if x.dtype == "i8" else 255
        first = -127 if n.attr("narrow_range", False) else -128
        scale = max(high / last, low / first if x.dtype == "i8" else 0.0)
        result: Value = ops.mul(real, constant(scale, dtype="f32"))
        return result
    if way not in ("MIN_COMBINED", "MIN_FIRST"):
        n.unsupported(f"mode {way}; MIN_COMBINED, MIN_FIRST and SCALED are supported")
    below = 128 if x.dtype == "i8" else 0
    step = (high - low) / 255
    if way == "MIN_FIRST" and step:  # nudge so that 0 is exact
        low = float(np.rint(low / step)) * step
    result = ops.add(
        ops.mul(real, constant(step, dtype="f32")), constant(low + below * step, dtype="f32")
    )
    return result


@importer("FakeQuantWithMinMaxArgs")
def fake_quant_args(n: TfNode) -> Value:
    low, high = np.float32(n.attr("min", -6.0)), np.float32(n.attr("max", 6.0))
    return _fake_quant(n, np.asarray(low), np.asarray(high), None)


@importer("FakeQuantWithMinMaxVars")
def fake_quant_vars(n: TfNode) -> Value:
    low, high = n.const(1), n.const(2)
    if low.size != 1 or high.size != 1:
        raise BadInput(f"its range is {low.shape} to {high.shape}; one number each is needed")
    return _fake_quant(n, low.reshape(()), high.reshape(()), None)


@importer("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_channels(n: TfNode) -> Value:
    """One range per index of the last axis."""
    x, low, high = n.value(0), n.const(1), n.const(2)
    if not x.type.rank or low.shape != x.shape[-1:] or high.shape != x.shape[-1:]:
        raise BadInput(f"ranges of {low.shape} do not fit {x.type}")
    return _fake_quant(n, low, high, x.type.rank - 1)
