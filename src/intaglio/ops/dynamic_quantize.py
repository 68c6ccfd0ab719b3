"""Dynamic asymmetric quantisation: the range of a tensor is measured at run time.

The slices are everything from one axis on: rows of a matrix, or whole images. Each has 256 steps
between its minimum and its maximum, extended to hold 0, and a zero point that 0 is exactly.
"""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value, constant
from intaglio.ops.activation import clip
from intaglio.ops.compare import equal, where
from intaglio.ops.elementwise import add, div, maximum, minimum, mul, round, sub
from intaglio.ops.reduce import reduce_max, reduce_min
from intaglio.ops.registry import op

STEPS = np.float32(255)  # between the smallest and the largest number


def dynamic_axis(x: Value, axis: int) -> int:
    """The first axis of a slice; BadInput unless the tensor is f32 and has it."""
    if x.dtype != "f32" or not 0 <= axis < x.type.rank:
        raise BadInput(f"f32 with axis {axis} is needed, not {x.type}")
    return axis


def quantized_slices(x: Array, axis: int) -> tuple[Array, Array, Array]:
    """Slices as u8, their scales and their zero points: q = rint(x * (255 / span)) + zero.

    A slice with inf or NaN becomes its zero point with scale NaN.
    """
    axes = tuple(range(axis, x.ndim))
    with np.errstate(all="ignore"):
        low = np.minimum(x.min(axes, keepdims=True, initial=np.float32(0)), np.float32(0))
        high = np.maximum(x.max(axes, keepdims=True, initial=np.float32(0)), np.float32(0))
        span = high - low
        span = np.where(span == 0, np.float32(1), span)
        by = STEPS / span
        finite = np.isfinite(span) & np.isfinite(by)
        by = np.where(finite, by, np.float32(0))
        zero = np.clip(np.rint(np.float32(-128) - np.where(finite, low, 0) * by), -128, 127) + 128
        q = np.clip(np.rint(np.where(finite, x, 0) * by) + zero, 0, 255)
        scale = np.where(np.isfinite(span), span / STEPS, np.float32(np.nan))
    shape = x.shape[:axis]
    whole = scale.astype(np.float32).reshape(shape), zero.astype(np.uint8).reshape(shape)
    return q.astype(np.uint8), *whole


def _type(x: Value, *, axis: int) -> Type:
    dynamic_axis(x, axis)
    return x.type


@op(_type)
def dynamic_fake_quantize(x: Array, *, axis: int) -> Array:
    """Slices from `axis` on, rounded to the steps between their minimum and maximum."""
    q, scale, zero = quantized_slices(x, axis)
    column = (...,) + (None,) * (x.ndim - axis)
    with np.errstate(invalid="ignore"):
        result: Array = (q.astype(np.float32) - zero[column].astype(np.float32)) * scale[column]
    return result


@dynamic_fake_quantize.lowers
def _(x: Value, *, axis: int) -> Value:
    axes, none = tuple(range(axis, x.type.rank)), constant(0.0, dtype="f32")
    low = minimum(reduce_min(x, axes=axes, keepdims=True), none)
    high = maximum(reduce_max(x, axes=axes, keepdims=True), none)
    span = sub(high, low)
    span = where(constant(1.0, dtype="f32"), span, equal(span, none))
    by, scale = div(constant(STEPS), span), div(span, constant(STEPS))
    start = round(sub(constant(-128.0, dtype="f32"), mul(low, by)))
    zero = clip(start, lo=-128.0, hi=127.0)
    steps = clip(add(round(mul(x, by)), zero), lo=-128.0, hi=127.0)
    result: Value = mul(sub(steps, zero), scale)
    return result
