"""Convolutions of integers with i32 or i64 accumulators. Tensors are N×C×spatial."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.conv import add_bias, check_weights, conv_macs, conv_shape, convolve
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints


def _bytes(*values: Value) -> None:
    for v in values:
        if v.dtype not in ("i8", "u8"):
            raise BadInput(f"operands must be i8 or u8, one is {v.type}")


def _quantized(*values: Value) -> None:
    for v in values:
        if v.dtype not in ("i8", "u8", "i16"):
            raise BadInput(f"operands must be i8, u8 or i16, one is {v.type}")


def _parameter(v: Value | None, of: Value, channels: int, what: str) -> None:
    if v is not None and v.type.size not in (1, channels):
        raise BadInput(f"{what} is {v.type}: one value or {channels} are needed")
    if v is not None and dtypes.is_integer(v.dtype) and v.dtype != of.dtype:
        raise BadInput(f"{what} is {v.dtype}, its tensor {of.dtype}; they must be equal")


def _exact(
    x: Array,
    w: Array,
    x_zero: Array | None,
    w_zero: Array | None,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    """The integer accumulators. They are computed in f64, where sums of products are exact.

    The result is i32, which wraps, or i64 if an operand is i16.
    """
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    if x_zero is not None:
        wide_x -= x_zero.reshape(-1)[0]
    if w_zero is not None:
        wide_w -= w_zero.reshape(-1, *[1] * (w.ndim - 1))
    sums = np.int64 if np.int16 in (x.dtype, w.dtype) else np.int32
    return convolve(wide_x, wide_w, stride, pad, dilation, groups).astype(sums)


def _conv_integer(
    x: Value,
    w: Value,
    x_zero: Value | None,
    w_zero: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
) -> Type:
    _bytes(x, w)
    check_weights(x, w, groups)
    _parameter(x_zero, x, 1, "x_zero")
    _parameter(w_zero, w, w.shape[0], "w_zero")
    return Type("i32", conv_shape(x, w, stride, pad, dilation))


@op(_conv_integer, macs=conv_macs)
def conv_integer(
    x: Array,
    w: Array,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """Convolution of (x - x_zero) with (w - w_zero) in i32; padding counts as x_zero."""
    return _exact(x, w, x_zero, w_zero, stride, pad, dilation, groups)


def _qlinear_conv(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value | None,
    y_zero: Value | None,
    b: Value | None,
    residual: Value | None,
    r_scale: Value | None,
    r_zero: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
) -> Type:
    _quantized(x, w, *[] if y_zero is None else [y_zero])
    check_weights(x, w, groups, b)
    if (y_scale is None) != (y_zero is None):
        raise BadInput("y_scale and y_zero must both be given, or neither (then the result is f32)")
    for v, of, channels, what in (
        (x_scale, x, 1, "x_scale"),
        (x_zero, x, 1, "x_zero"),
        (w_scale, w, w.shape[0], "w_scale"),
        (w_zero, w, w.shape[0], "w_zero"),
        (y_scale, x, 1, "y_scale"),
        (y_zero, y_zero, 1, "y_zero"),
    ):
        _parameter(v, of, channels, what)  # type: ignore[arg-type]
    if b is not None and b.dtype not in (
        ("i32", "i64") if "i16" in (x.dtype, w.dtype) else ("i32",)
    ):
        raise BadInput(f"the bias is {b.type}; i32 is needed (or i64 if an operand is i16)")
    dtype = "f32" if y_zero is None else y_zero.dtype
    result = Type(dtype, conv_shape(x, w, stride, pad, dilation))
    _check_residual(result, residual, r_scale, r_zero)
    return result


def _check_residual(made: Type, r: Value | None, scale: Value | None, zero: Value | None) -> None:
    whole = r is not None and made.dtype != "f32"
    if (scale is not None) != whole or (zero is not None) != whole:
        raise BadInput("r_scale and r_zero are needed for a quantised residual, and only for one")
    if r is None:
        return
    if r.shape != made.shape or r.dtype not in (("i8", "u8", "i16") if whole else ("f32",)):
        raise BadInput(f"the residual is {r.type}; its shape and type must fit the result {made}")
    _parameter(scale, r, 1, "r_scale")
    _parameter(zero, r, 1, "r_zero")


def _qlinear_macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(node.inputs[3].shape[1:])  # type: ignore[union-attr]


@op(_qlinear_conv, macs=_qlinear_macs)
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
    b: Array | None = None,
    residual: Array | None = None,
    r_scale: Array | None = None,
    r_zero: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """clamp(rint(f32(acc + b) · f32(x_scale · w_scale / y_scale) + real) + y_zero)

    acc is i32, or i64 where x or w is i16. `real` is f32(residual - r_zero) · f32(r_scale /
    y_scale). Without y_scale and y_zero the result is f32(acc + b) · f32(x_scale · w_scale) +
    residual, in f32.
    """
    acc = add_bias(_exact(x, w, x_zero, w_zero, stride, pad, dilation, groups), b)
    one = np.float32(1)
    scale = (one * x_scale.reshape(-1)) * (one * w_scale.reshape(-1))
    scale = scale if y_scale is None else scale / (one * y_scale.reshape(-1))
    real = acc.astype(np.float32) * scale.reshape(-1, *[1] * (x.ndim - 2))
    if y_scale is None or y_zero is None:
        return real if residual is None else real + residual
    if residual is not None and r_scale is not None and r_zero is not None:
        centred = residual.astype(np.int32) - r_zero.astype(np.int32).reshape(())
        factor = (one * r_scale.reshape(())) / (one * y_scale.reshape(()))
        real = real + centred.astype(np.float32) * factor
    limits = np.iinfo(y_zero.dtype)
    wide = np.rint(real) + np.float32(y_zero.reshape(-1)[0])
    return np.clip(wide, limits.min, limits.max).astype(y_zero.dtype)
