from __future__ import annotations

import numpy as np
import pytest
from tests.ops.body import FLOATS, close, run

from intaglio.errors import BadInput
from intaglio.ir import Type, Value
from intaglio.ops import reduce_sum

R = np.random.default_rng(1)
COMPOSITES = ["l1", "l2", "log_sum", "log_sum_exp", "sum_square"]


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", *COMPOSITES])
@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_types_and_lowerings(name: str, axes: tuple[int, ...], keepdims: bool) -> None:
    x = R.random((2, 3, 4)) * 3 + 0.5
    for dtype, tolerance in FLOATS.items():
        run(f"reduce_{name}", x.astype(dtype), axes=axes, keepdims=keepdims, tolerance=tolerance)
    for kind in (np.int32, np.int64, np.uint8):
        run(f"reduce_{name}", (x + 1).astype(kind), axes=axes, keepdims=keepdims)


def test_values() -> None:
    x = np.float32([[3, -4], [0, 1]])
    assert run("reduce_l2", x, axes=(1,), keepdims=False).tolist() == [5, 1]
    assert run("reduce_l1", x, axes=(0, 1)).tolist() == [[8]]
    close(run("reduce_log_sum_exp", x, axes=(0, 1)), np.log(np.exp(x).sum()))
    assert run("reduce_max", np.array([[True, False], [False, False]]), axes=(1,)).tolist() == [
        [True],
        [False],
    ]


def test_integer_mean_truncates() -> None:
    assert run("reduce_mean", np.int32([[-7, 0], [7, 0]]), axes=(1,)).tolist() == [[-3], [3]]
    assert run("reduce_mean", np.full(4, 250, np.uint8), axes=(0,)).tolist() == [250]


def test_over_nothing() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert run("reduce_sum", empty, axes=(1,)).tolist() == [[0], [0]]
    assert run("reduce_prod", empty, axes=(1,)).tolist() == [[1], [1]]
    assert run("reduce_max", empty, axes=(1,)).tolist() == [[-np.inf], [-np.inf]]
    assert run("reduce_min", empty.astype(np.int8), axes=(1,)).tolist() == [[127], [127]]
    assert run("reduce_log_sum_exp", empty, axes=(1,)).tolist() == [[-np.inf], [-np.inf]]


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.float32([[1000, 1000], [-np.inf, -np.inf], [np.inf, 0]])
    got = run("reduce_log_sum_exp", x, axes=(1,), keepdims=False)
    close(got, [1000 + np.log(2), -np.inf, np.inf])


@pytest.mark.parametrize("axes", [(), (1, 0), (0, 0), (2,), (-1,)])
def test_bad_axes(axes: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="axes"):
        reduce_sum(Value(Type("f32", (2, 3))), axes=axes)
