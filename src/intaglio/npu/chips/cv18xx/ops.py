"""The ops of CV18xx that round in their own way, with their meaning in numpy: the chip's bits.

`quant` of a convolution is i64 [3, C]: bias, multiplier and shift of each output channel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops as neutral
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.chips.cv18xx.arithmetic import Sum, requantized
from intaglio.npu.chips.cv18xx.matmul import Matmul
from intaglio.npu.chips.cv18xx.product import Product
from intaglio.npu.ops.feature_maps import check_feature_map
from intaglio.ops.quantized import BITS8
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints, check_windows, window_counts


def _conv_type(
    x: Value,
    w: Value,
    quant: Value,
    *,
    groups: int,
    padding: int,
    relu: bool,
    dtype: str,
    **window: Any,
) -> Type:
    check_feature_map(x)
    depth = x.shape[1] // groups
    if groups not in (1, x.shape[1]) or w.type.rank != 4 or w.dtype != "i8" or w.shape[1] != depth:
        raise BadInput(f"weights {w.type} in {groups} groups do not fit {x.type}")
    if quant.type != Type("i64", (3, w.shape[0])) or dtype not in BITS8:
        raise BadInput(
            f"quant is {quant.type}, the result {dtype}; i64 [3, C] and 8 bits are needed"
        )
    check_windows(x, w.shape[2:], *(window[k] for k in ("stride", "pad", "dilation")))
    counts = window_counts(
        x.shape[2:], w.shape[2:], window["stride"], window["pad"], window["dilation"]
    )
    return Type(dtype, (x.shape[0], w.shape[0], *counts))


def _macs(node: Node) -> int:
    w = node.inputs[1]
    assert w is not None
    return node.outputs[0].type.size * math.prod(w.shape[1:])


@op(_conv_type, name="cv18xx.conv", macs=_macs)
def conv(
    x: Array,
    w: Array,
    quant: Array,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    padding: int = 0,
    relu: bool = False,
    dtype: str = "i8",
) -> Array:
    """A convolution of bytes; `padding` is the value of the pixels around the map."""
    window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation}
    sums = neutral.conv_integer.body(x, w, np.array(padding, x.dtype), **window, groups=groups)
    sums = sums + padding * w.reshape(len(w), -1).sum(1, np.int64).reshape(-1, 1, 1)
    return requantized(sums, quant, dtype, relu)


def _avg_pool_type(
    x: Value, quant: Value, counts: Value, *, kernel: Ints, stride: Ints, pad: Ints, **rest: Any
) -> Type:
    check_feature_map(x)
    if quant.type.rank != 2 or counts.shape != quant.shape[1:]:
        raise BadInput(f"quant is {quant.type} for {counts.type} numbers of pixels")
    check_windows(x, kernel, stride, pad, (1, 1))
    return Type(
        rest["dtype"], (*x.shape[:2], *window_counts(x.shape[2:], kernel, stride, pad, (1, 1)))
    )


@op(_avg_pool_type, name="cv18xx.avg_pool")
def avg_pool(
    x: Array,
    quant: Array,
    counts: Array,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    weight: int = 1,
    padding: int = 0,
    relu: bool = False,
    dtype: str = "i8",
) -> Array:
    """Means of the pixels under each window; column k of `quant` is for counts[k] of them."""
    ones = np.ones((1, 1, *kernel), np.int8)
    window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": (1, 1), "groups": 1}
    zero, planes = np.array(padding, x.dtype), x.reshape(-1, 1, *x.shape[2:])
    sums = neutral.conv_integer.body(planes, ones, zero, **window) + padding * math.prod(kernel)
    sums = sums.astype(np.int64).reshape(*x.shape[:2], *sums.shape[2:]) * weight
    inside = np.ones((1, 1, *x.shape[2:]), np.int8)
    pixels = neutral.conv_integer.body(inside, ones, np.array(0, np.int8), **window)[0, 0]
    rows = quant[:, np.searchsorted(counts, pixels).reshape(-1)]
    flat = sums.reshape(-1, sums.shape[2] * sums.shape[3], 1, 1)
    return requantized(flat, rows, dtype, relu).reshape(sums.shape)


def _pair_type(a: Value, b: Value, *, relu: bool, dtype: str, **numbers: int) -> Type:
    check_feature_map(a)
    check_feature_map(b)
    if any(n not in (1, m) for n, m in zip(b.shape, a.shape, strict=True)) or dtype not in BITS8:
        raise BadInput(f"{b.type} does not broadcast to {a.type}, or the result is {dtype}")
    return Type(dtype, a.shape)


@op(_pair_type, name="cv18xx.add")
def add(
    a: Array,
    b: Array,
    *,
    left: int,
    right: int,
    offset: int,
    shift: int,
    relu: bool = False,
    dtype: str = "i8",
) -> Array:
    """(a * left + offset + b * right) / 2^shift; halves round up."""
    return Sum(left, right, offset, shift).apply(a, b, dtype, relu)


@op(_pair_type, name="cv18xx.mul")
def mul(
    a: Array,
    b: Array,
    *,
    left_zero: int,
    right_zero: int,
    multiplier: int,
    product_shift: int,
    offset: int,
    shift: int,
    is_alone: bool,
    relu: bool = False,
    dtype: str = "i8",
) -> Array:
    """(a - left_zero) * (b - right_zero) by a factor, plus a zero point: product.py."""
    numbers = left_zero, right_zero, multiplier, product_shift, offset, shift, is_alone
    return Product(*numbers).apply(a, b, dtype, relu)


def _matmul_type(a: Value, b: Value, *, dtype: str, **rest: Any) -> Type:
    if (a.shape[0], a.shape[1], 1, 1) != (b.shape[0], b.shape[2], a.shape[3], b.shape[3]):
        raise BadInput(f"{a.type} and {b.type} do not form a matrix product over a's channels")
    if not {a.dtype, b.dtype, dtype} <= set(BITS8):
        raise BadInput(f"{a.type} times {b.type} as {dtype}: 8 bits are needed")
    return Type(dtype, (a.shape[0], b.shape[1], a.shape[2], 1))


def _matmul_macs(node: Node) -> int:
    a = node.inputs[0]
    assert a is not None
    return node.outputs[0].type.size * a.shape[1]


@op(_matmul_type, name="cv18xx.matmul", macs=_matmul_macs)
def matmul(
    a: Array,
    b: Array,
    *,
    a_zero: int,
    b_zero: int,
    bias: int,
    multiplier: int,
    shift: int,
    relu: bool = False,
    dtype: str = "i8",
) -> Array:
    """The product of `b` [N, C, K, 1] and `a` [N, K, M, 1] less their zero points, requantised."""
    return Matmul(a_zero, b_zero, bias, multiplier, shift).apply(a, b, dtype, relu)
