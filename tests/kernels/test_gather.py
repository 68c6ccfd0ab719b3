"""Gather and scatter kernels against their numpy bodies."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

from intaglio import dtypes, native
from intaglio.errors import RunError

RNG = np.random.default_rng(7)
REDUCTIONS = ["none", "add", "mul", "max", "min"]
NUMERIC = [
    n for n in dtypes.TABLE if n not in ("i4", "u4", "i2", "u2") and n[:2] not in ("f8", "f4")
]


def values(shape: tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    """Small integers of any element type."""
    top = 2 if dtype == "bool" else 4 if dtype in ("u2", "f4e2m1fn") else 2 if dtype == "i2" else 7
    return RNG.integers(0, top, shape).astype(np.float32).astype(dtypes.numpy_of(dtype))


def indices(shape: tuple[int, ...], extent: int, dtype: type = np.int64) -> np.ndarray:
    if extent == 0:
        return np.zeros(shape, dtype)
    return RNG.integers(-extent, extent, shape).astype(dtype)


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_gather_moves_every_element_type(dtype: str) -> None:
    check("gather", values((3, 5, 2), dtype), indices((4,), 5), axis=1)
    check("gather_elements", values((3, 5), dtype), indices((3, 7), 5), axis=1)
    check("gather_nd", values((3, 5, 2), dtype), indices((4, 2), 3), batch_dims=0)
    check(
        "scatter_elements", values((3, 5), dtype), indices((2, 7), 5), values((2, 7), dtype), axis=1
    )
    check("scatter_nd", values((3, 5), dtype), indices((4, 1), 3), values((4, 5), dtype))


@pytest.mark.parametrize("shape", [(6,), (1, 4), (5, 3, 4), (2, 1, 3, 2), (3, 0, 2)])
@pytest.mark.parametrize("index_shape", [(), (3,), (2, 5), (0,), (2, 0)])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_gather(shape: tuple[int, ...], index_shape: tuple[int, ...], index_type: type) -> None:
    for axis in range(-len(shape), len(shape)):
        if shape[axis] or 0 in index_shape:
            check("gather", values(shape), indices(index_shape, shape[axis], index_type), axis=axis)


@pytest.mark.parametrize("shape", [(6,), (4, 1), (5, 3, 4), (2, 2, 3, 2)])
def test_gather_elements(shape: tuple[int, ...]) -> None:
    for axis in range(-len(shape), len(shape)):
        for n in (0, 1, 9):
            want = list(shape)
            want[0] -= shape[0] > 1 and axis % len(shape) != 0
            want[axis] = n
            check("gather_elements", values(shape), indices(tuple(want), shape[axis]), axis=axis)


@pytest.mark.parametrize(
    ("shape", "index_shape", "batch_dims"),
    [
        ((5,), (1,), 0),
        ((5,), (3, 1), 0),
        ((2, 3, 4), (3, 2, 2), 0),
        ((2, 3, 4), (2, 3), 0),
        ((2, 3, 4), (2, 1), 1),
        ((2, 3, 4), (2, 5, 2), 1),
        ((2, 3, 4), (2, 3, 1), 2),
        ((2, 3, 4), (2, 3, 6, 1), 2),
        ((2, 3, 4), (0, 2), 0),
        ((2, 0, 4), (3, 1), 0),
    ],
)
def test_gather_nd(shape: tuple[int, ...], index_shape: tuple[int, ...], batch_dims: int) -> None:
    smallest = min(list(shape[batch_dims : batch_dims + index_shape[-1]]) or [1])
    check("gather_nd", values(shape), indices(index_shape, smallest), batch_dims=batch_dims)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", NUMERIC)
def test_scatter_reductions(reduction: str, dtype: str) -> None:
    x = values((4, 6), dtype)
    for axis, shape in ((0, (5, 6)), (1, (3, 4)), (-1, (4, 0))):
        at = indices(shape, x.shape[axis], np.int32)
        check("scatter_elements", x, at, values(shape, dtype), axis=axis, reduction=reduction)
    check("scatter_nd", x, indices((5, 2), 4), values((5,), dtype), reduction=reduction)
    check("scatter_nd", x, indices((2, 3, 1), 4), values((2, 3, 6), dtype), reduction=reduction)
    check("scatter_nd", x, indices((0, 1), 4), values((0, 6), dtype), reduction=reduction)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_scatter_keeps_nan_and_unsigned_order(reduction: str) -> None:
    x = np.array([np.nan, 1, 2, 3], np.float32)
    updates = np.array([0, np.nan, 5, -5], np.float32)
    check("scatter_elements", x, np.arange(4), updates, axis=0, reduction=reduction)
    big = np.array([2**63 + 5, 1], np.uint64)
    check("scatter_elements", big, np.arange(2), big[::-1].copy(), axis=0, reduction=reduction)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, 2, -1, -2])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_tensor_scatter(mode: str, axis: int, length: int) -> None:
    past = values((3, 5, 4), "f16")
    shape = list(past.shape)
    shape[axis] = length
    update = values(tuple(shape), "f16")
    check("tensor_scatter", past, update, axis=axis, mode=mode)
    at = RNG.integers(0, past.shape[axis] - length + 1, 3) + (9 if mode == "circular" else 0)
    check("tensor_scatter", past, update, at, axis=axis, mode=mode)


def run(op: str, *arrays: np.ndarray, **attrs: object) -> list[np.ndarray]:
    kernel = native.find_kernel(op, "f32", 0)
    assert kernel is not None
    return native.run_kernel(kernel, arrays, attrs)


@pytest.mark.parametrize("bad", [5, -6, 2**62, -(2**63)])
def test_an_index_out_of_range_is_refused(bad: int) -> None:
    x, at = np.zeros((5, 5), np.float32), np.array([0, bad])
    for op, more, attrs in [
        ("gather", [at], {"axis": 0}),
        ("gather_elements", [at[None]], {"axis": 1}),
        ("gather_nd", [at[None]], {"batch_dims": 0}),
        ("scatter_elements", [at[None], x[:1, :2]], {"axis": 1, "reduction": "none"}),
        ("scatter_nd", [at[None], x[0, :1]], {"reduction": "none"}),
    ]:
        with pytest.raises(RunError, match="outside"):
            run(op, x, *more, **attrs)
    with pytest.raises(RunError, match="outside"):
        run("tensor_scatter", x, x[:, :1], np.array([0, bad, 0, 0, 0]), axis=1, mode="linear")


F, I = np.zeros((2, 3), np.float32), np.zeros((2, 2), np.int64)  # noqa: E741


@pytest.mark.parametrize(
    ("op", "arrays", "attrs"),
    [
        ("gather", [F, I], {"axis": 2}),
        ("gather", [F, F], {"axis": 0}),
        ("gather", [F[0, 0], I], {"axis": 0}),
        ("gather", [F], {"axis": 0}),
        ("gather", [np.zeros((1,) * 8, np.float32), I], {"axis": 0}),
        ("gather_elements", [F, I[0]], {"axis": 0}),
        ("gather_elements", [F, np.zeros((3, 2), np.int64)], {"axis": 1}),
        ("gather_nd", [F, np.zeros((2, 3), np.int64)], {"batch_dims": 0}),
        ("gather_nd", [F, I], {"batch_dims": 2}),
        ("gather_nd", [F, I], {"batch_dims": -1}),
        ("gather_nd", [F, np.zeros((3, 1), np.int64)], {"batch_dims": 1}),
        ("scatter_elements", [F, I, F], {"axis": 0, "reduction": "none"}),
        ("scatter_elements", [F, I, I], {"axis": 0, "reduction": "none"}),
        ("scatter_nd", [F, I, F], {"reduction": "none"}),
        ("scatter_nd", [F, np.zeros((1, 3), np.int64), F[0, :1]], {"reduction": "none"}),
        ("tensor_scatter", [F, F], {"axis": 0, "mode": "linear"}),
        ("tensor_scatter", [F, np.zeros((2, 4), np.float32)], {"axis": 1, "mode": "linear"}),
        ("tensor_scatter", [F, F, I], {"axis": 1, "mode": "linear"}),
    ],
)
def test_invalid_calls_are_refused(
    op: str, arrays: list[np.ndarray], attrs: dict[str, object]
) -> None:
    with pytest.raises(RunError):
        run(op, *arrays, **attrs)
