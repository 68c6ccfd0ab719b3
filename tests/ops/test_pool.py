from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.ops.body import close, run

from intaglio.errors import RunError

R = np.random.default_rng(3)
HOW: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 1), "pad": (1, 0, 0, 1), "dilation": (1, 1)}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8])
def test_max_pool(dtype: Any) -> None:
    x = np.array([[[[1, 5, 2], [4, 3, 9], [7, 8, 6]]]]).astype(dtype)
    y, at = run("max_pool", x, **HOW, with_indices=True)
    assert y.dtype == x.dtype
    assert y[0, 0].tolist() == [[5, 5, 2], [8, 9, 9]]
    assert at[0, 0].tolist() == [[1, 1, 2], [7, 5, 5]]
    columns = run("max_pool", x, **HOW, with_indices=True, storage_order=1)[1]
    assert columns[0, 0].tolist() == [[3, 3, 6], [5, 7, 7]]


def test_indices_count_through_batch_and_channels() -> None:
    x = np.stack([np.zeros((2, 2)), np.ones((2, 2))])[None]
    how = {"kernel": (2, 2), "stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
    y, at = run("max_pool", x, **how, with_indices=True)
    assert at.reshape(-1).tolist() == [0, 4]
    back = run("max_unpool", y, at, shape=(1, 2, 2, 2))
    assert back.reshape(-1).tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    with pytest.raises(RunError, match="index 4 is outside"):
        run("max_unpool", y, at, shape=(1, 1, 2, 2))


def test_padding_never_wins() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    how = {"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    y, at = run("max_pool", x, **how, with_indices=True)
    assert (y == -np.inf).all()
    assert (at >= 0).all()


def test_average() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    assert run("avg_pool", x, **HOW)[0, 0].tolist() == [[0.5, 1.5, 2], [5, 6, 6.5]]
    counted = run("avg_pool", x, **HOW, count_include_pad=True)
    assert counted[0, 0].tolist() == [[0.25, 0.75, 0.5], [5, 6, 3.25]]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp(p: int) -> None:
    x = R.standard_normal((1, 1, 2, 2))
    how = {"kernel": (2, 2), "stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
    close(run("lp_pool", x, **how, p=p).item(), (np.abs(x) ** p).sum() ** (1 / p))
