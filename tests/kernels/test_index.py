"""Sorting, selecting and placing kernels against their numpy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_gather import NUMERIC, values

from intaglio import dtypes, native
from intaglio.errors import RunError

RNG = np.random.default_rng(8)
SHAPES = [(7,), (1,), (3, 5), (2, 3, 4), (5, 1, 2), (2, 0, 3), (0,)]


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 2)])
@pytest.mark.parametrize("kind", ["i64", "i32", "u8", "f32"])
def test_one_hot(shape: tuple[int, ...], kind: str) -> None:
    low = 0 if kind == "u8" else -6
    at = RNG.integers(low, 6, shape).astype(dtypes.numpy_of(kind))
    for axis in range(-len(shape) - 1, len(shape) + 1):
        check("one_hot", at, np.array([2, 7], np.float32), depth=4, axis=axis)
    check("one_hot", at, np.array([False, True]), depth=5, axis=-1)
    check("one_hot", at, np.array([1, 2], np.int64), depth=0, axis=0)


@pytest.mark.parametrize("dtype", [n for n in dtypes.TABLE if n != "f8e8m0fnu"])
def test_trilu(dtype: str) -> None:
    for shape in [(4, 4), (2, 3, 5), (5, 2), (1, 1), (0, 3), (3, 0)]:
        for k in (0, 1, -2, 9, -9, 2**62, -(2**62)):
            check("trilu", values(shape, dtype), k=k, upper=True)
            check("trilu", values(shape, dtype), k=k, upper=False)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0), (-1, 1), (0, 2)])
def test_reverse_sequence(axes: tuple[int, int]) -> None:
    for dtype in ("f32", "i8", "f64"):
        x = values((3, 4, 5, 2)[: 3 + (axes[0] >= 0)], dtype)
        lens = RNG.integers(0, x.shape[axes[1]] + 1, x.shape[axes[0]])
        check("reverse_sequence", x, lens, batch_axis=axes[0], time_axis=axes[1])
    x = np.zeros((3, 0), np.float32)
    check("reverse_sequence", x, np.zeros(3, np.int32), batch_axis=0, time_axis=1)


@pytest.mark.parametrize("dtype", [*NUMERIC, "f8e5m2", "i4"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(dtype: str, largest: bool) -> None:
    for shape in SHAPES:
        for axis in range(-1, len(shape)):
            for k in {0, 1, shape[axis] // 2, shape[axis]}:
                if k <= shape[axis]:
                    check("topk", values(shape, dtype), k=k, axis=axis, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_orders_special_numbers_and_long_lines(largest: bool) -> None:
    x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, np.nan, -1, 0.0], np.float32)
    for k in range(len(x) + 1):
        check("topk", x, k=k, axis=0, largest=largest)
    big = np.array([2**63, 5, 2**64 - 1, 0], np.uint64)
    check("topk", big, k=4, axis=0, largest=largest)
    check("topk", RNG.normal(size=(3, 1000)).astype(np.float32), k=100, axis=1, largest=largest)


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique(dtype: str, is_sorted: bool) -> None:
    for shape in [(20,), (1,), (0,), (9, 1), (30, 2), (2, 15, 2)]:
        for axis in range(-1, len(shape)):
            x = RNG.integers(0, 2, shape).astype(dtypes.numpy_of(dtype))
            if x.size:  # numpy refuses to compare slices without elements
                check("unique", x, axis=axis, sorted=is_sorted)
    check("unique", RNG.integers(0, 2, (200,)).astype(dtypes.numpy_of(dtype)), axis=0, sorted=True)


@pytest.mark.parametrize("dtype", NUMERIC)
def test_nonzero(dtype: str) -> None:
    for shape in [(), (1,), (9,), (3, 4), (2, 3, 2), (0, 3), (2, 2, 0)]:
        check("nonzero", RNG.integers(0, 2, shape).astype(dtypes.numpy_of(dtype)))
    check("nonzero", np.array([-0.0, np.nan, 1e-40, 0], np.float32))
    check("nonzero", np.ones((2, 3), dtypes.numpy_of(dtype)))


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_compress(dtype: str) -> None:
    for shape in [(5,), (3, 4), (2, 3, 4), (3, 0)]:
        for axis in range(-1, len(shape)):
            for n in {0, 1, shape[axis]}:
                if n <= shape[axis]:
                    check("compress", values(shape, dtype), RNG.random(n) > 0.4, axis=axis)
    longer = np.array([True, False, True, False, False])
    check("compress", values((3, 2), dtype), longer, axis=0)


F = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("op", "outputs", "arrays", "attrs"),
    [
        ("one_hot", 1, [F, F[0]], {"depth": 2, "axis": 0}),
        ("one_hot", 1, [F, F[0, :2]], {"depth": -1, "axis": 0}),
        ("one_hot", 1, [F, F[0, :2]], {"depth": 1, "axis": 4}),
        ("trilu", 1, [F[0]], {"k": 0, "upper": True}),
        ("reverse_sequence", 1, [F, np.zeros(2, np.int64)], {"batch_axis": 0, "time_axis": 0}),
        ("reverse_sequence", 1, [F, np.zeros(3, np.int64)], {"batch_axis": 0, "time_axis": 1}),
        ("reverse_sequence", 1, [F, np.array([1, 4])], {"batch_axis": 0, "time_axis": 1}),
        ("reverse_sequence", 1, [F, np.array([-1, 1])], {"batch_axis": 0, "time_axis": 1}),
        ("topk", 2, [F], {"k": 4, "axis": 1, "largest": True}),
        ("topk", 2, [F], {"k": -1, "axis": 1, "largest": True}),
        ("topk", 1, [F], {"k": 1, "axis": 1, "largest": True}),
        ("topk", 2, [F], {"k": 1, "axis": 2, "largest": True}),
        ("unique", 4, [F], {"axis": -3, "sorted": True}),
        ("compress", 1, [F, np.ones(2, np.uint8)], {"axis": 0}),
        ("compress", 1, [F, np.ones(3, bool)], {"axis": 0}),
        ("nonzero", 1, [F, F], {}),
    ],
)
def test_invalid_calls_are_refused(
    op: str, outputs: int, arrays: list[np.ndarray], attrs: dict[str, Any]
) -> None:
    kernel = native.find_kernel(op, "f32", 0)
    assert kernel is not None
    with pytest.raises(RunError):
        native.run_kernel(kernel, arrays, attrs, outputs)
