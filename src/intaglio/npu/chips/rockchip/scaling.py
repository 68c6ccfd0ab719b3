"""How sums of 32 bits become bytes on Rockchip's NPU: two products, each rounded half to even."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array

CHANNEL_BITS = 14  # behind the point of a channel's multiplier
SCALE_BITS = 15  # of the scale of all channels
MOST_SHIFT = 62


def factors(scales: Array) -> tuple[Array, int, int]:
    """Multipliers of the channels, and the scale and shift of all, for these real factors."""
    largest = float(np.max(scales))
    multipliers = np.rint(scales / largest * (1 << CHANNEL_BITS)).astype(np.int32)
    return multipliers, *mantissa(largest)


def mantissa(factor: float) -> tuple[int, int]:
    """A scale of 15 bits and a shift to the right that multiply by a factor."""
    if not 2.0**-MOST_SHIFT < factor < 1 << SCALE_BITS:
        raise BadInput(f"rockchip: a layer scales by {factor:g}; it must lie between 0 and 32768")
    _, exponent = np.frexp(np.float32(factor))
    shift = SCALE_BITS - int(exponent)
    if shift < 0 or shift > MOST_SHIFT:
        raise BadInput(
            f"rockchip: a layer scales by {factor:g}; shifts have 0 to {MOST_SHIFT} bits"
        )
    scale = int(np.rint(factor * 2.0**shift))
    return (scale >> 1, shift - 1) if scale >> SCALE_BITS else (scale, shift)


def half_even(values: Array, shift: int) -> Array:
    """Shift right, rounding halves to the even neighbour."""
    if not shift:
        return values
    odd = values >> shift & 1
    rounded: Array = values + (1 << shift - 1) - 1 + odd >> shift
    return rounded


def to_bytes(
    sums: Array,
    multipliers: Array,
    scale: int,
    shift: int,
    zero: int,
    relu: bool = False,
    limit: int = 0,
    added: Array | None = None,
    relu_after: bool = False,
) -> Array:
    """Bytes of sums [channels, ...] that have their bias; `added`: in units of the scaled sums."""
    scaled = scaled_sums(sums, multipliers)
    if (relu or limit) and not relu_after:
        scaled = np.clip(scaled, 0, limit or None)
    if added is not None:
        scaled = scaled + added
    if relu_after:
        scaled = np.clip(scaled, 0, limit or None)
    result = half_even(scaled * scale, shift) + zero
    clamped: Array = np.clip(result, -128, 127).astype(np.int8)
    return clamped


def scaled_sums(sums: Array, multipliers: Array) -> Array:
    """Sums [channels, ...] with their bias, times the multipliers of their channels."""
    wide = multipliers.astype(np.int64).reshape(-1, *[1] * (sums.ndim - 1))
    return half_even(sums.astype(np.int64) * wide, CHANNEL_BITS)
