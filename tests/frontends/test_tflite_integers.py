"""LiteRT's integer arithmetic: multipliers of 31 bits."""

from __future__ import annotations

import pytest

from intaglio.errors import BadInput
from intaglio.frontends.tflite.integer_arithmetic import quantized_multiplier


@pytest.mark.parametrize("factor", [1.0, 0.75, 1e-3, 3.7, 2.0**30, 0.999999999999])
def test_a_factor_is_a_multiplier_and_a_shift(factor):
    m, shift = quantized_multiplier(factor)
    assert 1 << 30 <= m < 1 << 31
    assert m * 2.0 ** (shift - 31) == pytest.approx(factor, rel=2**-31)


def test_tiny_factors_are_zero_and_huge_ones_are_refused():
    assert quantized_multiplier(1e-12) == (0, 0)
    with pytest.raises(BadInput, match=r"scales differ by a factor of 4\.5e\+16"):
        quantized_multiplier(4.5e16)
