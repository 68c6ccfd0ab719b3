"""Scripts written from nncase's public documentation, run by `python -m intaglio.compat`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.compat import models, nncase_models
from tests.compat.test_rknn_scripts import run as run_script

import intaglio
from intaglio.compat.nncase import CompileOptions, Compiler, Simulator

SCRIPTS = Path(__file__).parent / "scripts" / "nncase"
TFLITE = ("tflite_float", "tflite_ptq")
# script -> runs: arguments, and words that are printed
RUNS = {
    "tflite_float": [("", "bytes True")],
    "caffe_float": [("", "[0.6, 1.2, 1.1]")],
    "multi_output": [("", "own tensor True 3072")],
    "dump": [("", "['kmodel.asm', 'kmodel_info.txt']")],
    "evaluator": [("", "same True 2")],
    "k230_runtime": [("", "2 True 3072")],
    "user_guide": [("", "cosine True")],
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nncase")
    models.classifier(folder / "mobilenet.onnx")
    models.detector(folder / "yolo.onnx")
    models.two_inputs(folder / "pair.onnx")
    models.audio(folder / "wav2vec.onnx")
    nncase_models.plain(folder / "plain.onnx")
    nncase_models.sequence(folder / "sequence.onnx")
    nncase_models.caffe(folder)
    nncase_models.pictures(folder)
    return folder


@pytest.fixture
def here(workspace: Path, names: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the models is the current one, and the vendors' names are installed."""
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", "/usr/bin")
    return workspace


def run(name: str, arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    return run_script(f"nncase/{name}", arguments, capsys)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def expected(model: str, **inputs: np.ndarray) -> np.ndarray:
    """The first output of the float model."""
    shapes = {n: x.shape for n, x in inputs.items()}
    graph = (
        intaglio.load(model, shapes=shapes) if model == "sequence.onnx" else intaglio.load(model)
    )
    return next(iter(intaglio.interpret(graph, inputs).values()))


@pytest.mark.parametrize("name", RUNS)
def test_scripts(name: str, here: Path, capsys: pytest.CaptureFixture[str]):
    if name in TFLITE:
        pytest.importorskip("tflite")
        nncase_models.tflite(here / "model.tflite")
    for arguments, words in RUNS[name]:
        assert words in run(name, arguments, capsys)


@pytest.mark.parametrize(
    ("option", "target"),
    [(0, "cpu"), *(pytest.param(n, "k230", marks=pytest.mark.slow) for n in range(6))],
)
def test_a_detector_becomes_a_kmodel(option: int, target: str, here: Path, capsys):
    nncase_models.yolov8(here / "yolov8n.onnx")
    arguments = (
        f"--model yolov8n.onnx --dataset_path images --ptq_option {option} --target {target}"
    )
    assert f"kmodel written {option}" in run("yolov8_kmodel", arguments, capsys)
    sim = Simulator()
    sim.load_model((here / "yolov8n.kmodel").read_bytes())
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 32, 32)).astype(np.uint8)
    sim.set_input_tensor(0, pixels)
    sim.run()
    wanted = expected("yolov8n.onnx", images=(pixels / 255).astype(np.float32))
    assert cosine(sim.get_output_tensor(0).to_numpy(), wanted) > 0.999


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ("k230 uint8 uint8 NoClip NoFineTuneWeights", 0.999),
        ("cpu int8 int8 Kld UseSquant", 0.99),
        ("k230 int16 uint8 NoClip UseAdaRound", 0.999),
        ("k510 int8 uint8 l2 NoFineTuneWeights", 0.999),
        ("k230 uint8 int16 Kld NoFineTuneWeights", 0.999),
    ],
)
def test_types_and_methods(arguments: str, least: float, here: Path, capsys):
    assert "done" in run("onnx_ptq", arguments, capsys)
    assert cosine(np.load("y.npy"), expected("mobilenet.onnx", x=np.load("x.npy"))) > least


def test_a_tflite_model_with_pictures_of_bytes(here: Path, capsys):
    pytest.importorskip("tflite")
    nncase_models.tflite(here / "model.tflite")
    assert "uint8 [1, 16, 16, 4]" in run("tflite_ptq", "", capsys)
    x = (np.load("pixels.npy")[..., ::-1] / 255).astype(np.float32)
    assert cosine(np.load("outputs.npy"), expected("model.tflite", image=x)) > 0.999


