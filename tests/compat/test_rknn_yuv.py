"""inputs_yuv_fmt: the model takes the planes of NV12 or NV21, as those of RKNN-Toolkit2 do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.compat import models

from intaglio.compat.rknn.api import RKNN

SIDE = 8
GIVEN = np.random.default_rng(0).integers(16, 236, (SIDE * 3 // 2, SIDE)).astype(np.uint8)
PLANES = [GIVEN[:SIDE].reshape(1, SIDE, SIDE, 1), GIVEN[SIDE:].reshape(1, SIDE // 2, SIDE, 1)]


def rgb(layout: str, bgr: bool = False) -> np.ndarray:
    """What RKNN-Toolkit2 2.5.0 gives the model: BT.601 of limited range, measured."""
    pair = np.repeat(np.repeat(GIVEN[SIDE:].reshape(4, 4, 2), 2, 0), 2, 1) - 128.0
    u, v = (pair[..., 0], pair[..., 1]) if layout == "nv12" else (pair[..., 1], pair[..., 0])
    light = 1.164383 * (GIVEN[:SIDE] - 16.0)
    found = [light + 1.596027 * v, light - 0.391762 * u - 0.812968 * v, light + 2.017232 * u]
    return np.clip(np.stack(found[:: -1 if bgr else 1])[None], 0, 255)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose output is its input, and pictures."""
    place = tmp_path_factory.mktemp("yuv")
    conv = models.helper.make_node("Conv", ["x", "w"], ["y"], "same")
    same = np.eye(3).reshape(3, 3, 1, 1)
    shape = [1, 3, SIDE, SIDE]
    models.save(place / "m.onnx", [conv], {"x": shape}, {"y": shape}, w=same)
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 2, (SIDE, SIDE, 3)) * 255
        np.save(place / f"{i}.npy", pixels.transpose(2, 0, 1)[None].astype(np.float32))
    (place / "d.txt").write_text("0.npy\n1.npy\n")
    return place


def built(folder: Path, quantized: bool, **config: object) -> RKNN:
    rknn = RKNN()
    assert rknn.config([[0, 0, 0]], [[2, 2, 2]], target_platform="rk3588", **config) == 0
    assert rknn.load_onnx(str(folder / "m.onnx")) == 0
    assert rknn.build(quantized, str(folder / "d.txt")) == 0
    assert rknn.init_runtime() == 0
    return rknn


@pytest.mark.parametrize(("layout", "bgr"), [("nv12", False), ("nv21", False), ("nv12", True)])
def test_planes(folder: Path, layout: str, bgr: bool):
    rknn = built(folder, True, inputs_yuv_fmt=[layout], quant_img_RGB2BGR=bgr)
    y = rknn.inference(PLANES)[0]
    assert np.abs(y * 2 - rgb(layout, bgr)).max() <= 2  # int8 of 0 to 255
    assert np.abs(y * 2 - rgb(layout, not bgr)).max() > 20


def test_the_file_keeps_it(folder: Path, capsys: pytest.CaptureFixture[str]):
    rknn = built(folder, True, inputs_yuv_fmt=["nv21"])
    y = rknn.inference(PLANES)[0]
    assert rknn.accuracy_analysis([str(folder / "0.npy")], str(folder / "snapshot")) == 0
    assert rknn.export_rknn(str(folder / "m.rknn")) == 0
    again = RKNN()
    assert again.load_rknn(str(folder / "m.rknn")) == 0
    assert again.init_runtime() == 0
    assert np.array_equal(again.inference(PLANES)[0], y)
    assert again.inference([np.zeros((1, SIDE, SIDE, 3), np.uint8)]) is None
    assert "1 inputs, the model has 2: x_y_channel, x_uv_channel" in capsys.readouterr().err


def test_floats_and_none(folder: Path, capsys: pytest.CaptureFixture[str]):
    y = built(folder, False, inputs_yuv_fmt=["nv12"]).inference(PLANES)[0]
    assert np.abs(y * 2 - rgb("nv12")).max() < 0.5  # float16
    plain = built(folder, False, inputs_yuv_fmt=[False])
    x = np.full((1, SIDE, SIDE, 3), 6, np.uint8)
    assert (plain.inference([x])[0] == 3).all()
    for given, words in ((["nv12"] * 2, "has 2 words"), (["nv12"], "no dynamic_input")):
        rknn = RKNN()
        sizes = [[[1, 3, 8, 8]]] if words == "no dynamic_input" else None
        rknn.config(target_platform="rk3588", inputs_yuv_fmt=given, dynamic_input=sizes)
        assert rknn.load_onnx(str(folder / "m.onnx")) == -1
        assert words in capsys.readouterr().err
