"""LiteRT's integer arithmetic on i64 values: products with multipliers of 31 bits, and shifts.

A real factor is m * 2^(shift - 31) with 2^30 <= m < 2^31. A product is rounded twice: after m
(ties up) and after a shift to the right (ties away from zero). Source:
`MultiplyByQuantizedMultiplier` of tensorflow/lite/kernels/internal/common.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Value, constant

SMALLEST_SHIFT = -31  # a smaller factor is 0
LARGEST_SHIFT = 31  # products of a larger factor exceed 64 bits


def quantized_multiplier(factor: float) -> tuple[int, int]:
    """Multiplier and shift of a factor that is not negative."""
    fraction, shift = math.frexp(factor)
    m = math.floor(fraction * 2**31 + 0.5)
    if m == 1 << 31:
        m, shift = m // 2, shift + 1
    if shift > LARGEST_SHIFT:
        raise BadInput(
            f"scales differ by a factor of {factor:g}; integer arithmetic takes factors below "
            f"2^{LARGEST_SHIFT}"
        )
    return (0, 0) if shift < SMALLEST_SHIFT else (m, shift)


def multiplied(v: Value, factors: Sequence[float], repeats: int = 1) -> Value:
    """i64 `v` times one factor, or one for each `repeats` columns, rounded as LiteRT rounds."""
    pairs = [quantized_multiplier(f) for f in factors]
    by = _columns([m << max(s, 0) for m, s in pairs], repeats)
    high = ops.shift_right(ops.add(ops.mul(v, by), _whole(1 << 30)), _whole(31))
    return divided_by_power(high, [max(-s, 0) for _, s in pairs], repeats)


def divided_by_power(v: Value, bits: Sequence[int], repeats: int = 1) -> Value:
    """i64 `v` divided by powers of two, ties away from zero."""
    if not any(bits):
        return v
    half = _columns([(1 << b) >> 1 for b in bits], repeats)
    sign = ops.mul(ops.shift_right(v, _whole(63)), _columns([int(b > 0) for b in bits], repeats))
    result: Value = ops.shift_right(ops.add(ops.add(v, half), sign), _columns(bits, repeats))
    return result


def rescaled(v: Array, factor: float) -> Array:
    """`multiplied` of an array of i64."""
    m, shift = quantized_multiplier(factor)
    high = (v * (m << max(shift, 0)) + (1 << 30)) >> 31
    bits = max(-shift, 0)
    return high if not bits else (high + (1 << bits - 1) - (high < 0)) >> bits


def clamped(v: Value, low: int, high: int) -> Value:
    result: Value = ops.clip(v, lo=float(low), hi=float(high))
    return result


def _columns(values: Sequence[int], repeats: int) -> Value:
    return _whole(values[0]) if len(set(values)) == 1 else constant(np.repeat(values, repeats))


def _whole(value: int) -> Value:
    return constant(value, dtype="i64")
