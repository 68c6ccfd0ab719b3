"""Scripts written from RKNN-Toolkit2's public documentation, run by `python -m intaglio.compat`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.compat import models

import intaglio
from intaglio.compat.__main__ import main

SCRIPTS = Path(__file__).parent / "scripts"
TEXT = ("ppocr", "lprnet")
OTHER_FORMATS = ("tflite_float", "other_frameworks")
# script -> runs: arguments, and words that are printed
RUNS = {
    "mobilenet_int8": [("", "-----TOP 5-----")],
    "convert": [("yolo.onnx rk3588 i8 y.rknn", "done"), ("yolo.onnx rk3566 fp", "done")],
    "tflite_float": [("", "(1, 16, 16, 3)")],
    "other_frameworks": [("", "darknet [(1, 14, 8, 8)]")],
    "accuracy_analysis": [("", "4 layers")],
    "dynamic_shape": [("", "12 (1, 5)")],
    "custom_op": [("", "sum of probabilities: 1.000")],
    "multi_input": [("", "[(1, 4, 8, 8)]")],
    "edit_axes": [("", "edited and built")],
    "evaluate": [("", "Operator Time Consuming Ranking Table")],
    "wav2vec": [("", "quantised (1, 20, 4)")],
    "ppocr": [("", "det (1, 1, 32, 32) rec (1, 12, 7)")],
    "lprnet": [("", "plate (1, 35, 12) True")],
    "yolo_batch": [("", "agree True")],
}


def run(name: str, arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a script prints; it must end with exit code 0."""
    code: object = 0
    try:
        code = main([str(SCRIPTS / f"{name}.py"), *arguments.split()])
    except SystemExit as e:
        code = e.code or 0
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "Traceback" not in said.err
    return said.out


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("name", RUNS)
def test_scripts(name: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    if name in OTHER_FORMATS:
        pytest.importorskip("tflite")
        models.other_formats(folder)
    if name in TEXT:
        models.text_models(folder)
    for arguments, words in RUNS[name]:
        assert words in run(name, arguments, capsys)


@pytest.mark.usefixtures("names")
def test_numbers_of_the_classifier(folder: Path, picture: np.ndarray, capsys):
    run("mobilenet_int8", "", capsys)
    mean, std = np.float32([103.94, 116.78, 123.68]), np.float32(58.82)
    x = ((picture - mean) / std).transpose(0, 3, 1, 2).astype(np.float32)
    wanted = intaglio.interpret(intaglio.load("mobilenet.onnx"), {"x": x})["y"]
    found = np.load("outputs.npy")
    assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)


@pytest.mark.usefixtures("names")
def test_a_model_is_converted_and_then_detects(folder: Path, capsys):
    run("convert", "yolo.onnx rk3588 i8 yolo.rknn", capsys)
    printed = run("yolo_detect", "--model_path yolo.rknn --target rk3588", capsys)
    assert printed.count("box @ (") == 3


@pytest.mark.usefixtures("names")
def test_hybrid_quantisation_in_two_scripts(folder: Path, capsys):
    run("hybrid_step1", "", capsys)
    path = folder / "mobilenet.quantization.cfg"
    text = path.read_text()
    path.write_text(text.replace("layers: {}", "layers:\n    r1: float16", 1))
    assert "[ConvRelu] r1" in run("hybrid_step2", "", capsys)


@pytest.mark.usefixtures("names")
def test_lite_and_encryption(folder: Path, capsys, monkeypatch):
    pytest.importorskip("cryptography")
    run("convert", "mobilenet.onnx rk3588 i8 input.rknn", capsys)
    assert "6 frames" in run("lite_cores", "input.rknn", capsys)
    monkeypatch.setenv("INTAGLIO_KEY", "01" * 32)
    assert "(1, 5)" in run("encrypt", "", capsys)


@pytest.mark.usefixtures("names")
def test_wrong_steps_return_and_never_raise(folder: Path, capsys):
    code = main([str(SCRIPTS / "wrong_steps.py")])
    said = capsys.readouterr()
    assert code == 0
    assert "Traceback" not in said.err
    values = [line for line in said.out.splitlines() if not line.startswith("I ")]
    assert values == ["-1", "-1", "-1", "0", "-1", "-1", "-1", "0", "-1", "None", "-1", "None"]
    errors = said.err.splitlines()
    assert len(errors) == 10
    assert all(line.startswith("E ") for line in errors)
    assert "did you mean 'target_platform'?" in said.err


def test_all_scripts_are_run():
    text = Path(__file__).read_text()
    names = {p.stem for p in SCRIPTS.glob("*.py")}
    assert len(names) >= 20
    assert [n for n in sorted(names) if f'"{n}' not in text and f'"{n}.py"' not in text] == []
