"""Tables of sigmoid and tanh in 16-bit fixed point, bit-exact with LiteRT's integer LSTM.

LiteRT uses gemmlowp's `fixedpoint.h`: exp by a polynomial on [-1/4, 0) and factors for the higher
bits, 1 / (1 + x) by three steps of Newton's method, each product rounded to 16 bits. `bits` is the
number of integer bits; a product has the sum of those of its factors.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array

LOW, HIGH = -(1 << 15), (1 << 15) - 1
# exp(-2^k) for k = -2 .. 4 in units of 2^-31
POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
EXP_EIGHTH, THIRD = 1895147668, 715827883  # exp(-1/8) and 1/3, in units of 2^-31
ABOUT_48_17, ABOUT_32_17 = 1515870810, -1010580540  # of 48/17 and -32/17, in units of 2^-29


@dataclass(frozen=True)
class Fixed:
    """Numbers raw * 2^(bits - 15) of 16 bits each."""

    raw: Array
    bits: int

    def __mul__(self, other: Fixed) -> Fixed:
        product = self.raw * other.raw
        nudge = np.where(product >= 0, 1 << 14, 1 - (1 << 14))
        high = (product + nudge + np.where(product + nudge < 0, (1 << 15) - 1, 0)) >> 15
        return Fixed(_wrapped(np.minimum(high, HIGH)), self.bits + other.bits)

    def __add__(self, other: Fixed) -> Fixed:
        return Fixed(_wrapped(self.raw + other.raw), self.bits)

    def __sub__(self, other: Fixed) -> Fixed:
        return Fixed(_wrapped(self.raw - other.raw), self.bits)

    def rescaled(self, bits: int) -> Fixed:
        return Fixed(_by_power(self.raw, self.bits - bits), bits)


def _wrapped(raw: Array) -> Array:
    return np.asarray(raw).astype(np.int16).astype(np.int64)


def _by_power(raw: Array, exponent: int) -> Array:
    """raw * 2^exponent, clamped, or rounded half away from zero."""
    if exponent >= 0:
        return np.clip(raw << exponent, LOW, HIGH)
    mask = (1 << -exponent) - 1
    rest, half = raw & mask, (mask >> 1) + (raw < 0)
    return np.asarray((raw >> -exponent) + (rest > half))


def _constant(of_31: int, bits: int) -> Fixed:
    """A constant with 31 fractional bits, rounded to 15."""
    return Fixed(np.array((of_31 + (1 << 15)) >> 16), bits)


def _one(bits: int) -> Fixed:
    return Fixed(np.array(HIGH if bits == 0 else 1 << (15 - bits)), bits)


def _exp_small(a: Fixed) -> Fixed:
    """exp of [-1/4, 0)."""
    base = _constant(EXP_EIGHTH, 0)
    x = a + Fixed(np.array(1 << 12), 0)
    x2 = x * x
    x3, x4 = x2 * x, x2 * x2
    inner = (Fixed(_by_power(x4.raw, -2), 0) + x3) * _constant(THIRD, 0) + x2
    more = base * (x + Fixed(_by_power(inner.raw, -1), 0))
    return Fixed(np.clip(base.raw + more.raw, LOW, HIGH), 0)


def _exp(a: Fixed) -> Fixed:
    """exp of numbers that are not above 0."""
    point = 15 - a.bits
    quarter = 1 << (point - 2)
    low = (a.raw & (quarter - 1)) - quarter
    result = _exp_small(Fixed(low, a.bits).rescaled(0))
    left = low - a.raw
    for k, power in enumerate(POWERS, -2):
        if a.bits > k:
            factor = result * _constant(power, 0)
            result = Fixed(np.where(left & (1 << (point + k)), factor.raw, result.raw), 0)
    return Fixed(np.where(a.raw == 0, HIGH, result.raw), 0)


def _inverse(a: Fixed) -> Fixed:
    """2 / (1 + a) for a in [0, 1], with two integer bits."""
    total = a.raw + HIGH
    half = Fixed((total + np.where(total >= 0, 1, -1)) // 2, 0)
    x = _constant(ABOUT_48_17, 2) + half * _constant(ABOUT_32_17, 2)
    for _ in range(3):
        x = x + (x * (_one(2) - half * x)).rescaled(2)
    return x


def _all_inputs(bits: int) -> Fixed:
    return Fixed(np.arange(LOW, HIGH + 1, dtype=np.int64), bits)


@functools.cache
def sigmoid_table() -> Array:
    """sigmoid of all 16-bit numbers with 3 integer bits, ascending, in units of 2^-15."""
    a = _all_inputs(3)
    x = _inverse(_exp(Fixed(-np.minimum(np.abs(a.raw), HIGH + 1), 3)))
    above = Fixed(x.raw, 1).rescaled(0).raw  # half of it
    result = np.where(a.raw > 0, above, HIGH - above)
    return np.where(a.raw == 0, 1 << 14, result).astype(np.int16)


@functools.cache
def tanh_table(bits: int) -> Array:
    """tanh of all 16-bit numbers with `bits` integer bits, ascending, in units of 2^-15."""
    a = _all_inputs(bits)
    x = _inverse(_exp(Fixed(-np.minimum(np.abs(a.raw), HIGH + 1), bits + 1)))
    size = (x - _one(2)).rescaled(0).raw
    result = np.where(a.raw < 0, -size, size)
    return np.where(a.raw == 0, 0, result).astype(np.int16)
