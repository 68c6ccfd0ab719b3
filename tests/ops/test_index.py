from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.ops.body import run

from intaglio.errors import BadInput, RunError
from intaglio.ir import Type, Value
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(1)
BF16 = ml_dtypes.bfloat16


def test_gather() -> None:
    x, at = R.normal(size=(3, 4, 5)).astype(BF16), np.array([[0, -1], [2, 1]], np.int32)
    assert np.array_equal(run("gather", x, at, axis=1), x[:, at])
    assert run("gather", x, np.zeros((0,), np.int64), axis=-1).shape == (3, 4, 0)
    y = run("gather_elements", x, np.array([[[1, 0]]]), axis=0)
    assert np.array_equal(y, x[[[[1, 0]]], 0, [0, 1]])
    assert np.array_equal(run("gather_nd", x, at), x[[0, 2], [-1, 1]])
    assert np.array_equal(
        run("gather_nd", x, np.array([[1], [2], [0]]), batch_dims=1), x[[0, 1, 2], [1, 2, 0]]
    )


@pytest.mark.parametrize("op", ["gather", "gather_elements"])
@pytest.mark.parametrize("index", [3, -4])
def test_index_outside(op: str, index: int) -> None:
    with pytest.raises(RunError, match=rf"index {index} is outside of \[-3, 2\]"):
        run(op, np.zeros((3, 2)), np.array([[index]]), axis=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, np.int64, np.uint8])
def test_scatter(dtype: Any) -> None:
    x, at, new = np.ones((2, 3), dtype), np.array([[1, 1, 1]]), np.array([[2, 3, 4]], dtype)
    got = {
        r: run("scatter_elements", x, at, new, axis=1, reduction=r)[0].tolist()
        for r in ("none", "add", "mul", "max", "min")
    }
    assert got == {
        "none": [1, 4, 1],
        "add": [1, 10, 1],
        "mul": [1, 24, 1],
        "max": [1, 4, 1],
        "min": [1, 1, 1],
    }
    y = run("scatter_nd", x, np.array([[1, -1], [0, 0]]), new[0, :2])
    assert y.tolist() == [[3, 1, 1], [1, 1, 2]]
    assert x.tolist() == [[1, 1, 1]] * 2  # operands are not changed


def test_tensor_scatter() -> None:
    past, new = np.zeros((2, 3, 1)), np.array([[[1], [2]], [[3], [4]]], np.float64)
    y = run("tensor_scatter", past, new, np.array([1, 2]), axis=1, mode="circular")
    assert y[..., 0].tolist() == [[0, 1, 2], [4, 0, 3]]
    with pytest.raises(RunError, match=r"writing 2 elements at 2 exceeds the cache \[0, 3\)"):
        run("tensor_scatter", past, new, np.array([1, 2]), axis=1)


def test_one_hot() -> None:
    values = np.array([0, 5], np.int8)
    assert run("one_hot", np.array([1, -1, 9]), values, depth=3).tolist() == [
        [0, 5, 0],
        [0, 0, 5],
        [0, 0, 0],
    ]
    assert run("one_hot", np.array([[1.0, 0.0]]), values, depth=3, axis=0).shape == (3, 1, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.uint64, BF16])
def test_topk_takes_the_first_of_equals(dtype: Any) -> None:
    x = np.array([[3, 1, 3, 2, 1]], dtype)
    values, at = run("topk", x, k=3)
    assert (values[0].tolist(), at[0].tolist()) == ([3, 3, 2], [0, 2, 3])
    values, at = run("topk", x, k=3, largest=False)
    assert (values[0].tolist(), at[0].tolist()) == ([1, 1, 2], [1, 4, 3])
    assert run("argmax", x, axis=1, select_last_index=True).tolist() == [[2]]
    assert run("argmin", x, axis=1, keepdims=False).tolist() == [1]


def test_cumulative() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    assert run("cumsum", x, axis=1).tolist() == [[1, 3, 6], [4, 9, 15]]
    both = {"exclusive": True, "reverse": True}
    assert run("cumsum", x, axis=0, **both).tolist() == [[4, 5, 6], [0, 0, 0]]
    assert run("cumprod", x, axis=-1, **both).tolist() == [[6, 3, 1], [30, 6, 1]]


def test_rows() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert np.array_equal(run("trilu", x, k=-1, upper=False), np.tril(x, -1))
    y = run("reverse_sequence", x, np.array([1, 2, 4]))
    assert y.T.tolist() == [[0, 3, 6, 9], [4, 1, 7, 10], [11, 8, 5, 2]]
    with pytest.raises(RunError, match="length 5"):
        run("reverse_sequence", x, np.array([1, 2, 5]))


def test_extents_from_data() -> None:
    x = np.array([[0, 7], [5, 0]], BF16)
    assert run("nonzero", x).tolist() == [[0, 1], [1, 0]]
    assert run("nonzero", np.float32(2)).shape == (0, 1)
    assert run("compress", x, np.array([False, True]), axis=1).tolist() == [[7], [0]]
    y, first, inverse, counts = run("unique", np.array([3, 1, 3, 2]), axis=0, sorted=False)
    assert [v.tolist() for v in (y, first, inverse, counts)] == [
        [3, 1, 2],
        [0, 1, 3],
        [0, 1, 0, 2],
        [2, 1, 1],
    ]
    v = Value(Type("f32", (6, 2), dynamic=(0,)))
    types = [str(t.type) for t in REGISTRY["unique"].node(v, axis=1).outputs]
    assert types == ["f32[<=6x<=2]", "i64[<=2]", "i64[2]", "i64[<=2]"]


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("gather_nd", [(2, 3), (1, 3)], {}),
        ("scatter_nd", [(2, 3), (1, 1), (1, 2)], {}),
        ("scatter_elements", [(2, 3), (3, 1), (3, 1)], {"axis": 1}),
        ("topk", [(2, 3)], {"k": 4}),
        ("argmax", [(2, 0)], {"axis": 1}),
        ("trilu", [(3,)], {}),
    ],
)
def test_refusals(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]) -> None:
    dtypes = ["f32", "i64", "f32"]
    values = [Value(Type(d, s)) for d, s in zip(dtypes, shapes, strict=False)]
    with pytest.raises(BadInput):
        REGISTRY[op].node(*values, **attrs)
