"""The bias of an int8 matmul or convolution: int32, in units of the accumulator."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, no

MAX_BIAS = 2.0**30  # leaves half of the int32 range to the sums
Stored = tuple[Value, Value, Value]  # integers, scale, zero point


def real_constant(v: Value) -> Array | None:
    """The float value of a constant, or of a constant that is stored as integers."""
    result = v.producer
    if v.data is not None or result is None or result.op != "dequantize_linear":
        return v.data
    if any(u is not None and u.data is None for u in result.inputs):
        return None
    found: Array = REGISTRY[result.op].body(*[u and u.data for u in result.inputs], **result.attrs)
    return found


def with_bias(b: Value | None, xs: Value, w: Stored, axis: int) -> tuple[Stored, Value | None] | No:
    """Weights with output channels along `axis`, and the bias in units of the accumulator.

    If a channel's weights are so small that its bias exceeds int32, they are stored with a larger
    scale. The rounding error of that is below a millionth of the bias.
    """
    if b is None:
        return w, None
    channels, found = w[0].shape[axis], real_constant(b)
    if found is None or found.size not in (1, channels) or found.ndim > 2:
        return no("the bias is not constant with one value per output channel")
    assert xs.data is not None
    assert w[1].data is not None
    real = np.broadcast_to(found.astype(np.float64).reshape(-1), (channels,))
    step, scale = float(xs.data.item()), w[1].data.astype(np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        least = np.abs(real) / MAX_BIAS / abs(step)
        whole = np.rint(real / (step * scale))
        if np.all(np.abs(whole) < 2 * MAX_BIAS):
            return w, constant(whole.astype(np.int32))
    if (
        not np.all(np.isfinite(least))
        or w[0].data is None
        or w[0].dtype not in ("i8", "i16")
        or _any(w[2])
    ):
        return no(
            f"a bias is {np.abs(whole).max():.3g} times the accumulator's unit and exceeds 32 bits"
        )
    wider = np.maximum(np.broadcast_to(scale, (channels,)), least).astype(np.float32)
    along = [1] * w[0].type.rank
    along[axis] = channels
    ratio = (np.broadcast_to(scale, (channels,)) / wider).reshape(along)
    stored = np.rint(w[0].data * ratio).astype(w[0].data.dtype)
    bias = np.rint(real / (step * wider.astype(np.float64))).astype(np.int32)
    zeros = np.zeros(channels, w[0].data.dtype)
    return (constant(stored), constant(wider), constant(zeros)), constant(bias)


def _any(zero: Value) -> bool:
    return zero.data is None or bool(np.any(zero.data))
