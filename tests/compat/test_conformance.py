"""docs/compat-*.md are what the facades and the tests say."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.compat.conformance import calls, facades, main, methods, page

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "compat"


@pytest.mark.parametrize("name", facades())
def test_pages_are_up_to_date(name: str):
    path = ROOT / "docs" / f"compat-{name}.md"
    command = f"python -m intaglio.compat.conformance {name} docs/compat-{name}.md"
    assert path.read_text() == page(name, TESTS), f"{path.name} is out of date: run `{command}`"


@pytest.mark.parametrize("name", facades())
def test_every_method_has_a_test(name: str):
    untested = [m.name for m in methods(facades()[name], TESTS) if m.state == "untested"]
    assert untested == []


def test_all_public_methods_of_rknn_are_listed():
    found = {m.name for m in methods(facades()["rknn"], TESTS)}
    documented = """config load_onnx load_tflite load_tensorflow load_caffe load_darknet
        load_pytorch build hybrid_quantization_step1 hybrid_quantization_step2 export_rknn
        load_rknn init_runtime inference accuracy_analysis eval_perf eval_memory get_sdk_version
        list_devices reg_custom_op optimize_onnx codegen clear_op_cache release
        export_encrypted_rknn_model"""
    assert {f"RKNN.{m}" for m in documented.split()} <= found
    lite = "load_rknn list_devices init_runtime inference get_sdk_version release"
    assert {f"RKNNLite.{m}" for m in lite.split()} <= found
    assert {"rknn.api.custom_op.get_node_attr", "rknn.utils.onnx_edit"} <= found


def test_all_public_methods_of_nncase_are_listed():
    found = {m.name for m in methods(facades()["nncase"], TESTS)}
    compiler = """import_onnx import_tflite import_caffe import_ncnn use_ptq compile gencode
        gencode_tobytes create_evaluator dump_range_options"""
    assert {f"Compiler.{m}" for m in compiler.split()} <= found
    simulator = """load_model get_input_desc get_output_desc get_input_shape get_output_shape
        get_input_tensor set_input_tensor get_output_tensor set_output_tensor run set_profiling"""
    assert {f"Simulator.{m}" for m in simulator.split()} <= found
    assert {f"RuntimeTensor.{m}" for m in ("from_numpy", "to_numpy", "copy_to")} <= found
    assert {"PTQTensorOptions.set_tensor_data", "MemoryRange", "ncc"} <= found


def test_a_method_without_a_test_is_seen(tmp_path: Path):
    (tmp_path / "test_a.py").write_text("from rknn.api import RKNN\nRKNN().build()\n")
    states = {m.name: m.state for m in methods(facades()["rknn"], tmp_path)}
    assert states["RKNN.build"] == "complete"
    assert states["RKNN.codegen"] == states["RKNNLite.load_rknn"] == "untested"
    assert calls(tmp_path)[tmp_path / "test_a.py"] == {"RKNN", "build", "api"}


def test_usage(capsys: pytest.CaptureFixture[str]):
    assert main(["nothing", "x.md"]) == 2
    assert "usage" in capsys.readouterr().err
