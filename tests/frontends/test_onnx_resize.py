"""ONNX Resize and sampling, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_oracle import agree

R = np.random.default_rng(6)
NONE = np.zeros(0, np.float32)
COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def same(op: str, arrays: list[Any], version: int, **attrs: Any) -> None:
    constant = attrs.pop("constant", tuple(range(1, len(arrays))))
    agree(op, arrays, domain="", version=version, constant=constant, **attrs)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("size", [(7, 5), (13, 21), (3, 9), (1, 1)])
def test_sizes(coordinates: str, size: tuple[int, int]) -> None:
    x, sizes = f(1, 2, 7, 10), np.array([1, 2, *size])
    how = {"coordinate_transformation_mode": coordinates}
    for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        same("Resize", [x, NONE, NONE, sizes], 11, mode="nearest", nearest_mode=rounding, **how)
    same("Resize", [x, NONE, NONE, sizes], 13, mode="linear", **how)
    same("Resize", [x, NONE, NONE, sizes], 13, mode="cubic", **how)
    same(
        "Resize",
        [x, NONE, NONE, sizes],
        13,
        mode="cubic",
        cubic_coeff_a=-0.5,
        exclude_outside=1,
        **how,
    )


@pytest.mark.parametrize("scales", [(2.0, 3.0), (0.5, 0.6), (1.0, 2.5)])
def test_scales(scales: tuple[float, float]) -> None:
    x, given = f(2, 3, 6, 10), np.array([1, 1, *scales], np.float32)
    same("Resize", [x, NONE, given], 13, mode="nearest")
    same("Resize", [x, NONE, given], 13, mode="linear")
    same("Resize", [x, NONE, given], 13, mode="cubic", coordinate_transformation_mode="asymmetric")
    same("Resize", [x, NONE, given[2:]], 18, mode="linear", axes=[2, 3])


def test_ancestors() -> None:
    x, scales = f(1, 2, 4, 6), np.array([1, 1, 2, 3], np.float32)
    same("Upsample", [x], 7, scales=[1.0, 1.0, 2.0, 3.0])
    same("Upsample", [x, scales], 9, mode="nearest")
    same("Upsample", [x, scales], 9, mode="linear")
    same("Resize", [x, scales], 10, mode="linear")
    same("Resize", [x, np.array([1, 1, 0.5, 0.5], np.float32)], 10)


def test_crop_and_resize() -> None:
    x, roi = f(1, 1, 6, 8), np.array([0, 0, 0.2, -0.3, 1, 1, 0.8, 1.2], np.float32)
    how = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    sizes = np.array([1, 1, 5, 7])
    same("Resize", [x, roi, NONE, sizes], 13, mode="linear", **how)
    same("Resize", [x, roi, NONE, sizes], 13, mode="nearest", **how)


def test_nearest_of_integers() -> None:
    x, scales = R.integers(-128, 128, (1, 1, 3, 4)).astype(np.int8), np.array([1, 1, 2, 2.0])
    same("Resize", [x, NONE, scales.astype(np.float32)], 13, mode="nearest")


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_grid_sample(align_corners: int, padding_mode: str) -> None:
    how = {"align_corners": align_corners, "padding_mode": padding_mode}
    x, grid = f(2, 3, 5, 6), R.uniform(-1.4, 1.4, (2, 4, 7, 2)).astype(np.float32)
    for mode in ("bilinear", "nearest", "bicubic"):
        if (mode, padding_mode) != ("bicubic", "border"):  # the standard clamps first
            same("GridSample", [x, grid], 16, mode=mode, constant=(), **how)
    volume, places = f(1, 2, 3, 4, 5), R.uniform(-1.4, 1.4, (1, 2, 3, 4, 3)).astype(np.float32)
    same("GridSample", [volume, places], 20, mode="linear", constant=(), **how)
    same("GridSample", [volume, places], 20, mode="nearest", constant=(), **how)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 1, 2, 3, 4)])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_affine_grid(size: tuple[int, ...], align_corners: int) -> None:
    n = len(size) - 2
    theta = f(size[0], n, n + 1)
    same("AffineGrid", [theta, np.array(size)], 20, align_corners=align_corners)
