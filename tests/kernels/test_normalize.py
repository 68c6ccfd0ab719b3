"""Softmax and normalisations against their numpy bodies."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import RunError

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def normal(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.5, 2, shape).astype(dtype)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(op: str, dtype: Any) -> None:
    for shape in [(1,), (7,), (1000,), (3, 5), (40, 3), (2, 5, 300), (2, 3, 4, 19), (0, 3), (3, 0)]:
        for axis in range(-1, len(shape)):
            check(op, normal(shape, dtype), axis=axis)
    check(op, normal((3, 4000), dtype), axis=1)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_softmax_of_large_numbers(op: str) -> None:
    x = np.array(
        [[1e30, -1e30, 0], [-np.inf, 0, 1], [500, 500, 499], [-1e4, -1e4, -1e4]], np.float32
    )
    for a, axis in ((x, 1), (x.T, 0)):
        check(op, a, axis=axis)
    masked = np.full((2, 3), -np.inf, np.float32)
    masked[1] = [np.nan, 1, 2]
    assert np.isnan(check(op, masked, axis=1)[0]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm(dtype: Any) -> None:
    for shape, axis in [
        ((5,), 0),
        ((3, 7), -1),
        ((2, 3, 40), 1),
        ((4, 768), 1),
        ((2, 3, 17, 5), 2),
        ((0, 4), 1),
    ]:
        x, inner = normal(shape, dtype), shape[axis:]
        scale, bias = normal(inner, dtype, 2), normal(inner, dtype, 3)
        loose = {"tolerance": 0.05} if dtype == ml_dtypes.bfloat16 else {}
        check("layer_norm", x, axis=axis, epsilon=1e-5, **loose)
        check("layer_norm", x, scale, axis=axis, epsilon=1e-5, **loose)
        check("layer_norm", x, scale, bias, axis=axis, epsilon=1e-3, **loose)
        check("layer_norm", x, None, bias, axis=axis, epsilon=1e-3, **loose)
        check("rms_norm", x, axis=axis, epsilon=1e-5, **loose)
        check("rms_norm", x, scale, axis=axis, epsilon=1e-5, **loose)


def test_layer_norm_far_from_zero() -> None:
    x = (1000 + normal((3, 5000))).astype(np.float32)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    for kernel in native.kernels():
        if kernel.op.name == "layer_norm" and not kernel.needs & ~native.machine():
            got = native.run_kernel(kernel, [x], {"axis": 1, "epsilon": 1e-5})[0]
            np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_lrn(dtype: Any, size: int) -> None:
    for shape in [(1, 3), (2, 7, 5), (1, 12, 9, 40), (2, 0, 4)]:
        check("lrn", normal(shape, dtype), size=size, alpha=0.1, beta=0.75, bias=1.5)


def test_refusals() -> None:
    x = normal((2, 3))
    norm = {"axis": 1, "epsilon": 1e-5}
    window = {"alpha": 1.0, "beta": 1.0, "bias": 1.0}
    for words, op, arrays, attrs in [
        ("axis is not", "softmax", [x], {"axis": 2}),
        ("floats only", "softmax", [x.astype(np.int32)], {"axis": 1}),
        ("axis is not", "layer_norm", [x], {"axis": -3, "epsilon": 1e-5}),
        ("scale and bias", "layer_norm", [x, x], norm),
        ("scale and bias", "rms_norm", [x, x[0].astype(np.float64)], norm),
        ("floats only", "rms_norm", [x.astype(np.int32)], norm),
        ("no channel axis", "lrn", [x[0]], {"size": 1, **window}),
        ("1 or more", "lrn", [x], {"size": 0, **window}),
    ]:
        kernel = native.find_kernel(op, "f32", 0)
        assert kernel
        with pytest.raises(RunError, match=words):
            native.run_kernel(kernel, arrays, attrs)
