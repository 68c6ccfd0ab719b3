from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.body import FLOATS, close, run

from intaglio.errors import BadInput, RunError

R = np.random.default_rng(4)


def f(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return R.standard_normal(shape).astype(dtype)


def test_interpolate() -> None:
    x, at = f(2, 4, 3), np.array([[0, 1], [3, 3]], np.int32)
    weight = np.array([[0.25, 0.75], [2, -1]], np.float32)
    y = run("interpolate", x, at, weight, axis=1)
    close(y, np.stack([x[:, 0] / 4 + x[:, 1] * 0.75, x[:, 3]], 1))
    one = np.ones((2, 1), np.float32)
    assert run("interpolate", np.array([5, 6, 7]), at[:, :1] % 3, one, axis=0).tolist() == [5, 5]
    with pytest.raises(BadInput, match="floats are needed"):
        run("interpolate", np.arange(4), at, weight, axis=0)
    with pytest.raises(RunError, match="outside of"):
        run("interpolate", np.arange(3), at[:, :1], one, axis=0)


@pytest.mark.parametrize("dtype", [*FLOATS, np.uint8, np.int32])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_every_type_lowers(mode: str, dtype: Any) -> None:
    """`run` compares with the lowering; a constant image stays constant in every mode."""
    for antialias in (False, mode != "nearest"):
        how = {"axes": (2, 3), "shape": (3, 9), "scales": (0.6, 1.8), "antialias": antialias}
        x = (R.uniform(0, 90, (1, 2, 5, 5))).astype(dtype)
        run("resize", x, mode=mode, tolerance=FLOATS.get(dtype, 1), **how)
        flat = run("resize", np.full_like(x, 7), mode=mode, tolerance=0.1, **how)
        close(flat, np.full(flat.shape, 7), 1e-2)


def test_linear_by_hand() -> None:
    x = np.array([0, 10], np.float32)
    grow = {"axes": (0,), "shape": (4,), "scales": (2.0,), "mode": "linear"}
    assert run("resize", x, **grow).tolist() == [0, 2.5, 7.5, 10]
    corners = run("resize", x, **grow, coordinate_transformation_mode="align_corners")
    close(corners, [0, 10 / 3, 20 / 3, 10])
    assert run("resize", x, **grow, coordinate_transformation_mode="asymmetric").tolist() == [
        0,
        5,
        10,
        10,
    ]


def test_nearest_rounding() -> None:
    x = np.arange(4)
    how = {
        "axes": (0,),
        "shape": (8,),
        "scales": (2.0,),
        "coordinate_transformation_mode": "asymmetric",
    }
    got = {
        m: run("resize", x, nearest_mode=m, **how).tolist()
        for m in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    }
    assert got["floor"] == got["round_prefer_floor"] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert got["ceil"] == got["round_prefer_ceil"] == [0, 1, 1, 2, 2, 3, 3, 3]


def test_crop() -> None:
    how = {"axes": (0,), "shape": (3,), "scales": (1.0,), "mode": "linear", "roi": (-0.5, 0.5)}
    more = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    assert run("resize", np.arange(3, dtype=np.float32), **how, **more).tolist() == [9, 0, 1]


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"mode": "area"}, "mode is 'area'"),
        ({"antialias": True}, "has no antialias"),
        ({"scales": (0.0,)}, "cannot be resized to 4 by 0.0"),
        ({"shape": (4, 4)}, "differ"),
    ],
)
def test_refusals(attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as e:
        run("resize", np.zeros(2), **{"axes": (0,), "shape": (4,), "scales": (2.0,), **attrs})
    assert words in str(e.value)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("shape", [(1, 2, 4, 5), (2, 1, 3, 4, 5)])
def test_identity_grid(mode: str, shape: tuple[int, ...]) -> None:
    n = len(shape) - 2
    theta = np.tile(np.eye(n, n + 1, dtype=np.float32), (shape[0], 1, 1))
    x = f(*shape)
    for corners in (False, True):
        grid = run("affine_grid", theta, size=shape, align_corners=corners)
        close(run("grid_sample", x, grid, mode=mode, align_corners=corners), x, 1e-4)


def test_grid_padding() -> None:
    x = np.array([[[[1, 2, 3]]]], np.float32)
    grid = np.array([[[[1.75, 0]]]], np.float32)  # pixel 2.75 of 0..2 with aligned corners
    got = {
        p: run("grid_sample", x, grid, padding_mode=p, align_corners=True).item()
        for p in ("zeros", "border", "reflection")
    }
    assert got == {"zeros": 0.75, "border": 3.0, "reflection": 2.25}
