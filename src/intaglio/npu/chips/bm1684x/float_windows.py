"""Convolutions and pools of f16, bf16 and f32 with the chip's arithmetic.

A convolution adds the products of f32 in two sums in turn. Those of f16 and bf16 are added in
blocks of `block` input channels: the products of a block meet with 25 bits below the largest, the
blocks are added in f32. A depthwise convolution rounds each step to its own type.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.chips.bm1684x import convolve, numbers
from intaglio.npu.chips.bm1684x.float_ops import CODES, FLOATS, as_float, bounded
from intaglio.npu.chips.bm1684x.pool import window_sums
from intaglio.npu.chips.bm1684x.windows import Windows
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints, check_windows, window_counts

POOLS = ("max", "avg")


def _check(x: Value) -> None:
    if x.dtype not in FLOATS or x.type.rank != 4 or x.type.dynamic:
        raise BadInput(f"{x.type} is no feature map of floats")


def _product_type(
    x: Value, w: Value, bias: Value, channels: int, added: str, window: dict[str, Any]
) -> Type:
    _check(x)
    if w.type.rank != 4 or w.dtype != x.dtype or w.shape[1] != channels:
        raise BadInput(f"weights {w.type} do not fit {x.type}")
    if bias.type != Type(added, w.shape[:1]):
        raise BadInput(f"bias is {bias.type}; one {added} per output channel is needed")
    check_windows(x, w.shape[2:], window["stride"], window["pad"], window["dilation"])
    places = x.shape[2:], w.shape[2:]
    counts = window_counts(*places, window["stride"], window["pad"], window["dilation"])
    return Type(x.dtype, (x.shape[0], w.shape[0], *counts))


def _conv_type(x: Value, w: Value, bias: Value, *, block: int, **attrs: Any) -> Type:
    if block < 1:
        raise BadInput(f"blocks have {block} channels; at least 1 is needed")
    return _product_type(x, w, bias, x.shape[1] if x.type.rank == 4 else 0, "f32", attrs)


def _depthwise_type(x: Value, w: Value, bias: Value, **attrs: Any) -> Type:
    if x.type.rank == 4 and w.shape[:1] != x.shape[1:2]:
        raise BadInput(f"weights {w.type} do not have one window per channel of {x.type}")
    return _product_type(x, w, bias, 1, x.dtype, attrs)


def _macs(node: Node) -> int:
    w: Any = node.inputs[1]
    return int(node.outputs[0].type.size * math.prod(w.shape[1:]))


@op(_conv_type, name="npu.float_conv", macs=_macs)
def float_conv(
    x: Array,
    w: Array,
    bias: Array,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    block: int,
    least: float = -math.inf,
    most: float = math.inf,
) -> Array:
    """clamp(round(bias + sum of x * w), least, most); the bias is f32."""
    code, kernel = CODES[dtypes.name_of(x.dtype)], w.shape[2:]
    windows = Windows.over(as_float(x), code, block, kernel, stride, dilation, pad)
    shape = x.shape[0], len(w), *windows.out
    added = bias.reshape(1, -1, 1, 1)
    y = convolve.float_sums(windows, w.astype(np.float32), shape, added, None)
    return bounded(y, x.dtype, least, most)


@op(_depthwise_type, name="npu.float_depthwise", macs=_macs)
def float_depthwise(
    x: Array,
    w: Array,
    bias: Array,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    least: float = -math.inf,
    most: float = math.inf,
) -> Array:
    """npu.float_conv with one window per channel: `w` is [C, 1, KH, KW], the bias has x's type."""
    code, kernel = CODES[dtypes.name_of(x.dtype)], w.shape[2:]
    wide = np.float16 if code == numbers.F16 else np.float32
    windows = Windows.over(as_float(x), code, 0, kernel, stride, dilation, pad)
    shape = *x.shape[:2], *windows.out
    weights = w.astype(wide).transpose(1, 0, 2, 3)
    with np.errstate(over="ignore", invalid="ignore"):
        y = window_sums(windows, weights, bias.reshape(1, -1, 1, 1), code, shape)
    return bounded(y, x.dtype, least, most)


def _pool_type(
    x: Value,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool,
) -> Type:
    _check(x)
    if kind not in POOLS:
        raise BadInput(f"pooling is '{kind}'; it is one of {', '.join(POOLS)}")
    check_windows(x, kernel, stride, pad, dilation)
    counts = window_counts(x.shape[2:], kernel, stride, pad, dilation)
    return Type(x.dtype, (*x.shape[:2], *counts))


@op(_pool_type, name="npu.float_pool")
def float_pool(
    x: Array,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool = False,
) -> Array:
    """The largest number of each window, or its sum in f32 times 1 / n, rounded to x's type.

    n is the number of elements under the window; with `count_include_pad` it is the window's size.
    """
    given = kernel, stride, dilation, pad
    if kind == "max":
        least = float(smallest(dtypes.name_of(x.dtype)))
        windows = Windows.over(as_float(x), 0, 0, *given, fill=least)
        y = np.maximum(windows.tap(0, 0), least)
        for k in range(1, math.prod(kernel)):
            y = np.maximum(y, windows.tap(*divmod(k, kernel[1])))
        return bounded(y, x.dtype)
    windows = Windows.over(as_float(x).astype(np.float32), numbers.F32, 0, *given)
    shape = *x.shape[:2], *windows.out
    ones = np.ones((1, 1, *kernel), np.float32)
    total = window_sums(windows, ones, None, numbers.F32, shape)
    if count_include_pad:
        return bounded(total * reciprocal(math.prod(kernel)), x.dtype)
    inside = Windows.over(np.ones((1, 1, *x.shape[2:]), np.int64), 0, 0, *given)
    counts = sum(inside.tap(*divmod(k, kernel[1])) for k in range(math.prod(kernel)))
    many = np.vectorize(reciprocal, otypes=[np.float32])(np.maximum(counts, 1))
    return bounded(total * many, x.dtype)


def reciprocal(count: int) -> np.float32:
    """1 / count, rounded once."""
    return np.float32(1 / count)


def smallest(dtype: str) -> float:
    """The smallest finite number of a float type."""
    return {"f16": -65504.0, "bf16": -3.3895313892515355e38}.get(
        dtype, float(np.finfo(np.float32).min)
    )
