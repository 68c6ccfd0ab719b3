"""RKNN.inference and RKNNLite: layouts, element types, return values after mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.compat.rknn.api import RKNN
from intaglio.compat.rknnlite.api import RKNNLite


def test_layouts(int8: RKNN, picture: np.ndarray):
    wanted = int8.inference(inputs=[picture])[0]
    turned = picture.transpose(0, 3, 1, 2)
    for given in ("nchw", "NCHW", ["nchw"]):
        np.testing.assert_array_equal(int8.inference([turned], data_format=given)[0], wanted)
    np.testing.assert_array_equal(int8.inference([picture], data_format="nhwc")[0], wanted)


def test_warnings(folder: Path, picture: np.ndarray, capsys):
    rknn = float_model()
    wanted = rknn.inference([picture])[0]
    np.testing.assert_array_equal(rknn.inference(picture)[0], wanted)
    np.testing.assert_array_equal(rknn.inference([picture[0]])[0], wanted)
    np.testing.assert_array_equal(rknn.inference([picture, picture])[0], wanted)
    said = capsys.readouterr().err
    for words in ("inputs is one array", "has 3 axes", "2 inputs, the model has 1"):
        assert words in said


def float_model(**config) -> RKNN:
    rknn = RKNN()
    rknn.config(target_platform="rk3588", **config)
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    rknn.init_runtime()
    return rknn


def test_pass_through_skips_mean_and_std(folder: Path, picture: np.ndarray, int8: RKNN):
    rknn = float_model(mean_values=[[128] * 3], std_values=[[64] * 3])
    wanted = rknn.inference([picture])[0]
    ready = ((picture.astype(np.float32) - 128) / 64).transpose(0, 3, 1, 2)
    found = rknn.inference([ready], inputs_pass_through=[1])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-3)
    ready = ((picture.astype(np.float32) - 128) / 128).transpose(0, 3, 1, 2)
    found = int8.inference([ready], inputs_pass_through=[1])[0]
    np.testing.assert_allclose(found, int8.inference([picture])[0], atol=1e-5)


def test_frame_numbers(int8: RKNN, picture: np.ndarray):
    assert len(int8.inference([picture], get_frame_id=True)) == 1  # not without async_mode
    assert int8.init_runtime(async_mode=True) == 0
    first = int8.inference([picture], get_frame_id=True)[1]
    outputs, number = int8.inference([picture], get_frame_id=True)
    assert number == first + 1
    assert outputs[0].shape == (1, 5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inputs": []}, "inputs is empty"),
        ({"inputs": [None]}, "inputs[0] is NoneType; give a numpy array"),
        ({"inputs": [np.zeros((1, 16, 16, 3))]}, "has element type float64"),
        ({"inputs": [np.zeros((1, 3, 16, 16), "f")]}, "it is in nchw: add data_format=['nchw']"),
        ({"inputs": [np.zeros((1, 8, 8, 3), "f")]}, "needs [1, 16, 16, 3] (nhwc); resize it"),
        ({"inputs": [np.zeros((1, 16, 16, 3), "f")], "data_format": "chwn"}, "it is 'nhwc' or"),
        ({"inputs": [np.zeros((1, 16, 16, 3), "f")], "inputs_pass_through": 1}, "give a list of 1"),
        ({"inputs": [np.zeros((1, 16, 16, 3), "f")], "format": "nhwc"}, "'data_format'?"),
    ],
)
def test_mistakes_return_none(int8: RKNN, capsys, given: dict, words: str):
    assert int8.inference(**given) is None
    said = capsys.readouterr().err
    assert said.startswith("E inference: ")
    assert words in said
    assert said.count("\n") == 1


def test_before_init_runtime(capsys):
    rknn = RKNN()
    assert rknn.inference(inputs=[np.zeros(1, "f")]) is None
    assert rknn.init_runtime() == -1
    assert rknn.eval_perf() is None
    assert rknn.eval_memory() is None
    assert rknn.get_sdk_version() is None
    said = capsys.readouterr().err
    assert "call init_runtime first" in said
    assert "call build or load_rknn first" in said


def test_targets_and_cores(folder: Path, capsys):
    rknn = float_model()
    assert rknn.init_runtime(target="rk3588", device_id="abc") == 0
    assert "boards are not reached from here; the simulator of rk3588" in capsys.readouterr().err
    assert rknn.init_runtime(target="rk3566") == -1
    assert "the model was built for rk3588" in capsys.readouterr().err
    assert rknn.init_runtime(target="rk9") == -1
    assert rknn.init_runtime(core_mask=RKNN.NPU_CORE_0_1_2) == 0
    assert rknn.eval_perf(is_print=False)["cores"] in (1, 3)
    assert rknn.init_runtime(core_mask=8) == -1
    assert "rk3588 has 3 NPU cores" in capsys.readouterr().err
    assert rknn.init_runtime(async_mode=True) == 0
    single = float_model(single_core_mode=True)
    assert single.init_runtime(core_mask=RKNN.NPU_CORE_0_1) == -1


def test_lite_runs_a_file(folder: Path, int8: RKNN, picture: np.ndarray, capsys):
    assert int8.export_rknn("m.rknn") == 0
    lite = RKNNLite()
    assert lite.init_runtime() == -1
    assert lite.load_rknn("nope.rknn") == -1
    assert lite.load_rknn("m.rknn") == 0
    assert lite.init_runtime(core_mask=RKNNLite.NPU_CORE_0_1_2) == 0
    assert "compiled for one NPU core" in capsys.readouterr().err
    found = lite.inference(inputs=[picture])
    np.testing.assert_array_equal(found[0], int8.inference([picture])[0])
    assert lite.inference(inputs=[picture[:, :3]]) is None
    assert "simulator of rk3588" in lite.get_sdk_version()
    assert lite.list_devices() == ([], [])
    about = lite.list_support_target_platform("m.rknn")
    assert about["filled_target_platform"] == ["rk3588"]
    assert about["support_target_platform"] == ["RK3588"]
    assert "RV1106" in lite.list_support_target_platform()["support_target_platform"]
    assert lite.list_support_target_platform("nope.rknn") is None
    assert lite.release() is None
    assert lite.release() is None
    assert lite.inference(inputs=[picture]) is None
