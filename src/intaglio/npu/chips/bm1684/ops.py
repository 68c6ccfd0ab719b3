"""The ops of the BM1684 that round in its own way, with their meaning in numpy: the chip's bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops as neutral
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.chips.bm1684.arithmetic import rounded, saturated, shifted
from intaglio.npu.ops.feature_maps import check_feature_map
from intaglio.ops.quantized import BITS8
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints, check_windows, window_counts


def _conv_type(
    x: Value, w: Value, bias: Value, shifts: Value, *, groups: int, dtype: str, **rest: Any
) -> Type:
    check_feature_map(x)
    depth = x.shape[1] // groups
    if groups not in (1, x.shape[1]) or w.type.rank != 4 or w.dtype != "i8" or w.shape[1] != depth:
        raise BadInput(f"weights {w.type} in {groups} groups do not fit {x.type}")
    per_channel = Type("i64", (w.shape[0],))
    if bias.type != per_channel or shifts.type != per_channel or dtype not in BITS8:
        raise BadInput(
            f"bias is {bias.type}, shifts are {shifts.type}, the result {dtype}; "
            f"two {per_channel} and 8 bits are needed"
        )
    windows = [rest[k] for k in ("stride", "pad", "dilation")]
    check_windows(x, w.shape[2:], *windows)
    counts = window_counts(x.shape[2:], w.shape[2:], *windows)
    return Type(dtype, (x.shape[0], w.shape[0], *counts))


def _macs(node: Node) -> int:
    w = node.inputs[1]
    assert w is not None
    return node.outputs[0].type.size * math.prod(w.shape[1:])


@op(_conv_type, name="bm1684.conv", macs=_macs)
def conv(
    x: Array,
    w: Array,
    bias: Array,
    shifts: Array,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    low: int = -128,
    high: int = 127,
    dtype: str = "i8",
) -> Array:
    """(sum of x * w + bias) >> shift, rounded; with different shifts by way of 16 bits."""
    window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation}
    sums = neutral.conv_integer.body(x, w, np.array(0, x.dtype), **window, groups=groups)
    sums = sums.astype(np.int64) + bias.reshape(-1, 1, 1)
    return shifted(sums, shifts, dtype, low, high)


def _mul_type(a: Value, b: Value, *, dtype: str, **rest: Any) -> Type:
    check_feature_map(a)
    fits = b.shape == a.shape or b.shape == (*a.shape[:2], 1, 1)
    if not fits or b.dtype not in BITS8 or dtype not in BITS8:
        raise BadInput(f"{a.type} and {b.type} are multiplied to {dtype}; bytes are needed")
    return Type(dtype, a.shape)


@op(_mul_type, name="bm1684.mul")
def mul(
    a: Array,
    b: Array,
    *,
    multiplier: int,
    shift: int,
    low: int = -128,
    high: int = 127,
    dtype: str = "i8",
) -> Array:
    """(a * c) >> shift, rounded; c is (b * multiplier) >> 7, rounded."""
    c = rounded(b.astype(np.int64) * multiplier, 7)
    return saturated(rounded(a.astype(np.int64) * c, shift), dtype, low, high)


def _add_type(a: Value, b: Value, *, dtype: str, **rest: Any) -> Type:
    check_feature_map(a)
    if a.shape != b.shape or b.dtype not in BITS8 or dtype not in BITS8:
        raise BadInput(f"{a.type} and {b.type} are added to {dtype}; equal shapes are needed")
    return Type(dtype, a.shape)


@op(_add_type, name="bm1684.add")
def add(
    a: Array,
    b: Array,
    *,
    left: int,
    right: int,
    shift: int,
    low: int = -128,
    high: int = 127,
    dtype: str = "i8",
) -> Array:
    """(a * left + b * right) >> shift, rounded."""
    sums = a.astype(np.int64) * left + b.astype(np.int64) * right
    return saturated(rounded(sums, shift), dtype, low, high)
