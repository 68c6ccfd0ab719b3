"""Rounding to bf16 that keeps the sum of every filter."""

import ml_dtypes
import numpy as np
import pytest

from intaglio.targets.cpu.bf16_rounding import balanced

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(1, 2, 144, 16), (1500, 16), (27, 16), (3, 1, 16)])
def test_every_weight_goes_to_a_neighbour_and_sums_are_kept(shape):
    w = (RNG.standard_normal(shape) * 0.1).astype(np.float32)
    near, made = w.astype(ml_dtypes.bfloat16), balanced(w)
    assert made.dtype == near.dtype
    assert made.shape == w.shape
    step = np.abs(np.spacing(np.abs(near).astype(np.float32))) * 2**16  # between bf16 numbers
    assert (np.abs(made.astype(np.float32) - w) <= step).all()
    plain = np.abs((near.astype(np.float64) - w).sum(-2))
    best = np.abs((made.astype(np.float64) - w).sum(-2))
    assert (best <= plain).all()
    if shape[-2] > 20:
        assert best.mean() < plain.mean() / 4
        more = np.square(made.astype(np.float64) - w).sum()
        assert more < 1.2 * np.square(near.astype(np.float64) - w).sum()


def test_exact_bf16_weights_stay():
    w = RNG.standard_normal((64, 16)).astype(ml_dtypes.bfloat16)
    w[:8] = 0
    np.testing.assert_array_equal(balanced(w.astype(np.float32)), w)


def test_nan_is_rounded_as_usual():
    w = np.array([[np.inf, np.nan], [1.001, 1.001]], np.float32)
    np.testing.assert_array_equal(
        balanced(w).astype(np.float32), w.astype(ml_dtypes.bfloat16).astype(np.float32)
    )
    assert balanced(np.zeros((0, 16), np.float32)).shape == (0, 16)
