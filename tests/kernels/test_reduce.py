"""Reductions, running sums and positions of extremes against their numpy bodies."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import RunError

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64]
REDUCE = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"]


def floats(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(5).uniform(0.5, 1.5, shape).astype(dtype)


def integers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(5).integers(info.min, info.max, shape, dtype, True)


def every_axes(rank: int) -> list[tuple[int, ...]]:
    return [a for n in range(1, rank + 1) for a in itertools.combinations(range(rank), n)]


@pytest.mark.parametrize("op", REDUCE)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_reduce_over_every_set_of_axes(op: str, dtype: Any) -> None:
    make = floats if dtype in FLOATS else integers
    loose = {"tolerance": 0.02} if op == "reduce_prod" and np.dtype(dtype).itemsize == 2 else {}
    for shape in [(1,), (5,), (3, 4), (2, 3, 4), (2, 5, 3, 2)]:
        for axes in every_axes(len(shape)):
            check(op, make(shape, dtype), axes=axes, keepdims=len(axes) % 2 == 0, **loose)


@pytest.mark.parametrize("op", REDUCE)
def test_reduce_long_rows_and_columns(op: str) -> None:
    for shape, axes in [
        ((3, 1000), (1,)),
        ((1000, 3), (0,)),
        ((40, 300), (0,)),
        ((2, 49, 300), (1,)),
        ((70, 33), (1,)),
        ((2, 3, 17, 19), (2, 3)),
        ((2, 3, 17, 19), (0, 2)),
        ((600, 5, 2), (0, 2)),
        ((3000,), (0,)),
    ]:
        x = floats(shape) if op != "reduce_prod" else 1 + (floats(shape) - 1) / 100
        check(op, x, axes=axes, keepdims=False, tolerance=2e-5)
        check(op, x.astype(np.float16), axes=axes, keepdims=True, tolerance=4e-3)


@pytest.mark.parametrize("op", REDUCE)
def test_reduce_empty(op: str) -> None:
    for dtype in (np.float32, np.float64, np.int32, np.uint8):
        for shape, axes in [
            ((0,), (0,)),
            ((3, 0, 4), (1,)),
            ((3, 0), (0,)),
            ((0, 5), (0,)),
            ((2, 0, 0), (1, 2)),
        ]:
            check(op, np.zeros(shape, dtype), axes=axes, keepdims=True)


def test_sums_are_exact_enough() -> None:
    x = np.random.default_rng(2).normal(10, 1, (2, 200_000)).astype(np.float32)
    exact = x.sum(1, np.float64)
    for kernel in native.kernels():
        if kernel.op.name == "reduce_sum" and not kernel.needs & ~native.machine():
            for a, axes in [(x, (1,)), (np.ascontiguousarray(x.T), (0,))]:
                got = native.run_kernel(kernel, [a], {"axes": axes, "keepdims": 0})[0]
                np.testing.assert_allclose(got, exact, rtol=2e-7)


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min"])
def test_extremes_keep_nan(op: str) -> None:
    x = floats((4, 600))
    x[1, 3] = x[2, 599] = np.nan
    x[3, 5] = np.inf
    check(op, x, axes=(1,), keepdims=False)
    check(op, x, axes=(0,), keepdims=False)
    check(op, x > 1, axes=(1,), keepdims=False)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8, np.int8])
def test_argmax_and_argmin(op: str, dtype: Any) -> None:
    rng = np.random.default_rng(4)
    low, high = (0, 9) if dtype is np.uint8 else (-4, 5)
    for shape in [(1,), (700,), (5, 7), (3, 300, 4), (2, 3, 400), (3, 256, 2), (2, 256)]:
        x = rng.integers(low, high, shape).astype(dtype)  # ties everywhere
        for axis in range(-1, len(shape)):
            for last in (False, True):
                check(op, x, axis=axis, keepdims=last, select_last_index=last)
    check(op, np.zeros((0, 3), dtype), axis=1, keepdims=True, select_last_index=False)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_argmax_of_short_rows(op: str, dtype: Any) -> None:
    """Rows of bytes that vectors of 16 cover once, several times and not at all."""
    rng = np.random.default_rng(5)
    limits = np.iinfo(dtype)
    for n in [*range(1, 19), 21, 31, 32, 33, 47, 48, 63, 64, 65, 150]:
        x = rng.choice([limits.min, limits.min + 1, 0, limits.max], (37, n)).astype(dtype)
        x[:3] = [[limits.min], [limits.max], [5]]
        for last in (False, True):
            check(op, x, axis=1, keepdims=False, select_last_index=last)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_argmax_of_nan(op: str) -> None:
    x = floats((3, 9))
    x[0, 3] = x[0, 6] = x[2, 1] = np.nan
    for last in (False, True):
        check(op, x, axis=1, keepdims=False, select_last_index=last)


@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8]
)
def test_cumulative_sums(op: str, dtype: Any) -> None:
    for shape in [(1,), (60,), (5, 7), (3, 4, 300), (0, 4), (3, 0)]:
        x = floats(shape, dtype) if dtype in FLOATS else np.ones(shape, dtype) * 3
        for axis in range(-1, len(shape)):
            for exclusive, reverse in itertools.product((False, True), repeat=2):
                check(op, x, axis=axis, exclusive=exclusive, reverse=reverse, tolerance=None)


def test_refusals() -> None:
    x = floats((2, 3))
    once = {"exclusive": 0, "reverse": 0}
    for words, op, a, attrs in [
        ("does not fit the rank", "reduce_sum", x, {"axes": (), "keepdims": 1}),
        ("sorted", "reduce_sum", x, {"axes": (1, 0), "keepdims": 1}),
        ("sorted", "reduce_sum", x, {"axes": (1, 1), "keepdims": 1}),
        ("sorted", "reduce_max", x, {"axes": (2,), "keepdims": 1}),
        ("sorted", "reduce_max", x, {"axes": (-1,), "keepdims": 1}),
        ("not bools", "reduce_sum", x > 1, {"axes": (0,), "keepdims": 1}),
        ("axis is not", "argmax", x, {"axis": 2, "keepdims": 1, "select_last_index": 0}),
        ("empty axis", "argmin", x[:0], {"axis": 0, "keepdims": 1, "select_last_index": 0}),
        ("axis is not", "cumsum", x, {"axis": -3, **once}),
        ("not bools", "cumsum", x > 1, {"axis": 0, **once}),
    ]:
        kernel = native.find_kernel(op, "f32", 0)
        assert kernel
        with pytest.raises(RunError, match=words):
            native.run_kernel(kernel, [a], attrs)
