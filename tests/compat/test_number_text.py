"""Lines of numbers are read back as the same float32."""

from __future__ import annotations

import io

import numpy as np
import pytest

from intaglio.compat.rknn.number_text import number_lines


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, 255.0])
def test_round_trip(scale: float):
    values = (np.random.default_rng(0).normal(0, scale, (3, 500))).astype(np.float32)
    found = np.loadtxt(io.BytesIO(number_lines(values)))
    np.testing.assert_allclose(found, values.ravel(), rtol=6e-7)


def test_edges():
    values = np.float32(
        [0, 1, -1, 10, 9.9999999, 0.1, 99999.99, 1e-45, 3.4028235e38, 1e-7, 1000000]
    )
    text = number_lines(values).decode()
    found = np.loadtxt(io.StringIO(text))
    np.testing.assert_allclose(found, values.astype(np.float64), rtol=6e-7)
    assert text.splitlines()[1] == " 1.000000e+00"
    assert number_lines(np.float32([np.nan, -np.inf])) == b"nan\n-inf\n"
    assert number_lines(np.zeros(0, np.float32)) == b""
