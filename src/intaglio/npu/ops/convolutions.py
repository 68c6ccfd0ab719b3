"""`npu.conv` and `npu.depthwise`: convolution, bias, scale, residual and table in one op."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.ops.epilogue import Epilogue
from intaglio.npu.ops.feature_maps import (
    ACCUMULATOR,
    FEATURES,
    MAX_I16_PRODUCTS,
    WEIGHTS,
    check_feature_map,
    check_zero_point,
    without_zero_point,
)
from intaglio.ops.quantized import BITS8
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints, check_windows, window_counts


def _type(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    channels: int,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    r_zero: int,
    dtype: str,
    **epilogue: Any,
) -> Type:
    _check_weights(x, w, scale, bias, channels)
    check_zero_point(x_zero, x.dtype, "x_zero")
    check_windows(x, w.shape[2:], stride, pad, dilation)
    counts = window_counts(x.shape[2:], w.shape[2:], stride, pad, dilation)
    result = Type(dtype, (x.shape[0], w.shape[0], *counts))
    if residual is not None:
        if residual.shape != result.shape or residual.dtype not in FEATURES:
            raise BadInput(f"the residual {residual.type} does not fit the result {result}")
        check_zero_point(r_zero, residual.dtype, "r_zero")
    if dtype != ACCUMULATOR:
        Epilogue(dtype, **epilogue).check(x.dtype, table)
    elif table is not None or residual is not None or x.dtype not in BITS8:
        raise BadInput(
            f"an {ACCUMULATOR} result of {x.dtype} with a table or a residual; "
            f"only 8-bit operands without either return their sums"
        )
    return result


def _check_weights(x: Value, w: Value, scale: Value, bias: Value, channels: int) -> None:
    check_feature_map(x, FEATURES)
    kinds = WEIGHTS[x.dtype]
    if w.type.rank != 4 or w.dtype not in kinds or w.shape[1] != channels:
        raise BadInput(
            f"weights {w.type} do not fit {x.type}; "
            f"{' or '.join(kinds)} with {channels} input channels are needed"
        )
    products = math.prod(w.shape[1:])
    if x.dtype == "i16" and products > MAX_I16_PRODUCTS:
        raise BadInput(
            f"{products} products of 16 bits are summed up; "
            f"the sum is exact for at most {MAX_I16_PRODUCTS}"
        )
    many, added = w.shape[:1], "f32" if x.dtype in f16_arithmetic.TYPES else "i32"
    if scale.type != Type("f32", many) or bias.type != Type(added, many):
        raise BadInput(
            f"scale is {scale.type} and bias {bias.type}; "
            f"one f32 and one {added} per output channel are needed"
        )


def _conv_type(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    *,
    r_factor: float,
    **attrs: Any,
) -> Type:
    channels = x.shape[1] if x.type.rank == 4 else 0
    return _type(x, w, scale, bias, residual, table, channels, **attrs)


def _depthwise_type(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    *,
    r_factor: float,
    **attrs: Any,
) -> Type:
    if x.type.rank == 4 and w.shape[:1] != x.shape[1:2]:
        raise BadInput(f"weights {w.type} do not have one window per channel of {x.type}")
    if attrs["dtype"] == ACCUMULATOR:
        raise BadInput(f"a depthwise result is {ACCUMULATOR}; only npu.conv returns its sums")
    return _type(x, w, scale, bias, residual, table, 1, **attrs)


def _macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(node.inputs[1].shape[1:])  # type: ignore[union-attr]


def _convolve(
    x: Array,
    w: Array,
    scale: Array,
    bias: Array,
    residual: Array | None,
    table: Array | None,
    x_zero: int,
    r_zero: int,
    r_factor: float,
    epilogue: Epilogue,
    depthwise: bool = False,
    **window: Any,
) -> Array:
    bias, scale = bias.reshape(-1, 1, 1), scale.reshape(-1, 1, 1)
    if x.dtype == np.float16:
        real = f16_arithmetic.conv(x, w, depthwise, **window) * scale + bias
    else:
        zero, groups = np.array(x_zero, x.dtype), x.shape[1] if depthwise else 1
        sums = ops.conv_integer.body(x, w, zero, **window, groups=groups)
        if epilogue.dtype == ACCUMULATOR:
            return np.asarray(sums + bias)
        real = (sums + bias).astype(np.float32) * scale
    if residual is not None:
        added = without_zero_point(residual, r_zero).astype(np.float32)
        real = real + added * np.float32(r_factor)
    return epilogue.apply(real, table)


@op(_conv_type, name="npu.conv", macs=_macs)
def conv(
    x: Array,
    w: Array,
    scale: Array,
    bias: Array,
    residual: Array | None = None,
    table: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    y_zero: int = 0,
    low: int = 0,
    high: int = 0,
    r_zero: int = 0,
    r_factor: float = 0.0,
    base: int = 0,
    least: float = -math.inf,
    most: float = math.inf,
    dtype: str,
) -> Array:
    """t = f32(sum of (x - x_zero) * w + bias) * scale + f32(residual - r_zero) * r_factor

    `w` is [OC, IC, KH, KW] of i8; with feature maps of i16 it is i8 or i16. Scale and bias have one
    number per output channel. Padding has the value x_zero. Sums have 32 bits, those of i16 have
    64. With dtype "f32" the result is t, not rounded; with "i32" it is the sum itself.

    Feature maps of f16 have weights of f16 and f32 biases:
    t = f32(sum of x * w) * scale + bias + f32(residual - r_zero) * r_factor.
    """
    epilogue = Epilogue(dtype, y_zero, low, high, base, least, most)
    window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation}
    given = x, w, scale, bias, residual, table, x_zero, r_zero, r_factor, epilogue
    return _convolve(*given, **window)


@op(_depthwise_type, name="npu.depthwise", macs=_macs)
def depthwise(
    x: Array,
    w: Array,
    scale: Array,
    bias: Array,
    residual: Array | None = None,
    table: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    y_zero: int = 0,
    low: int = 0,
    high: int = 0,
    r_zero: int = 0,
    r_factor: float = 0.0,
    base: int = 0,
    least: float = -math.inf,
    most: float = math.inf,
    dtype: str,
) -> Array:
    """npu.conv with one window per channel: `w` is [C, 1, KH, KW]."""
    epilogue = Epilogue(dtype, y_zero, low, high, base, least, most)
    window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation}
    given = x, w, scale, bias, residual, table, x_zero, r_zero, r_factor, epilogue
    return _convolve(*given, depthwise=True, **window)
