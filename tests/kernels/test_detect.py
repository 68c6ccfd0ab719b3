"""Detection and sampling kernels against their numpy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

from intaglio import dtypes, native
from intaglio.errors import RunError

RNG = np.random.default_rng(11)
FLOATS = ["f32", "f64", "f16", "bf16"]
LOOSE = {
    "f32": 1e-4,
    "f64": 1e-5,
    "f16": 1e-2,
    "bf16": 6e-2,
}  # coordinates are f32 for every element type


def floats(*shape: int, dtype: str = "f32") -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32).astype(dtypes.numpy_of(dtype))


# ---- boxes ---------------------------------------------------------------------------------------
def corners(batches: int, count: int, dtype: str = "f32") -> np.ndarray:
    at, size = RNG.uniform(0, 8, (batches, count, 2)), RNG.uniform(0, 3, (batches, count, 2))
    boxes = np.concatenate([at, at + size], 2)
    boxes[:, ::3] = boxes[:, ::3, [2, 3, 0, 1]]  # corners in either order
    return boxes.astype(dtypes.numpy_of(dtype))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    ("batches", "classes", "count"), [(1, 1, 1), (2, 3, 40), (1, 2, 0), (0, 1, 3)]
)
def test_non_max_suppression(center: bool, batches: int, classes: int, count: int) -> None:
    for dtype in ("f32", "f16"):
        scores = RNG.integers(0, 9, (batches, classes, count)).astype(dtypes.numpy_of(dtype))
        for most in (0, 1, 5, 1000):
            for iou, least in ((0.0, -np.inf), (0.3, 2.0), (1.0, 3.5)):
                check(
                    "non_max_suppression",
                    corners(batches, count, dtype),
                    scores,
                    max_output=most,
                    iou_threshold=iou,
                    score_threshold=least,
                    center_point_box=center,
                )


def test_non_max_suppression_ignores_scores_that_are_not_numbers() -> None:
    scores = np.array([[[np.nan, 1, np.inf, -np.inf, 1, 0]]], np.float32)
    check("non_max_suppression", corners(1, 6), scores, max_output=6, iou_threshold=0.5)


# ---- regions -------------------------------------------------------------------------------------
def regions(count: int, size: float, dtype: str) -> np.ndarray:
    at = RNG.uniform(-2, size, (count, 2))
    return np.concatenate([at, at + RNG.uniform(0.1, size, (count, 2))], 1).astype(
        dtypes.numpy_of(dtype)
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
def test_roi_align(dtype: str, mode: str, transform: str) -> None:
    x = floats(2, 3, 9, 11, dtype=dtype)
    for count in (0, 1, 6):
        rois = regions(count, 10, dtype)
        batch = RNG.integers(0, 2, count)
        for ratio in (0, 1, 3):
            check(
                "roi_align",
                x,
                rois,
                batch,
                mode=mode,
                output_height=3,
                output_width=2,
                sampling_ratio=ratio,
                spatial_scale=0.7,
                coordinate_transformation_mode=transform,
                tolerance=LOOSE[dtype],
            )


@pytest.mark.parametrize("dtype", FLOATS)
def test_max_roi_pool(dtype: str) -> None:
    x = floats(2, 3, 9, 11, dtype=dtype)
    for count in (0, 1, 8):
        rois = regions(count, 10, dtype)
        batch = RNG.integers(0, 2, (count, 1)).astype(rois.dtype)
        for shape in ((1, 1), (2, 3), (4, 4)):
            check(
                "max_roi_pool",
                x,
                np.concatenate([batch, rois], 1),
                pooled_shape=shape,
                spatial_scale=0.6,
            )


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i8", "i64"])
def test_max_unpool(dtype: str) -> None:
    x = (floats(1, 2, 3, 3) * 9).astype(dtypes.numpy_of(dtype))
    check("max_unpool", x, RNG.permutation(72)[:18].reshape(x.shape), shape=(1, 2, 6, 6))
    check("max_unpool", x, np.zeros(x.shape, np.int64), shape=(1, 1, 1, 1))
    check("max_unpool", x[:0], np.zeros((0, 2, 3, 3), np.int64), shape=(0, 2, 6, 6))


# ---- sampling ------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_sample(mode: str, padding_mode: str, align_corners: bool) -> None:
    where: dict[str, Any] = {
        "mode": mode,
        "padding_mode": padding_mode,
        "align_corners": align_corners,
    }
    for extents in ((5, 7), (1, 1), (3, 4, 5), (1, 2, 3)):
        n = len(extents)
        for dtype in FLOATS:
            grid = (RNG.uniform(-1.8, 1.8, (2, *(4, 3, 2)[:n], n))).astype(dtypes.numpy_of(dtype))
            check(
                "grid_sample",
                floats(2, 3, *extents, dtype=dtype),
                grid,
                tolerance=LOOSE[dtype],
                **where,
            )
    ties = np.stack(np.meshgrid(np.linspace(-1.5, 1.5, 13), np.linspace(-1.5, 1.5, 13)), -1)
    check("grid_sample", floats(1, 1, 4, 4), ties[None].astype(np.float32), tolerance=1e-4, **where)
    check("grid_sample", floats(1, 1, 4, 4), np.zeros((1, 0, 5, 2), np.float32), **where)


def test_grid_sample_moves_any_element_type_when_nearest() -> None:
    grid = RNG.uniform(-1.2, 1.2, (1, 6, 6, 2)).astype(np.float32)
    for dtype in ("i8", "i64", "bool", "u16"):
        x = RNG.integers(0, 2, (1, 2, 4, 5)).astype(dtypes.numpy_of(dtype))
        check("grid_sample", x, grid, mode="nearest")


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_grid_sample_survives_coordinates_that_are_not_numbers(padding_mode: str) -> None:
    grid = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0], np.float32)
    grid = np.stack(np.meshgrid(grid, grid), -1)[None]
    for mode in ("nearest", "linear", "cubic"):
        attrs = {"mode": mode, "padding_mode": padding_mode, "align_corners": False}
        for kernel in native.kernels():
            if kernel.op.name == "grid_sample":
                (y,) = native.run_kernel(kernel, [floats(1, 1, 3, 3), grid], attrs)
                assert y.shape == (1, 1, 6, 6)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32"])
@pytest.mark.parametrize(
    ("image", "block", "stride", "pad", "dilation"),
    [
        ((5,), (2,), (1,), (0, 0), (1,)),
        ((5, 5), (1, 5), (1, 1), (0, 0, 0, 0), (1, 1)),
        ((6, 7), (2, 3), (2, 1), (1, 0, 0, 2), (1, 2)),
        ((3, 4, 5), (2, 2, 2), (1, 2, 1), (0, 0, 0, 0, 1, 1), (1, 1, 2)),
    ],
)
def test_col2im(dtype: str, image: Any, block: Any, stride: Any, pad: Any, dilation: Any) -> None:
    n = len(image)
    counts = [
        (image[i] + pad[i] + pad[n + i] - dilation[i] * (block[i] - 1) - 1) // stride[i] + 1
        for i in range(n)
    ]
    for batch in (0, 2):
        x = (floats(batch, 3 * np.prod(block), np.prod(counts)) * 5).astype(dtypes.numpy_of(dtype))
        check("col2im", x, image=image, block=block, stride=stride, pad=pad, dilation=dilation)


# ---- deformable convolution, determinants --------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("xs", "ws", "stride", "pad", "dilation", "groups", "offset_groups"),
    [
        ((1, 1, 3, 3), (1, 1, 2, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1, 1),
        ((2, 4, 7, 6), (6, 2, 3, 3), (2, 1), (1, 1, 0, 2), (1, 2), 2, 2),
        ((2, 4, 9, 9), (5, 4, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 4),
        ((0, 4, 5, 5), (2, 4, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 1),
    ],
)
def test_deform_conv(
    dtype: str,
    xs: Any,
    ws: Any,
    stride: Any,
    pad: Any,
    dilation: Any,
    groups: int,
    offset_groups: int,
) -> None:
    counts = tuple(
        (xs[2 + i] + pad[i] + pad[2 + i] - dilation[i] * (ws[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    )
    points = offset_groups * ws[2] * ws[3]
    x, w, b = floats(*xs, dtype=dtype), floats(*ws, dtype=dtype), floats(ws[0], dtype=dtype)
    offset = floats(xs[0], 2 * points, *counts, dtype=dtype)
    mask = floats(xs[0], points, *counts, dtype=dtype)
    where: dict[str, Any] = {
        "stride": stride,
        "pad": pad,
        "dilation": dilation,
        "groups": groups,
        "offset_groups": offset_groups,
        "tolerance": LOOSE[dtype],
    }
    check("deform_conv", x, w, offset, **where)
    check("deform_conv", x, w, offset, b, mask, **where)
    check("deform_conv", x, w, offset, None, mask, **where)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    "shape", [(0, 0), (1, 1), (2, 2), (3, 5, 5), (2, 2, 4, 4), (0, 3, 3), (7, 7)]
)
def test_det(dtype: str, shape: tuple[int, ...]) -> None:
    check("det", floats(*shape, dtype=dtype), tolerance=1e-4 if dtype == "f32" else 1e-11)
    check("det", np.ones(shape, dtypes.numpy_of(dtype)))


# ---- refusals ------------------------------------------------------------------------------------
X, R4, B1 = np.zeros((1, 2, 4, 4), np.float32), np.zeros((1, 4), np.float32), np.zeros(1, np.int64)
NMS = {"max_output": 3, "iou_threshold": 0.5, "score_threshold": 0.0, "center_point_box": False}
ALIGN = {
    "mode": "avg",
    "output_height": 1,
    "output_width": 1,
    "sampling_ratio": 0,
    "spatial_scale": 1.0,
    "coordinate_transformation_mode": "half_pixel",
}
POOL = {"pooled_shape": (1, 1), "spatial_scale": 1.0}
GRID = {"mode": "linear", "padding_mode": "zeros", "align_corners": False}
COLS = {"image": (5,), "block": (2,), "stride": (1,), "pad": (0, 0), "dilation": (1,)}
DEFORM = {
    "stride": (1, 1),
    "pad": (0, 0, 0, 0),
    "dilation": (1, 1),
    "groups": 1,
    "offset_groups": 1,
}
HUGE = np.array([[0, 0, 1e30, 1e30]], np.float32)
BOXES, SCORES = np.zeros((1, 3, 4), np.float32), np.zeros((1, 2, 3), np.float32)
G = np.zeros((1, 2, 2, 2), np.float32)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs"),
    [
        ("non_max_suppression", [BOXES, SCORES[:, :, :2]], NMS),
        ("non_max_suppression", [BOXES[:, :, :3], SCORES], NMS),
        ("non_max_suppression", [BOXES, SCORES], {**NMS, "max_output": -1}),
        ("non_max_suppression", [BOXES, SCORES], {**NMS, "iou_threshold": 1.5}),
        ("non_max_suppression", [BOXES, SCORES], {**NMS, "iou_threshold": float("nan")}),
        ("roi_align", [X, R4, np.array([1])], ALIGN),
        ("roi_align", [X, R4, np.array([-1])], ALIGN),
        ("roi_align", [X, R4, B1], {**ALIGN, "output_height": 0}),
        ("roi_align", [X, R4, B1], {**ALIGN, "sampling_ratio": 2**40}),
        ("roi_align", [X, HUGE, B1], ALIGN),
        ("roi_align", [X[:, :, :0], R4, B1], ALIGN),
        ("max_roi_pool", [X, np.full((1, 5), np.nan, np.float32)], POOL),
        ("max_roi_pool", [X, np.full((1, 5), 7, np.float32)], POOL),
        ("max_roi_pool", [X, np.concatenate([np.zeros((1, 1), np.float32), HUGE], 1)], POOL),
        ("max_roi_pool", [X, R4], POOL),
        ("max_roi_pool", [X, np.zeros((1, 5), np.float32)], {**POOL, "pooled_shape": (0, 1)}),
        ("max_unpool", [R4, np.full((1, 4), 8)], {"shape": (2, 4)}),
        ("max_unpool", [R4, np.full((1, 4), -1)], {"shape": (2, 4)}),
        ("max_unpool", [R4, np.zeros((1, 4), np.int64)], {"shape": (8,)}),
        ("max_unpool", [R4, np.zeros((1, 4), np.int64)], {"shape": (-2, -4)}),
        ("grid_sample", [X, G[..., :1]], GRID),
        ("grid_sample", [X[:, :, :0], G], GRID),
        ("grid_sample", [X.astype(np.int32), G], GRID),
        ("grid_sample", [X[..., 0], G], GRID),
        ("col2im", [np.zeros((1, 3, 4), np.float32)], COLS),
        ("col2im", [np.zeros((1, 2, 5), np.float32)], COLS),
        ("col2im", [np.zeros((1, 2, 4), np.float32)], {**COLS, "image": (-5,)}),
        ("col2im", [np.zeros((1, 2, 4), np.float32)], {**COLS, "stride": (0,)}),
        ("deform_conv", [X, X, np.zeros((1, 32, 1, 2), np.float32)], DEFORM),
        (
            "deform_conv",
            [X, X, np.zeros((1, 32, 1, 1), np.float32)],
            {**DEFORM, "offset_groups": 3},
        ),
        ("deform_conv", [X, X, np.zeros((1, 32, 1, 1), np.float32)], {**DEFORM, "groups": 0}),
        ("det", [G[0, 0, :1]], {}),
        ("det", [G[0, 0, 0]], {}),
    ],
)
def test_invalid_calls_are_refused(
    op: str, arrays: list[np.ndarray], attrs: dict[str, Any]
) -> None:
    kernel = native.find_kernel(op, "f32", 0)
    assert kernel is not None
    with pytest.raises(RunError):
        native.run_kernel(kernel, arrays, attrs)
