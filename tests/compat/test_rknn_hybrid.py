"""Hybrid quantisation: files of step 1, edits of the .cfg, step 2 from a fresh object."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import helper, numpy_helper
from tests.compat.models import save, separable

import intaglio
from intaglio.compat.rknn.api import RKNN

FILES = ("mobilenet.model", "mobilenet.data", "mobilenet.quantization.cfg")


def step1(**keywords) -> None:
    rknn = RKNN()
    rknn.config(mean_values=[[128] * 3], std_values=[[128] * 3], target_platform="rk3588")
    rknn.load_onnx("mobilenet.onnx")
    assert rknn.hybrid_quantization_step1(dataset="dataset.txt", **keywords) == 0
    assert all(Path(f).exists() for f in FILES)


def step2() -> RKNN:
    rknn = RKNN()
    assert rknn.hybrid_quantization_step2(*FILES) == 0
    assert rknn.init_runtime() == 0
    return rknn


def edit(old: str, new: str) -> None:
    path = Path(FILES[2])
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_without_edits_the_result_is_that_of_build(folder: Path, int8: RKNN, picture: np.ndarray):
    step1()
    content = yaml.safe_load(Path(FILES[2]).read_text())
    assert content["custom_quantize_layers"] == {}
    one = content["quantize_parameters"]["r0"]
    assert one["qtype"] == "asymmetric_quantized"
    assert one["dtype"] == "int8"
    assert one["zero_point"] == [-128]
    assert one["min"] == [0.0]
    assert len(one["scale"]) == 1
    assert content["quantize_parameters"]["w0"]["qmethod"] == "channel"
    assert [v.name for v in intaglio.load(FILES[0]).inputs] == ["x"]
    rknn = step2()
    np.testing.assert_allclose(
        rknn.inference([picture])[0], int8.inference([picture])[0], atol=1e-3
    )
    assert rknn.export_rknn("h.rknn") == 0
    assert rknn.load_rknn("h.rknn") == 0


def test_a_layer_in_float16(folder: Path, picture: np.ndarray):
    step1()
    edit("custom_quantize_layers: {}", "custom_quantize_layers:\n    r0: float16\n    y: float16")
    rknn = step2()
    layers = rknn._built.quantized.scheme.layers
    assert layers["c0"] == "f16"  # the convolution that the activation is fused with
    assert "int8" in layers.values()
    assert rknn.accuracy_analysis(["images/0.png"]) == 0


def test_depthwise_layers_keep_their_scales(folder: Path, picture: np.ndarray):
    """The input of a depthwise layer has a scale for each channel: step 2 finds it again."""
    separable(Path("mobilenet.onnx"))
    step1()
    content = yaml.safe_load(Path(FILES[2]).read_text())["quantize_parameters"]
    assert content["r0"]["qmethod"] == "channel"
    found = step2().inference([picture])[0]
    rknn = RKNN()
    rknn.config(mean_values=[[128] * 3], std_values=[[128] * 3], target_platform="rk3588")
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=True, dataset="dataset.txt")
    rknn.init_runtime()
    np.testing.assert_allclose(found, rknn.inference([picture])[0], atol=2e-2)


def test_an_edited_range_changes_the_scale(folder: Path):
    step1()
    content = yaml.safe_load(Path(FILES[2]).read_text())
    content["quantize_parameters"]["r1"]["max"] = [2.55]
    content["quantize_parameters"]["r0"]["scale"] = [0.125]
    Path(FILES[2]).write_text(yaml.safe_dump(content))
    tensors = step2()._built.quantized.scheme.tensors
    assert tensors["r1"].scale[0] == pytest.approx(0.01)
    assert tensors["r0"].scale[0] == 0.125


def test_the_batch_of_step_1_is_that_of_the_model(folder: Path, picture: np.ndarray, capsys):
    step1(rknn_batch_size=2)
    rknn = step2()
    found = rknn.inference([np.concatenate([picture, picture])])[0]
    assert found.shape == (2, 5)
    np.testing.assert_array_equal(rknn.inference([picture])[0], found)
    assert "inputs[0] is repeated 2 times" in capsys.readouterr().err


def test_custom_hybrid_and_proposal(folder: Path):
    step1(custom_hybrid=[["c0", "r0"]], proposal=True, proposal_dataset_size=2)
    layers = yaml.safe_load(Path(FILES[2]).read_text())["custom_quantize_layers"]
    assert {"c0", "r0"} <= set(layers)
    assert set(layers.values()) == {"float16"}
    text = Path(FILES[2]).read_text()
    step1(custom_hybrid=[["c0", "r1"]])
    layers = yaml.safe_load(Path(FILES[2]).read_text())["custom_quantize_layers"]
    assert list(layers) == ["c0", "r0", "c1", "r1"]
    assert text != Path(FILES[2]).read_text()


def test_custom_hybrid_ends_at_a_tensor_that_the_optimiser_removes(folder: Path):
    """As the pose scripts of YOLOv8 name the Concat of three reshaped heads."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], "stem", pads=[1] * 4),
        node("Relu", ["c0"], ["r0"], "relu"),
        node("Reshape", ["r0", "shape"], ["flat"], "reshape"),
        node("Reshape", ["flat", "back"], ["again"], "reshape back"),
        node("Conv", ["again", "w1"], ["y"], "head"),
    ]
    rng = np.random.default_rng(2)
    weights = {"w0": rng.normal(0, 0.3, (8, 3, 3, 3)), "w1": rng.normal(0, 0.3, (4, 8, 1, 1))}
    save(Path("mobilenet.onnx"), nodes, {"x": [1, 3, 16, 16]}, {"y": [1, 4, 16, 16]}, **weights)
    model = onnx.load("mobilenet.onnx")
    for name, shape in (("shape", [1, 8, 256]), ("back", [1, 8, 16, 16])):
        model.graph.initializer.append(numpy_helper.from_array(np.int64(shape), name))
    onnx.save(model, "mobilenet.onnx")
    step1(custom_hybrid=[["c0", "flat"]])
    layers = yaml.safe_load(Path(FILES[2]).read_text())["custom_quantize_layers"]
    assert list(layers) == ["c0", "r0"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("custom_quantize_layers: {}", "custom_quantize_layers:\n    r0: int9", "has type 'int9'"),
        ("custom_quantize_layers: {}", "custom_quantize_layers:\n    rr0: float16", "'rr0'"),
        ("custom_quantize_layers: {}", "custom_quantize_layers: 3", "are mappings"),
        ("custom_quantize_layers: {}", "custom_quantize_layers: {", "is no YAML"),
        ("    r0:\n", "    r77:\n", "no tensor is called 'r77'"),
        ("zero_point:\n        - -128", "zero_point:\n        - -1000", "zero point is -1000"),
    ],
)
def test_wrong_edits_are_one_line(folder: Path, capsys, old: str, new: str, words: str):
    step1()
    edit(old, new)
    capsys.readouterr()
    assert RKNN().hybrid_quantization_step2(*FILES) == -1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert "Traceback" not in said


def test_other_mistakes(folder: Path, capsys):
    rknn = RKNN()
    assert rknn.hybrid_quantization_step1() == -1
    assert rknn.hybrid_quantization_step2("a.model", "a.data", "a.cfg") == -1
    assert "there is no file 'a.model'" in capsys.readouterr().err
    step1()
    Path(FILES[1]).write_bytes(Path(FILES[1]).read_bytes()[:300])
    assert rknn.hybrid_quantization_step2(*FILES) == -1
    rknn.config(target_platform="rk3588")
    rknn.load_onnx("mobilenet.onnx")
    assert rknn.hybrid_quantization_step1("dataset.txt", custom_hybrid=[["y", "c0"]]) == -1
    assert rknn.hybrid_quantization_step1("dataset.txt", custom_hybrid=[["cc0", "y"]]) == -1
    said = capsys.readouterr().err
    assert "no path leads from 'y' to 'c0'" in said
    assert "did you mean 'c0'?" in said
    assert "Traceback" not in said
