from __future__ import annotations

import numpy as np
import pytest
from tests.ops.body import FLOATS, close, run

from intaglio.errors import BadInput
from intaglio.ir import Type, Value
from intaglio.ops import group_norm, layer_norm

R = np.random.default_rng(3)


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items())
def test_lowerings(dtype: type, tolerance: float) -> None:
    x = R.standard_normal((2, 6, 4, 3)).astype(dtype)
    scale, bias, mean, var = (R.random(6).astype(dtype) + dtype(0.5) for _ in range(4))
    run("batch_norm", x, scale, bias, mean, var, tolerance=tolerance)
    run("group_norm", x, scale, bias, groups=3, tolerance=tolerance)
    run("instance_norm", x, scale, bias, tolerance=tolerance)
    run("lp_norm", x, axis=1, p=1, tolerance=tolerance)
    run("lp_norm", x, axis=-1, p=2, tolerance=tolerance)
    run("mvn", x, tolerance=tolerance)
    run("hardmax", x, axis=1)


def test_layer_norm_has_zero_mean_and_unit_variance() -> None:
    x = R.standard_normal((2, 3, 8)).astype(np.float32) * 5 + 2
    y = run("layer_norm", x, axis=1, epsilon=0.0)
    close(y.mean((1, 2)), 0)
    close(y.var((1, 2)), 1)
    scale, bias = R.random((3, 8)).astype(np.float32), R.random((3, 8)).astype(np.float32)
    close(run("layer_norm", x, scale, bias, axis=1, epsilon=0.0), y * scale + bias)


def test_rms_norm_has_unit_mean_square() -> None:
    x = R.standard_normal((4, 8)).astype(np.float32)
    close((run("rms_norm", x, epsilon=0.0) ** 2).mean(-1), 1)


def test_softmax() -> None:
    x = np.float32([[1000, 1000, -np.inf], [0, np.log(3), -1000]])
    close(run("softmax", x, axis=1), [[0.5, 0.5, 0], [0.25, 0.75, 0]])
    close(np.exp(run("log_softmax", x, axis=1)), run("softmax", x, axis=1))
    assert run("softmax", np.zeros((2, 0), np.float32)).shape == (2, 0)


def test_hardmax_takes_the_first_of_equals() -> None:
    assert run("hardmax", np.float32([[1, 3, 3], [2, 2, 0]])).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_lp_norm_of_zeros_is_zero() -> None:
    close(run("lp_norm", np.float32([[0, 0], [3, 4]])), [[0, 0], [0.6, 0.8]])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_lrn(size: int) -> None:
    x = R.random((1, 5, 2)).astype(np.float32)
    got = run("lrn", x, size=size, alpha=0.5, beta=0.75, bias=2.0)
    for c in range(5):
        low, high = max(0, c - (size - 1) // 2), min(4, c + size // 2)
        square = (x[:, low : high + 1] ** 2).sum(1)
        close(got[:, c], x[:, c] / (2 + 0.5 / size * square) ** 0.75)


def test_refusals() -> None:
    x = Value(Type("f32", (2, 6)))
    with pytest.raises(BadInput, match="normalised axes"):
        layer_norm(x, Value(Type("f32", (5,))))
    with pytest.raises(BadInput, match="groups"):
        group_norm(x, *[Value(Type("f32", (6,)))] * 2, groups=4)
    with pytest.raises(BadInput, match="axis"):
        layer_norm(x, axis=2)
