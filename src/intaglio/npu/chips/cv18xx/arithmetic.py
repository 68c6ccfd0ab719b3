"""The integer arithmetic of CV18xx, and how scales, biases and zero points become its numbers.

Convolutions have a bias, a multiplier and a shift for each output channel:
`v = ((sum + bias) * multiplier + 2^30) >> 31` rounds halves up, `v / 2^shift` rounds halves away
from zero and saturates. Zero points fold into the bias, and padding has the value of the zero
point. Sums of two maps multiply each by 8 bits, add in 16, and round halves up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node

MULTIPLIER_BITS = 31
MAX_SHIFT = 31
CONSTANT_BITS = 8  # after the point of a channel whose weights are too small to matter
MAX_ADD_SHIFT = 15
MAX_FACTOR = 127  # multipliers of a sum are signed bytes
I16 = dtypes.limits("i16")
I32 = dtypes.limits("i32")


@dataclass(frozen=True, slots=True)
class Requantization:
    """Weights, bias, multiplier and shift of each output channel."""

    weights: Array
    bias: Array
    multiplier: Array
    shift: Array

    @property
    def table(self) -> Array:
        """Bias, multiplier and shift as one constant: i64 [3, channels]."""
        return np.stack([self.bias, self.multiplier, self.shift]).astype(np.int64)


def halves_away(v: Array, shift: Array | int) -> Array:
    """v / 2^shift, rounded to the nearest integer; halves away from zero."""
    half = (np.int64(1) << np.asarray(shift, np.int64)) >> 1
    made: Array = np.where(v < 0, -((-v + half) >> shift), (v + half) >> shift)
    return made


def saturated(v: Array, dtype: str, relu: bool = False) -> Array:
    """Clamped to an 8-bit type."""
    low, high = dtypes.limits(dtype)
    clamped: Array = np.clip(v, max(low, 0) if relu else low, high)
    made: Array = clamped.astype(dtypes.numpy_of(dtype))
    return made


def requantized(sums: Array, table: Array, dtype: str, relu: bool) -> Array:
    """Results of sums [N, C, H, W]."""
    bias, multiplier, shift = (row.reshape(-1, 1, 1) for row in table.astype(np.int64))
    biased = np.clip(sums.astype(np.int64) + bias, *I32)
    v = (biased * multiplier + (1 << 30)) >> MULTIPLIER_BITS
    return saturated(halves_away(v, shift), dtype, relu)


def multiplier_and_shift(scale: Array) -> tuple[Array, Array]:
    """The closest multiplier / 2^(31 + shift) to each scale; BadInput if one is out of range."""
    scale = np.asarray(scale, np.float64)
    if not np.isfinite(scale).all() or (scale < 0).any():
        raise BadInput(f"a scale is {scale.min():g}; scales are positive numbers")
    fraction, exponent = np.frexp(scale)
    multiplier = np.rint(fraction * 2.0**MULTIPLIER_BITS)
    over = multiplier >= 2.0**MULTIPLIER_BITS
    multiplier, exponent = np.where(over, multiplier / 2, multiplier), exponent + over
    if (exponent > 0).any():
        # at most 2^31 - 1: a scale of 1 is exact for all sums that do not saturate
        if scale.max() > 1:
            raise BadInput(f"a scale is {scale.max():g}; sums are multiplied by less than 1")
        multiplier = np.where(exponent > 0, 2.0**MULTIPLIER_BITS - 1, multiplier)
        exponent = np.minimum(exponent, 0)
    tiny = -exponent > MAX_SHIFT  # such a scale gives 0
    return np.where(tiny, 0, multiplier).astype(np.int64), np.where(tiny, 0, -exponent)


def of_convolution(node: Node) -> Requantization:
    """The numbers of npu.conv or npu.depthwise."""
    w, scale, bias = (v.data for v in node.inputs[1:4] if v is not None)
    assert w is not None
    assert scale is not None
    assert bias is not None
    w, scale, bias = _with_positive_scales(w, scale, bias)
    zero, (multiplier, shift) = node.attrs["y_zero"], multiplier_and_shift(scale)
    total = bias.astype(np.int64) - node.attrs["x_zero"] * w.reshape(len(w), -1).sum(1, np.int64)
    if not zero:
        return _checked(w, total, multiplier, shift)
    real = scale.astype(np.float64)
    constant = np.abs(zero) > real * (I32[1] // 2)  # the zero point does not fit the bias
    if constant.any():
        w, bias = w.copy(), bias.astype(np.float64)
        reach = np.abs(w.astype(np.int64)).reshape(len(w), -1).sum(1) * 255 * real
        if (reach[constant] > 1).any():
            raise BadInput(f"a scale is {real[constant].min():g}, with the zero point {zero}")
        w[constant] = 0
        multiplier[constant], shift[constant] = 1 << 30, CONSTANT_BITS - 1
        total[constant] = np.rint(bias[constant] * real[constant] + zero) * (1 << CONSTANT_BITS)
    others = ~constant
    total[others] += np.rint(zero / real[others]).astype(np.int64)
    return _checked(w, total, multiplier, shift)


def _with_positive_scales(w: Array, scale: Array, bias: Array) -> tuple[Array, Array, Array]:
    """The same layer without negative scales: the signs of weights and bias change."""
    turned = scale < 0
    if not turned.any() or (w[turned] == np.iinfo(w.dtype).min).any():
        return w, scale, bias
    sign = np.where(turned, -1, 1)
    turned_w = (w * sign.reshape(-1, *[1] * (w.ndim - 1))).astype(w.dtype)
    return turned_w, np.abs(scale), bias * sign


def _checked(w: Array, bias: Array, multiplier: Array, shift: Array) -> Requantization:
    if bias.min() < I32[0] or bias.max() > I32[1]:
        raise BadInput(f"a bias is as large as {np.abs(bias).max()}; 32 bits are added")
    return Requantization(w, bias, multiplier, shift)


@dataclass(frozen=True, slots=True)
class Sum:
    """a * left + b * right + offset, divided by 2^shift; halves round up."""

    left: int
    right: int
    offset: int
    shift: int

    def apply(self, a: Array, b: Array, dtype: str, relu: bool) -> Array:
        wide = np.clip(a.astype(np.int64) * self.left + self.offset, *I16)
        total = wide + b.astype(np.int64) * self.right
        return saturated((total + (1 << self.shift >> 1)) >> self.shift, dtype, relu)


def of_sum(node: Node) -> Sum:
    """The numbers of an npu.eltwise that adds; BadInput if its factors are out of range."""
    a, left, right = node.attrs, node.attrs["a_factor"], node.attrs["b_factor"]
    largest = max(abs(left), abs(right))
    if not largest:
        raise BadInput("both factors of a sum are 0")
    bits = min(math.floor(math.log2(MAX_FACTOR / largest)), MAX_ADD_SHIFT)
    x, y = node.inputs[:2]
    assert x is not None
    assert y is not None
    while bits >= 0:
        m, n = (round(f * 2.0**bits) for f in (left, right))
        offset = (a["y_zero"] << bits) - a["a_zero"] * m - a["b_zero"] * n
        reach = [v * m + offset for v in dtypes.limits(x.dtype)]
        ends = [*reach, *(v * n + offset for v in dtypes.limits(y.dtype)), offset]
        if max(m, n) <= MAX_FACTOR and I16[0] <= min(ends) and max(ends) <= I16[1]:
            return Sum(m, n, offset, bits)
        bits -= 1
    raise BadInput(f"a sum has factors {left:g} and {right:g}; they are at most {MAX_FACTOR}")
