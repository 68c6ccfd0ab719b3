"""Interpolation along one axis, by table."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import RunError

rng = np.random.default_rng(5)


def tables(extent: int, places: int, taps: int) -> tuple[np.ndarray, np.ndarray]:
    index = rng.integers(0, extent, (places, taps)).astype(np.int32)
    return index, rng.uniform(0, 1, (places, taps)).astype(np.float32)


SHAPES = [((3, 5, 7), 1), ((2, 4, 33), -2), ((6, 9), 1), ((9,), 0), ((2, 3, 4, 64), 1), ((0, 4), 1)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("taps", [1, 2, 4, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_floats(shape: tuple[int, ...], axis: int, taps: int, dtype: Any) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    for places in (1, 5, 70, 0):
        index, weight = tables(shape[axis], places, taps)
        check("interpolate", x, index, weight if taps > 1 else np.ones_like(weight), axis=axis)


@pytest.mark.parametrize("extent", [3, 8, 16, 17, 40])
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.7, 8.0])
@pytest.mark.parametrize("taps", [2, 4, 6])
def test_neighbours_along_the_last_axis(extent: int, scale: float, taps: int) -> None:
    """Enlarged images: one vector of inputs holds the taps of many neighbouring outputs."""
    places = int(extent * scale)
    centres = np.floor((np.arange(places) + 0.5) / scale - 0.5).astype(np.int64)
    index = centres[:, None] + np.arange(taps) - (taps - 1) // 2
    weight = rng.uniform(0, 1, (places, taps)).astype(np.float32)
    for rows in (1, 5, 70):
        x = rng.standard_normal((rows, extent)).astype(np.float32)
        check("interpolate", x, np.clip(index, 0, extent - 1).astype(np.int32), weight, axis=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.int16, np.bool_])
def test_nearest_of_anything(dtype: Any) -> None:
    x = rng.integers(0, 2, (3, 4, 5)).astype(dtype)
    index, weight = tables(4, 9, 1)
    check("interpolate", x, index, np.ones_like(weight), axis=1)


@pytest.mark.parametrize("bad", [-1, 4, 1 << 30])
def test_indices_are_checked(bad: int) -> None:
    index, weight = tables(4, 3, 2)
    index[1, 1] = bad
    for kernel in (k for k in native.kernels() if k.op.name == "interpolate"):
        if not kernel.needs & ~native.machine():
            with pytest.raises(RunError, match="outside"):
                native.run_kernel(
                    kernel, [np.zeros((2, 4), np.float32), index, weight], {"axis": 1}
                )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "where",
    [
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
    ],
)
def test_tables_at_run_time(mode: str, where: str) -> None:
    """`resize_table` gives the tables that a resize of known extents folds, to the bit."""
    ways = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    for extent, out in ((1, 1), (1, 5), (4, 8), (5, 3), (7, 16), (16, 1), (3, 0)):
        x = np.zeros((2, extent, 3), np.float32)
        for scale in (0.0, 2.0, 0.7):
            for way in ways if mode == "nearest" else ways[:1]:
                check(
                    "resize_table",
                    x,
                    axis=1,
                    extent=out,
                    scale=scale,
                    mode=mode,
                    coordinate_transformation_mode=where,
                    nearest_mode=way,
                    exclude_outside=mode == "cubic" and out > 4,
                    tolerance=1e-6,
                )