def test_letterbox(here: Path, capsys):
    assert "[1, 12, 32, 3] [1, 5]" in run("letterbox", "", capsys)
    pixels = np.load("picture.npy")[..., ::-1].transpose(0, 3, 1, 2) / 255
    small = (pixels[:, :, ::2] + pixels[:, :, 1::2]) / 2  # half-pixel bilinear to one half
    small = (small[..., ::2] + small[..., 1::2]) / 2
    x = np.full((1, 3, 16, 16), 0.5)
    x[:, :, 5:11] = small
    mean, std = (
        np.reshape(n, (1, 3, 1, 1)) for n in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    wanted = expected("mobilenet.onnx", x=((x - mean) / std).astype(np.float32))
    assert np.allclose(np.load("letterbox.npy"), wanted, rtol=1e-3, atol=1e-3)


def test_layouts_of_three_axes(here: Path, capsys):
    assert "[1, 4, 20]" in run("layouts", "", capsys)
    x = ((np.load("speech_in.npy") - 0.5) / 2).transpose(0, 2, 1)
    wanted = expected("wav2vec.onnx", speech=np.ascontiguousarray(x, np.float32))
    assert np.allclose(np.load("speech_out.npy"), wanted.transpose(0, 2, 1), atol=1e-4)


def test_two_inputs(here: Path, capsys):
    assert "2 1" in run("multi_input", "", capsys)
    a, b = np.load("pair_in.npy")
    assert cosine(np.load("pair_out.npy"), expected("pair.onnx", a=a, b=b)) > 0.999


def test_a_scheme_is_written_edited_and_read(here: Path, capsys):
    assert "1.0 ['by_channel', 'by_tensor']" in run("mixed_quant", "", capsys)
    found = np.load("mixed.npz")
    wanted = expected("mobilenet.onnx", x=found["x"])
    step = np.abs(found["first"]).max() / 50
    assert np.abs(found["again"] - found["first"]).max() < step
    assert cosine(found["mixed"], wanted) > 0.999
    types = {}
    for folder in ("mix", "again", "mixed"):
        rows = json.loads((here / folder / "QuantScheme.json").read_text())["Outputs"]
        types[folder] = {r["Name"]: r["DataType"] for r in rows}
    assert types["mix"] == types["again"]
    assert types["mix"]["r1"] == "u8"
    assert types["mixed"].get("r1", "f32") == "f32"
    assert "w1" not in types["mixed"]  # its layer computes floats


@pytest.mark.parametrize("arguments", ["cpu float", "k230 ptq"])
def test_shape_buckets(arguments: str, here: Path, capsys):
    assert "5 [1, 5, 4]" in run("shape_bucket", arguments, capsys)
    for length in (16, 5, 9):
        found = np.load(f"seq{length}.npz")
        wanted = expected("sequence.onnx", tokens=found["x"])
        assert cosine(found["y"], wanted) > (0.999 if "ptq" in arguments else 0.999999)


def test_a_kmodel_of_the_k210(here: Path, capsys):
    assert "b'LDMK' [1, 4, 8, 8]" in run("k210_v1", "k210.kmodel no_clip", capsys)
    found = np.load("k210.npz")
    x = ((found["x"] / 255 - 0.5) / 0.25).astype(np.float32)
    assert cosine(found["y"], expected("plain.onnx", x=x)) > 0.999


def test_options_of_1_x(here: Path, capsys):
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 16, 16)).astype(np.uint8)
    np.save("x8.npy", x)
    options = json.dumps({"input_type": "uint8", "input_shape": [1, 3, 16, 16], "swapRB": True})
    script = f"plain.onnx x8.npy v1 k510 {options.replace(' ', '')}"
    assert "saved uint8" in run("v1_preprocess", script, capsys)
    wanted = expected("plain.onnx", x=np.ascontiguousarray(x[:, ::-1] / 255, np.float32))
    assert cosine(np.load("v1.npy"), wanted) > 0.999


def test_wrong_steps_are_exceptions_of_one_line(here: Path, capsys):
    lines = run("wrong_steps", "", capsys).splitlines()
    assert len(lines) == 12
    assert all(line.startswith("NncaseError: ") for line in lines)
    assert "did you mean 'k230'?" in lines[0]


def test_all_scripts_are_run():
    text = Path(__file__).read_text()
    names = {p.stem for p in SCRIPTS.glob("*.py")} - {"nncase_base_func"}
    assert len(names) >= 17
    assert [n for n in sorted(names) if f'"{n}"' not in text] == []
    assert CompileOptions().target == "cpu"
    assert Compiler(CompileOptions()) is not None
