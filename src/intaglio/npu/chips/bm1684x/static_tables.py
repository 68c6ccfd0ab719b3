"""The tables in static memory, which the firmware loads: powers of e, series of functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.bm1684x.lanes import STATIC
from intaglio.npu.chips.bm1684x.numbers import to_bf16

ALIGN = 64  # bytes
ERF = (  # Numerical Recipes' approximation of the complementary error function
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


@cache
def contents(chip: str = "bm1684x") -> Array:
    """The bytes of static memory; only that of BM1684X begins with powers of e."""
    memory = np.zeros(STATIC, np.uint8)
    at = 0
    for values, room in list(_tables(chip == "sg2260"))[0 if chip == "bm1684x" else 1 :]:
        data = np.ascontiguousarray(values).view(np.uint8)
        memory[at : at + len(data)] = data
        at += -(-room // ALIGN) * ALIGN
    return memory


def _tables(longer: bool) -> Iterator[tuple[Array, int]]:
    """Each table and the bytes of its room."""
    turn = 2 * math.pi
    odd = [2 * k + 1 for k in range(64)]
    exp = [1 / math.factorial(k) for k in range(32)]
    log = [0.0] + [(-1) ** (k + 1) / k for k in range(1, 64)]
    sine = [(-1) ** k * turn ** odd[k] / math.factorial(odd[k]) for k in range(32)]
    cosine = [(-1) ** k * turn ** (2 * k) / math.factorial(2 * k) for k in range(32)]
    arc = [math.comb(2 * k, k) / 4**k / odd[k] for k in range(64)]
    tangent = [float(t) * math.pi ** odd[k] for k, t in enumerate(_tangent(32))]
    yield _f32([math.exp(k) for k in range(-103, 89)]), 1024
    for series in (exp, log, ERF):
        yield _f32(series), 4 * len(series)
    if longer:  # its contents are unknown
        yield np.zeros(0, np.float32), ALIGN
    yield np.arange(64, dtype=np.uint32), 256
    for series in (sine, cosine, arc, tangent):
        yield _f32(series), 4 * len(series)
    for series in (exp[:10], log[:16]):
        yield np.array(series, np.float16), 32
        yield to_bf16(_f32(series)), 32


def _f32(values: object) -> Array:
    return np.array(values, np.float32)


def _tangent(count: int) -> list[Fraction]:
    """The coefficients of tan(x) at x, x^3, x^5 ..., from tan' = 1 + tan^2."""
    series = [Fraction(0), Fraction(1)]
    for n in range(1, 2 * count - 1):
        square = sum((series[i] * series[n - i] for i in range(n + 1)), Fraction(0))
        series.append(square / (n + 1))
    return series[1::2]
