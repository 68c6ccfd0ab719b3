"""Layers of the KPU as nodes of a graph: convolutions, copies, shifts, sums and means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops as neutral
from intaglio.ir import Array, Value, constant
from intaglio.npu.chips.k210 import ops
from intaglio.npu.chips.k210.arithmetic import POOLS, Terms
from intaglio.npu.chips.k210.fields import Curve, Norm
from intaglio.npu.chips.k210.layer import MIN_EXTENT, enlarged, linear_window, max_outputs
from intaglio.npu.chips.k210.requantize import Function, requantize
from intaglio.npu.lowering.builder import Refused

MOST_OF_2X2 = next(k for k, p in POOLS.items() if (p.kind, p.size, p.stride) == ("max", 2, 1))
WEIGHT_ZERO = 128  # of weights that were i8
PLAIN = Function(0)


def constants(norm: Norm, curve: Curve) -> tuple[Value, Value]:
    """Batch norm and curve as inputs of a node."""
    return (
        constant(np.stack([norm.mul, norm.shift, norm.add])),
        constant(np.stack([curve.start, curve.mul, curve.shift, curve.bias])),
    )


def largest_sums(w: Array, x_zero: int, w_zero: int) -> Array:
    """The largest |sum| of each output channel."""
    span = max(x_zero, 255 - x_zero)
    flat = np.abs(w.reshape(len(w), -1).astype(np.int64) - w_zero)
    return np.asarray(flat.sum(1) * span)


def convolution(
    x: Value,
    w: Array,
    scale: Array,
    bias: Array,
    function: Function,
    x_zero: int,
    w_zero: int = WEIGHT_ZERO,
    pool: int = 0,
    depthwise: bool = False,
    origin: str = "",
) -> Value:
    """A convolution [O, I, K, K] of bytes; more outputs than a command makes are split up."""
    scale, bias = (np.broadcast_to(v, (len(w),)) for v in (scale, bias))
    norm, curve = requantize(scale, bias, largest_sums(w, x_zero, w_zero), function)
    terms = Terms.of_zero_points(x_zero, w_zero, w.shape[2] * w.shape[3])
    attrs: dict[str, Any] = {
        "arg_x": terms.arg_x,
        "arg_w": terms.arg_w,
        "arg_add": terms.arg_add,
        "pad": x_zero,
        "pool": pool,
        "depthwise": depthwise,
    }
    most = len(w) if depthwise else max_outputs(w.shape[1], w.shape[2])
    parts = []
    for first in range(0, len(w), even_share(len(w), most)):
        chosen = slice(first, first + even_share(len(w), most))
        part = Norm(norm.mul[chosen], norm.shift[chosen], norm.add[chosen])
        node = ops.conv.node(
            x, constant(w[chosen]), *constants(part, curve), **attrs, origin=origin
        )
        parts.append(node.outputs[0])
    return parts[0] if len(parts) == 1 else neutral.concat(*parts, axis=1)


def even_share(total: int, most: int) -> int:
    """The size of equal parts of at most `most`, in multiples of 4 where there are several."""
    if total <= most:
        return total
    parts = -(-total // most)
    return min(-(-total // parts) + 3 & ~3, most & ~3)


def copied(
    x: Value,
    scale: float = 1.0,
    x_zero: int = 0,
    function: Function = PLAIN,
    pool: int = 0,
    origin: str = "",
) -> Value:
    """`x` through a 1x1 convolution with one weight per channel, which may pool and rescale it."""
    channels = x.shape[1]
    w = np.eye(channels, dtype=np.uint8).reshape(channels, channels, 1, 1)
    one = np.full(1, scale)
    return convolution(x, w, one, np.zeros(1), function, x_zero, 0, pool, origin=origin)


def shifted_up(x: Value, pad: int, origin: str = "") -> Value:
    """`x` one row higher; the last row is `pad`."""
    return _shifted(x, (2, 1), pad, origin)


def most_around(x: Value, kernel: int, origin: str = "") -> Value:
    """The maximum of the square around every pixel, which is the top left part of a map.

    In a larger map, whose other pixels are 0, the picture moves down and to the right by half a
    kernel; then pixels become the maximum of the 2x2 that begin at them, again and again.
    """
    high, wide = x.shape[2:]
    size = enlarged(high + kernel - 1), enlarged(wide + kernel - 1)
    value = bordered(x, 0, (high, wide), size, origin)
    for _ in range(kernel // 2):
        value = _shifted(value, (0, 0), 0, origin)
    for _ in range(kernel - 1):
        value = copied(value, pool=MOST_OF_2X2, origin=origin)
    return value


def _shifted(x: Value, tap: tuple[int, int], pad: int, origin: str) -> Value:
    """Every pixel becomes that at a tap of its 3x3 window."""
    w = np.zeros((x.shape[1], 1, 3, 3), np.uint8)
    w[:, 0, tap[0], tap[1]] = 1
    norm, curve = requantize(np.ones(len(w)), np.zeros(len(w)), np.full(len(w), 255), PLAIN)
    attrs = {"arg_x": 0, "arg_w": 0, "arg_add": 0, "pad": pad, "pool": 0, "depthwise": True}
    node = ops.conv.node(x, constant(w), *constants(norm, curve), **attrs, origin=origin)
    return node.outputs[0]


def bordered(
    x: Value, value: int, keep: tuple[int, int], size: tuple[int, int], origin: str = ""
) -> Value:
    """The top left pixels of `x` in a map of a larger size; all others are `value`."""
    fill = filling(_legal(x), value, origin)
    return ops.border.node(x, fill, keep=keep, size=size, origin=origin).outputs[0]


def _legal(x: Value) -> Value:
    """The map nearest to `x` that a layer of the KPU can read."""
    seen = x
    while min(seen.shape[2:]) < MIN_EXTENT and seen.producer is not None:
        first = seen.producer.inputs[0]
        assert first is not None
        seen = first
    if min(seen.shape[2:]) < MIN_EXTENT:
        raise Refused(f"the input is {seen.type}; the KPU reads maps of at least 4x4")
    return seen


def cropped(x: Value, keep: tuple[int, int], origin: str = "") -> Value:
    """The top left pixels of `x`."""
    return ops.crop.node(x, keep=keep, origin=origin).outputs[0]


def filling(x: Value, value: int, origin: str = "") -> Value:
    """A map as large as `x` whose pixels are `value`."""
    channels = x.shape[1]
    w = np.zeros((channels, 1, 3, 3), np.uint8)
    ones = np.ones(channels)
    norm, curve = requantize(ones, np.zeros(channels), 255 * ones, Function(value))
    attrs = {"arg_x": 0, "arg_w": 0, "arg_add": 0, "pad": 0, "pool": 0, "depthwise": True}
    node = ops.conv.node(x, constant(w), *constants(norm, curve), **attrs, origin=origin)
    return node.outputs[0]


def upsampled(x: Value, origin: str = "") -> Value:
    """Every pixel of `x` twice in both directions."""
    return ops.upsample.node(x, origin=origin).outputs[0]


def added(
    a: Value,
    b: Value,
    scales: tuple[float, float],
    zeros: tuple[int, int],
    function: Function,
    origin: str,
) -> Value:
    """scales[0] * (a - zeros[0]) + scales[1] * (b - zeros[1]): a 1x1 convolution of both maps."""
    weights = _ratio(*scales)
    unit = scales[0] / weights[0] if scales[0] >= scales[1] else scales[1] / weights[1]
    channels = a.shape[1]
    eye = np.eye(channels, dtype=np.uint8)
    w = np.concatenate([eye * np.uint8(weights[0]), eye * np.uint8(weights[1])], 1)
    bias = -sum(k * z for k, z in zip(weights, zeros, strict=True))
    both = neutral.concat(a, b, axis=1)
    shape = w.reshape(channels, 2 * channels, 1, 1)
    return convolution(
        both, shape, np.full(1, unit), np.full(1, bias), function, 0, 0, origin=origin
    )


def _ratio(a: float, b: float) -> tuple[int, int]:
    """Two bytes in the ratio of two scales, as near as bytes come to it."""
    large, small = max(a, b), min(a, b)
    whole = np.arange(128, 256)
    part = np.rint(whole * (small / large))
    error = np.abs(part / whole - small / large)
    best = int(np.argmin(error))
    pair = int(whole[best]), int(part[best])
    return pair if a >= b else pair[::-1]


def linear(
    x: Value,
    w: Array,
    scale: Array,
    bias: Array,
    function: Function,
    x_zero: int,
    origin: str,
    w_zero: int = WEIGHT_ZERO,
) -> Value:
    """A linear layer [O, I] of one pixel [1, I, 1, 1]; many outputs are split up."""
    weights = w.reshape(*w.shape, 1, 1)
    scale, bias = (np.broadcast_to(v, (len(w),)) for v in (scale, bias))
    norm, curve = requantize(scale, bias, largest_sums(w, x_zero, w_zero), function)
    terms = Terms.of_zero_points(x_zero, w_zero, 1)
    attrs = {"arg_x": terms.arg_x, "arg_w": terms.arg_w, "arg_add": terms.arg_add}
    most, parts = max_outputs(*linear_window(w.shape[1])), []
    for first in range(0, len(w), even_share(len(w), most)):
        chosen = slice(first, first + even_share(len(w), most))
        part = Norm(norm.mul[chosen], norm.shift[chosen], norm.add[chosen])
        given = constant(weights[chosen]), *constants(part, curve)
        parts.append(ops.linear.node(x, *given, **attrs, origin=origin).outputs[0])
    return parts[0] if len(parts) == 1 else neutral.concat(*parts, axis=1)


def global_mean(x: Value, scale: float, x_zero: int, function: Function, origin: str) -> Value:
    """The mean of each channel; `scale` turns units of `x` into those of the result."""
    pixels = math.prod(x.shape[2:])
    most = np.full(1, pixels * 255.0)
    norm, curve = requantize(np.full(1, scale / pixels), np.zeros(1), most, function)
    w = constant(np.ones((1, pixels, 1, 1), np.uint8))
    node = ops.global_mean.node(x, w, *constants(norm, curve), arg_w=-x_zero, origin=origin)
    return node.outputs[0]
