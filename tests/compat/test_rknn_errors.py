"""The ten errors of docs/migrate-rknn.md: what happens here instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.compat.models import save

import intaglio.ops
from intaglio.compat.rknn.api import RKNN
from intaglio.compat.rknnlite.api import RKNNLite


@pytest.fixture
def rknn() -> RKNN:
    made = RKNN()
    assert made.config(target_platform="rk3588") == 0
    return made


def line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only E line that was printed."""
    found = [x for x in capsys.readouterr().err.splitlines() if x.startswith("E ")]
    assert len(found) == 1, found
    return found[0]


def test_1_a_damaged_model_is_one_line_not_a_traceback(rknn: RKNN, folder: Path, capsys):
    Path("cut.onnx").write_bytes(Path("mobilenet.onnx").read_bytes()[:300])
    assert rknn.load_onnx("cut.onnx") == -1
    assert "cut.onnx" in line(capsys)


def test_2_new_opsets_are_read(rknn: RKNN, folder: Path):
    model = onnx.load("mobilenet.onnx")
    model.opset_import[0].version = 21
    onnx.save(model, "new.onnx")
    assert rknn.load_onnx("new.onnx") == 0
    assert rknn.build(do_quantization=False) == 0


def test_3_open_dimensions_say_how_to_fix_them(rknn: RKNN, folder: Path, capsys):
    assert rknn.load_onnx("dynamic.onnx") == -1
    assert "load_onnx(inputs=['x'], input_size_list=" in line(capsys)


def test_4_nonzero_runs(rknn: RKNN, folder: Path):
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["y"])]
    save(Path("nonzero.onnx"), nodes, {"x": [2, 5]}, {"y": [2, "n"]})
    model = onnx.load("nonzero.onnx")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(model, "nonzero.onnx")
    assert rknn.load_onnx("nonzero.onnx") == 0
    assert rknn.build(do_quantization=False) == 0
    assert rknn.init_runtime() == 0
    x = np.array([[0, 1, 0, 0, 2], [0, 0, 0, 3, -1]], np.float32)
    found = rknn.inference(inputs=[x])[0]
    np.testing.assert_array_equal(found, np.nonzero(np.maximum(x, 0)))


def test_5_an_unknown_operator_is_named_when_loading(rknn: RKNN, folder: Path, capsys):
    assert rknn.load_onnx("custom.onnx") == -1
    said = line(capsys)
    assert "cstSoftmax" in said
    assert "register" in said


def test_6_a_wrong_layer_is_named(rknn: RKNN, folder: Path, capsys):
    model = onnx.load("mobilenet.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    onnx.save(model, "wrong.onnx")
    assert rknn.load_onnx("wrong.onnx") == -1
    assert "conv0" in line(capsys)


def test_7_loaded_files_run_without_a_board(rknn: RKNN, folder: Path, picture: np.ndarray):
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    rknn.export_rknn("m.rknn")
    for made in (RKNN(), RKNNLite()):
        assert made.load_rknn("m.rknn") == 0
        assert made.init_runtime() == 0
        assert made.inference(inputs=[picture])[0].shape == (1, 5)


def test_8_speed_and_memory_need_no_board(rknn: RKNN, folder: Path):
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    rknn.init_runtime()
    assert rknn.eval_perf(is_print=False)["fps"] > 0
    assert rknn.eval_memory(is_print=False)["total_memory"] > 0


def test_9_a_wrong_layout_is_recognised(rknn: RKNN, folder: Path, picture: np.ndarray, capsys):
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    rknn.init_runtime()
    assert rknn.inference(inputs=[picture.transpose(0, 3, 1, 2)]) is None
    assert "it is in nchw: add data_format=['nchw']" in line(capsys)
    assert rknn.inference(inputs=[np.asarray(picture, np.float64)]) is None
    assert ".astype(np.float32)" in line(capsys)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("inference", {"inputs": [np.zeros((1, 16, 16, 3), "f")], "data_format": 5}),
        ("accuracy_analysis", {"inputs": None}),
        ("load_onnx", {"model": "mobilenet.onnx", "input_initial_val": 3}),
        ("hybrid_quantization_step2", dict.fromkeys(
            ("model_input", "data_input", "model_quantization_cfg"))),
        ("hybrid_quantization_step1", {"dataset": "dataset.txt", "custom_hybrid": ["c0", "y"]}),
        ("hybrid_quantization_step1", {"dataset": "dataset.txt", "proposal": 1,
                                       "proposal_dataset_size": "many"}),
        ("codegen", {"output_path": None}),
        ("codegen", {"output_path": "app", "inputs": 3}),
    ],
)  # fmt: skip
def test_arguments_of_wrong_types_are_one_line(rknn: RKNN, folder: Path, capsys, method, given):
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    rknn.export_rknn("m.rknn")
    rknn.init_runtime()
    assert getattr(rknn, method)(**given) in (-1, None)
    assert line(capsys).startswith(f"E {method}: ")


def test_errors_of_the_core_stay_visible(rknn: RKNN, folder: Path, monkeypatch):
    def broken(*args, **keywords):
        return intaglio.ops.add(None, None)

    rknn.load_onnx("mobilenet.onnx")
    monkeypatch.setattr("intaglio.compat.rknn.converter.build_float", broken)
    with pytest.raises((AttributeError, TypeError)):
        rknn.build(do_quantization=False)


def test_10_a_damaged_file_is_refused_when_loading(rknn: RKNN, folder: Path, capsys):
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    rknn.export_rknn("m.rknn")
    data = Path("m.rknn").read_bytes()
    Path("cut.rknn").write_bytes(data[: len(data) // 2])
    assert rknn.load_rknn("cut.rknn") == -1
    assert "cut.rknn" in line(capsys)
