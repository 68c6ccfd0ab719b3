"""AI2D of the K230's runtime: in Python by both of its names, and the same in C++."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from tests.compat.test_rknn_c import FLAGS, SOURCES, run

import intaglio.compat.nncase_runtime as nn
from intaglio.compat import nncaseruntime
from intaglio.compat.nncase.ai2d_pixels import rgb_to_yuv
from intaglio.compat.nncase.refusals import NncaseError

U8 = np.uint8
PICTURE = cv2.resize(
    np.random.default_rng(1).integers(0, 256, (6, 8, 3)).astype(U8), (32, 24)
).transpose(2, 0, 1)[None]
MATRIX = [1.2, 0.3, 2.0, -0.2, 1.1, 3.0]


def unit(**settings: tuple[Any, ...]) -> nn.ai2d:
    """An AI2D with settings by the names of its methods: pad=(True, ...)."""
    found = nn.ai2d()
    found.set_dtype(nn.ai2d_format.NCHW_FMT, nn.ai2d_format.NCHW_FMT, U8, U8)
    for name, values in settings.items():
        getattr(found, f"set_{name}")(*values)
    return found


def made(found: nn.ai2d, picture: np.ndarray, shape: list[int], dtype: Any = U8) -> np.ndarray:
    out = nn.from_numpy(np.ones(shape, dtype))
    found.build(list(picture.shape), shape).run(nn.from_numpy(picture), out)
    return out.to_numpy()


def letterbox(found: Any) -> None:
    found.set_resize_param(True, nn.interp_method.tf_bilinear, nn.interp_mode.half_pixel)
    found.set_pad_param(True, [0, 0, 0, 0, 5, 5, 0, 0], 0, [114, 100, 90])


def test_a_letterbox_is_opencvs():
    found = unit()
    letterbox(found)
    y = made(found, PICTURE, [1, 3, 40, 40])
    hwc = np.ascontiguousarray(PICTURE[0].transpose(1, 2, 0))
    wanted = cv2.resize(hwc, (40, 30), interpolation=cv2.INTER_LINEAR).transpose(2, 0, 1)
    assert np.abs(y[0, :, 5:35].astype(int) - wanted).max() <= 1
    assert [int(y[0, c, 0, 0]) for c in range(3)] == [114, 100, 90]
    assert (y[0, :, 35:] == y[0, :, :1, :1]).all()


def test_an_affine_map_is_opencvs():
    y = made(
        unit(affine_param=(True, nn.interp_method.cv2_bilinear, 0, 0, 127, 1, MATRIX)),
        PICTURE,
        [1, 3, 40, 40],
    )
    hwc = np.ascontiguousarray(PICTURE[0].transpose(1, 2, 0))
    matrix = np.float64(MATRIX).reshape(2, 3)
    wanted = cv2.warpAffine(hwc, matrix, (40, 40), borderValue=(127, 127, 127))
    gap = np.abs(y[0].astype(int) - wanted.transpose(2, 0, 1))
    assert gap.mean() < 1  # OpenCV rounds coordinates to 1/32 of a pixel
    assert gap.max() <= 8
    edge = unit(affine_param=(True, 0, 1, 1, 0, 0, [1, 0, 1, 0, 1, 0]))
    assert np.array_equal(made(edge, PICTURE, [1, 3, 24, 32])[..., 1:], PICTURE[..., :-1])


def test_the_other_modes():
    crop = unit(crop_param=(True, 4, 2, 20, 16))
    assert np.array_equal(made(crop, PICTURE, [1, 3, 16, 20]), PICTURE[:, :, 2:18, 4:24])
    depth = np.arange(8, dtype=np.int16).reshape(1, 1, 2, 4) * 100
    raw = unit(shift_param=(True, 2), dtype=(nn.ai2d_format.RAW16,) * 2 + (np.int16, U8))
    assert made(raw, depth, [1, 1, 2, 4]).ravel().tolist() == [0, 25, 50, 75, 100, 125, 150, 175]
    corner = unit(resize_param=(True, nn.interp_method.tf_bilinear, nn.interp_mode.align_corner))
    line = np.array([0, 90], U8).reshape(1, 1, 1, 2)
    assert made(corner, line, [1, 1, 1, 4]).ravel().tolist() == [0, 30, 60, 90]
    packed = unit(dtype=(nn.ai2d_format.RGB_packed, nn.ai2d_format.NCHW_FMT, U8, U8))
    nhwc = np.ascontiguousarray(PICTURE.transpose(0, 2, 3, 1))
    assert np.array_equal(made(packed, nhwc, [1, 3, 24, 32]), PICTURE)
    mirror = unit(pad_param=(True, [0, 0, 0, 0, 0, 0, 2, 1], 2, []))
    row = np.array([1, 2, 3], U8).reshape(1, 1, 1, 3)
    assert made(mirror, row, [1, 1, 1, 6]).ravel().tolist() == [3, 2, 1, 2, 3, 2]


@pytest.mark.parametrize("name", ["YUV420_NV12", "YUV420_NV21", "YUV420_I420"])
def test_cameras(name: str):
    """Pictures of 2 x 2 pixels of one colour survive both ways; red and blue are not swapped."""
    rgb = np.repeat(np.repeat(PICTURE[:, :, ::4, ::4] // 2 + 64, 4, 2), 4, 3)
    layout = nn.ai2d_format[name]
    yuv = rgb_to_yuv(rgb, layout)
    assert yuv.shape == (1, 1, 36, 32)
    back = made(unit(dtype=(layout, nn.ai2d_format.NCHW_FMT, U8, U8)), yuv, [1, 3, 24, 32])
    assert np.abs(back.astype(int) - rgb).max() <= 3
    same = made(unit(dtype=(layout, layout, U8, U8)), yuv, [1, 1, 36, 32])
    assert np.abs(same.astype(int) - yuv).max() <= 2


def test_the_names_of_the_runtime_for_linux():
    found = nncaseruntime.AI2D()
    planar = nncaseruntime.AI2D_FORMAT.NCHW_FMT
    found.set_datatype(planar, planar, U8, U8)
    with pytest.raises(RuntimeError, match="call build"):
        found.run(None, None)
    method, mode = nncaseruntime.AI2D_INTERP_METHOD, nncaseruntime.AI2D_INTERP_MODE
    found.set_resize_param(True, method.tf_nearest, mode.none)
    assert nncaseruntime.AI2D_PAD_MODE.constant == 0
    found.build([1, 3, 24, 32], [1, 3, 12, 16])
    out = nncaseruntime.RuntimeTensor.from_numpy(np.zeros((1, 3, 12, 16), U8))
    found.run(nncaseruntime.RuntimeTensor.from_numpy(PICTURE), out)
    assert np.array_equal(out.to_numpy(), PICTURE[:, :, ::2, ::2])


@pytest.mark.parametrize(
    ("settings", "shape", "words"),
    [
        ({}, [1, 3, 40, 40], "call set_resize_param"),
        ({}, [3, 40, 40], "give four extents"),
        ({}, [1, 1, 24, 32], "has 3 channels"),
        ({"crop_param": (True, 20, 0, 20, 20)}, [1, 3, 20, 20], "leaves the input"),
        ({"pad_param": (True, [0] * 4 + [9] * 4, 0, [1])}, [1, 3, 16, 40], "border is larger"),
        ({"pad_param": (True, [0] * 4 + [1] * 4, 0, [1, 2])}, [1, 3, 26, 34], "2 numbers; give 3"),
        (
            {"resize_param": (True, 1, 2), "affine_param": (True, 3, 0, 0, 0, 0, MATRIX)},
            [1, 3, 40, 40],
            "exclude each other",
        ),
        (
            {"dtype": (nn.ai2d_format.NCHW_FMT, nn.ai2d_format.YUV420_NV12, U8, U8)},
            [1, 1, 36, 32],
            "use NCHW_FMT",
        ),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], shape: list[int], words: str):
    with pytest.raises(NncaseError, match=words):
        made(unit(**settings), PICTURE, shape)


def test_wrong_arguments_are_refused():
    found = unit()
    for call, words in (
        (lambda: found.set_affine_param(True, 3, 0, 0, 0, 1, [1, 2]), "six numbers"),
        (lambda: found.set_affine_param(True, 3, 0, 0, 0, 1, [1, 2, 0, 2, 4, 0]), "a line"),
        (lambda: found.set_pad_param(True, [1] * 8, 0, [0]), "top, bottom, left, right"),
        (lambda: found.set_resize_param(True, 7, 0), "7 is none of tf_nearest"),
        (lambda: found.set_dtype(9, 3, U8, U8), "9 is none of YUV420_NV12"),
        (lambda: found.set_dtype(3, 3, "text", U8), "give np.uint8"),
        (lambda: found.set_crop_param(True, 0, 0, 0, 4), "give start_x"),
        (lambda: found.set_shift_param(True, 20), "0 to 15 bits"),
    ):
        with pytest.raises(NncaseError, match=words):
            call()
    builder = found.build([1, 3, 24, 32], [1, 3, 24, 32])
    with pytest.raises(NncaseError, match="give from_numpy"):
        builder.run(PICTURE, PICTURE)
    with pytest.raises(NncaseError, match=r"built was uint8\[1, 3, 24, 32\]"):
        builder.run(nn.from_numpy(PICTURE), nn.from_numpy(PICTURE.astype(np.float32)))


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_it_is_the_same_in_c(tmp_path: Path):
    run("g++", "-std=c++17", *FLAGS, SOURCES / "ai2d.cc", "-o", tmp_path / "ai2d")
    camera = np.random.default_rng(2).integers(0, 256, (1, 1, 36, 32)).astype(U8)
    (tmp_path / "x.bin").write_bytes(PICTURE.tobytes())
    (tmp_path / "c.bin").write_bytes(camera.tobytes())
    done = run(tmp_path / "ai2d", *(tmp_path / n for n in ("x.bin", "c.bin", "y.bin")))
    assert "exclude each other" in done.stderr
    found = np.fromfile(tmp_path / "y.bin", U8).reshape(4, 1, 3, 40, 40)
    one = unit()
    letterbox(one)
    half = (True, nn.interp_method.tf_bilinear, nn.interp_mode.half_pixel)
    others = [
        unit(crop_param=(True, 4, 2, 20, 16), resize_param=(True, 0, 0)),
        unit(affine_param=(True, nn.interp_method.cv2_bilinear, 0, 0, 127, 1, MATRIX)),
        unit(dtype=(0, 3, U8, U8), resize_param=half),
    ]
    pictures = [PICTURE, PICTURE, PICTURE, camera]
    for y, each, x in zip(found, (one, *others), pictures, strict=True):
        gap = np.abs(y.astype(int) - made(each, x, [1, 3, 40, 40]))
        assert gap.max() <= 1  # floats of the matrix have 24 bits in C
        assert gap.mean() < 0.01
