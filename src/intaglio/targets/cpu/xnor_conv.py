"""cpu.xnor_conv: convolution of signs, packed to bits (XNOR and popcount).

An input is one of two numbers, and so is a weight: -u or u. With bits b and c of these,
`sum = start - step * popcount(b ^ c)`, where `step = u * (upper input - lower input)`. Bits of
padding are 0, as if it were the lower number; `padding` holds what each tap adds instead.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.int8_arithmetic import (
    check_operands,
    check_result,
    image_result,
    requantize,
    wrapped,
)
from intaglio.targets.cpu.packing import PANEL, Ints

WORD = 32  # bits
MAX_KERNEL = 7


def _words(deep: int, kernel: Ints, dilation: Ints) -> tuple[int, int, int]:
    """Runs of bits in a window, pixels of a run, words of a run."""
    together = kernel[1] if dilation[1] == 1 else 1
    bits = -(-deep // 8) * 8 * together
    return math.prod(kernel) // together, together, -(-bits // WORD)


def packed_signs(above: Array, dilation: Ints) -> Array:
    """Signs [m, c, high, wide] of bool as u32 [panels, words of a window, 16]."""
    m, deep, *kernel = above.shape
    runs, together, words = _words(deep, (kernel[0], kernel[1]), dilation)
    whole, panels = -(-deep // 8) * 8, -(-m // PANEL)
    pixels = np.zeros((m, *kernel, whole), bool)
    pixels[..., :deep] = np.moveaxis(above, 1, -1)
    full = np.zeros((panels * PANEL, runs, words * WORD), bool)
    full[:m, :, : together * whole] = pixels.reshape(m, runs, together * whole)
    made = np.packbits(full, axis=-1, bitorder="little").view("<u4").reshape(panels, PANEL, -1)
    return np.ascontiguousarray(made.swapaxes(1, 2)).astype(np.uint32)


def unpacked_signs(w: Array, channels: int, deep: int, kernel: Ints, dilation: Ints) -> Array:
    """The inverse of `packed_signs`."""
    runs, together, words = _words(deep, kernel, dilation)
    whole = -(-deep // 8) * 8
    rows = np.ascontiguousarray(w.swapaxes(1, 2)).astype("<u4").view(np.uint8)
    bits = np.unpackbits(rows.reshape(-1, runs, words * WORD // 8), axis=-1, bitorder="little")
    bits = bits[:channels, :, : together * whole].reshape(channels, *kernel, whole)[..., :deep]
    return np.moveaxis(bits.astype(bool), -1, 1)


def _type(
    x: Value,
    w: Value,
    bias: Value,
    scale: Value | None,
    residual: Value | None,
    table: Value | None,
    padding: Value | None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    above: int,
    step: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
    r_zero: int,
    r_scale: float,
) -> Type:
    if dtype not in ("u8", "i8", "f32", "i32"):
        raise BadInput(f"the result must be u8, i8, i32 or f32, not {dtype}")
    if x.type.rank != 4 or len(kernel) != 2 or max(kernel) > MAX_KERNEL:
        raise BadInput(f"an image with windows of at most 7x7 is needed, not {x.type}, {kernel}")
    check_operands(x, bias, scale, table, channels, above, y_zero, lo, hi, dtype)
    runs, _, words = _words(x.shape[-1], kernel, dilation)
    want = Type("u32", (-(-channels // PANEL), runs * words, PANEL))
    if w.type != want:
        raise BadInput(f"signs {w.type} are not packed for this convolution; it needs {want}")
    if padding is not None and padding.type != Type("i32", (math.prod(kernel), channels)):
        raise BadInput(f"one i32 per tap and channel is needed, not {padding.type}")
    shape = (channels, x.shape[-1], *kernel)
    window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation, "groups": 1}
    result = image_result(x, shape, dtype, **window)
    check_result(result, scale, residual, table, r_zero, y_zero, lo, hi)
    return result


def _macs(node: Node) -> int:
    x = node.inputs[0]
    assert x is not None
    kernel = math.prod(map(int, node.attrs["kernel"]))
    return node.outputs[0].type.size * x.shape[-1] * kernel


def _on_padding(shape: tuple[int, ...], kernel: Ints, window: dict[str, Any]) -> Array:
    """Whether each tap of each window lies on padding: [1, taps, high, wide]."""
    taps = math.prod(kernel)
    each = np.zeros((taps, 1, *kernel), np.int8)
    each.reshape(taps, taps)[np.arange(taps), np.arange(taps)] = 1
    inside = ops.conv_integer.body(np.ones((1, 1, *shape[1:3]), np.int8), each, **window)
    return np.asarray(inside == 0)


@op(_type, name="cpu.xnor_conv", macs=_macs)
def xnor_conv(
    x: Array,
    w: Array,
    bias: Array,
    scale: Array | None = None,
    residual: Array | None = None,
    table: Array | None = None,
    padding: Array | None = None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    above: int,
    step: int,
    y_zero: int = 0,
    lo: int = 0,
    hi: int = 0,
    dtype: str,
    r_zero: int = 0,
    r_scale: float = 0.0,
) -> Array:
    """Convolution of the signs `x > above` of an image [n, high, wide, c] with packed signs `w`.

    `sum = bias - step * popcount(x ^ w)`, plus `padding` [taps, channels] for taps on padding.
    The rest is that of cpu.qconv.
    """
    bits = unpacked_signs(w, channels, x.shape[-1], kernel, dilation)
    window = {"stride": stride, "pad": pad, "dilation": dilation, "groups": 1}
    signs = np.moveaxis(x.astype(np.int16) > above, -1, 1).astype(np.int8)
    # popcount(b ^ c) = sum(c) + sum(b * (1 - 2 c))
    differ = ops.conv_integer.body(signs, np.where(bits, -1, 1).astype(np.int8), **window)
    ones = bits.reshape(channels, -1).sum(1, dtype=np.int64)
    total = bias - step * (np.moveaxis(differ, 1, -1).astype(np.int64) + ones)
    if padding is not None:
        outside = np.moveaxis(_on_padding(x.shape, kernel, window), 1, -1)
        total = total + outside.astype(np.int64) @ padding.astype(np.int64)
    sums = wrapped(total)
    if dtype == "i32":
        return np.ascontiguousarray(sums)
    assert scale is not None
    return requantize(sums, scale, residual, table, y_zero, lo, hi, dtype, r_zero, r_scale)
