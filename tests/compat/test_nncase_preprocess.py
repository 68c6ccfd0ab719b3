"""Preprocessing in nncase's order: every step against numpy, in floats and in integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compat import models, nncase_models

import intaglio
from intaglio.compat.nncase import CompileOptions, Compiler, ImportOptions, Simulator
from intaglio.compat.nncase import PTQTensorOptions as Ptq

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (1, 16, 16, 3)).astype(np.uint8)
NCHW = np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2))
USUAL = {"preprocess": True, "input_type": "uint8", "input_range": [0, 1], "dump_asm": False}


def run(model: Path, x: np.ndarray, quantized: bool = False, **given: Any) -> np.ndarray:
    options = CompileOptions()
    for name, value in {**USUAL, **given}.items():
        setattr(options, name, value)
    compiler = Compiler(options)
    read = compiler.import_tflite if model.suffix == ".tflite" else compiler.import_onnx
    read(model.read_bytes(), ImportOptions())
    if quantized:
        ptq = Ptq()
        ptq.calibrate_method, ptq.samples_count = "NoClip", 1
        ptq.set_tensor_data([[x]])
        compiler.use_ptq(ptq)
    compiler.compile()
    sim = Simulator()
    sim.load_model(compiler.gencode_tobytes())
    sim.set_input_tensor(0, x)
    sim.run()
    return sim.get_output_tensor(0).to_numpy()


def wanted(model: Path, x: np.ndarray) -> np.ndarray:
    graph = intaglio.load(model)
    feeds = {graph.inputs[0].name: np.ascontiguousarray(x, np.float32)}
    return next(iter(intaglio.interpret(graph, feeds).values()))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nncase") / "m.onnx"
    nncase_models.plain(path)
    return path


CASES: dict[str, tuple[np.ndarray, dict[str, Any], np.ndarray]] = {
    "range": (NCHW, {"input_layout": "NCHW", "input_range": [0, 255]}, NCHW),
    "negative range": (NCHW, {"input_range": [-1, 1]}, (NCHW - 128.0) * 2 / 255),
    "int8": ((NCHW.astype(np.int16) - 128).astype(np.int8), {"input_type": "int8"}, NCHW / 255),
    "float": ((NCHW / 9).astype(np.float32), {"input_type": "float32", "mean": [3] * 3},
              NCHW / 9 - 3),
    "nhwc": (PIXELS, {"input_layout": "NHWC", "input_shape": [1, 16, 16, 3]}, NCHW / 255),
    "permutation": (PIXELS, {"input_layout": "0,3,1,2", "input_shape": [1, 16, 16, 3]}, NCHW / 255),
    "swap": (NCHW, {"swapRB": True}, NCHW[:, ::-1] / 255),
    "one number": (NCHW, {"mean": [0.5], "std": [0.25]}, (NCHW / 255 - 0.5) * 4),
    "swap, then mean": (NCHW, {"swapRB": True, "mean": [0.1, 0.2, 0.3], "std": [1, 2, 3]},
                        (NCHW[:, ::-1] / 255 - np.reshape([0.1, 0.2, 0.3], (1, 3, 1, 1)))
                        / np.reshape([1, 2, 3], (1, 3, 1, 1))),
    "pad": (NCHW[:, :, :12], {"input_shape": [1, 3, 12, 16], "letterbox_value": 7, "mean": [1] * 3},
            np.pad(NCHW[:, :, :12] / 255, ((0, 0), (0, 0), (2, 2), (0, 0)), constant_values=7) - 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_steps(case: str, plain: Path):
    x, given, prepared = CASES[case]
    x = np.ascontiguousarray(x)
    expected = wanted(plain, prepared)
    assert np.allclose(run(plain, x, **given), expected, rtol=1e-3, atol=1e-3)
    found = run(plain, x, quantized=True, target="k230", **given)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < 0.02


@pytest.mark.parametrize("case", ["swap", "swap, then mean", "nhwc", "one number"])
def test_the_k210_does_it_on_the_kpu(case: str, plain: Path, capsys: pytest.CaptureFixture[str]):
    x, given, prepared = CASES[case]
    expected = wanted(plain, prepared)
    found = run(plain, x, quantized=True, target="k210", **given)
    assert capsys.readouterr().err == ""  # no package instead of a kmodel
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.03


def test_layouts_of_outputs(plain: Path):
    nhwc = run(plain, NCHW, output_layout="NHWC")
    assert np.array_equal(nhwc.transpose(0, 3, 1, 2), run(plain, NCHW, output_layout="NCHW"))
    turned = run(plain, NCHW, output_layout="0,1,3,2")
    assert np.array_equal(turned, run(plain, NCHW).transpose(0, 1, 3, 2))


def test_a_model_in_nhwc(tmp_path: Path):
    pytest.importorskip("tflite")
    path = tmp_path / "m.tflite"
    nncase_models.tflite(path)
    expected = wanted(path, PIXELS / 255)
    shape = {"input_layout": "NCHW", "input_shape": [1, 3, 16, 16]}
    assert np.allclose(run(path, NCHW, **shape), expected, atol=1e-4)
    assert np.allclose(run(path, PIXELS), expected, atol=1e-4)
    nchw = run(path, NCHW, output_layout="NCHW", **shape)
    assert np.allclose(nchw.transpose(0, 2, 3, 1), expected, atol=1e-4)


def test_one_channel_takes_the_first_numbers(tmp_path: Path):
    path = tmp_path / "m.onnx"
    nncase_models.plain(path, channels=1)
    x = np.ascontiguousarray(NCHW[:, :1])
    found = run(path, x, mean=[0.5, 0.1, 0.1], std=[0.5, 1, 1], swapRB=True)
    assert np.allclose(found, wanted(path, (x / 255 - 0.5) * 2), atol=1e-4)


def test_other_inputs_stay_as_they_are(tmp_path: Path):
    """Only inputs with as many axes as input_shape are prepared."""
    node = models.helper.make_node
    nodes = [node("Mul", ["x", "gain"], ["y"])]
    models.save(tmp_path / "m.onnx", nodes, {"x": [1, 1, 2, 2], "gain": [1]}, {"y": [1, 1, 2, 2]})
    options = CompileOptions()
    options.preprocess, options.input_type, options.dump_asm = True, "uint8", False
    options.input_shape, options.input_range = [1, 1, 2, 2], [0, 255]
    compiler = Compiler(options)
    compiler.import_onnx((tmp_path / "m.onnx").read_bytes(), ImportOptions())
    compiler.compile()
    sim = Simulator()
    sim.load_model(compiler.gencode_tobytes())
    sim.set_input_tensor(0, np.uint8([[[[1, 2], [3, 4]]]]))
    sim.set_input_tensor(1, np.float32([0.5]))
    sim.run()
    assert sim.get_output_tensor(0).to_numpy().ravel().tolist() == [0.5, 1, 1.5, 2]
