"""`python -m intaglio.compat ncc`: compile and infer, as nncase 1.x documents them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.compat import models, nncase_models

import intaglio
from intaglio.compat.__main__ import main
from intaglio.compat.log import Log
from intaglio.compat.nncase.ncc import main as ncc


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nncase_models.plain(Path("m.onnx"))
    nncase_models.pictures(Path(), 3)


def run(command: str) -> int:
    return main(["ncc", *command.split()])


def test_a_model_is_quantised_for_the_k210_and_run(capsys: pytest.CaptureFixture[str]):
    assert run("compile -i onnx -t k210 m.onnx m.kmodel --dataset images --dump-dir d") == 0
    said = capsys.readouterr().out
    assert said.index("1. Import graph...") < said.index("4. Generate code...")
    assert "OUTPUTS\n0\tfloat32[1, 4, 8, 8]" in said
    assert Path("m.kmodel").read_bytes()[:4] == b"LDMK"
    assert run("infer m.kmodel out --dataset images") == 0
    from PIL import Image

    picture = Image.open("images/1.png").resize((16, 16), Image.BILINEAR)
    x = (np.asarray(picture).transpose(2, 0, 1)[None] / 255).astype(np.float32)
    wanted = intaglio.interpret(intaglio.load("m.onnx"), {"x": x})["y"].ravel()
    found = np.fromfile("out/1.bin", np.float32)
    assert found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted) > 0.999


def test_preprocessing_and_the_form_of_0_2():
    command = "compile m.onnx m.kmodel -i onnx -o kmodel -t k510 --dataset raw --dataset-format raw"
    Path("raw").mkdir()
    for i in range(2):
        np.full((1, 16, 16, 3), 100 * i, np.uint8).tofile(f"raw/{i}.bin")
    more = ["--preprocess", "--input-shape", "1 16 16 3", "--input-range", "0,1", "--swapRB"]
    more += ["--input-layout", "NHWC", "--mean", "0.4 0.5 0.6", "--std", "[1,1,2]"]
    assert ncc([*command.split(), *more], Log()) == 0
    assert run("infer m.kmodel out --dataset raw --dataset-format raw") == 0
    assert Path("out/0.bin").stat().st_size == 4 * 4 * 8 * 8


def test_caffe_and_cut_models():
    nncase_models.caffe(Path())
    both = "model.caffemodel --input-prototxt model.prototxt c.kmodel"
    assert run(f"compile -i caffe -t cpu {both}") == 0
    assert run("compile -i onnx -t cpu m.onnx c.kmodel --output-arrays r0 --dump-asm") == 0
    assert Path("tmp/kmodel.asm").exists()


def test_version_and_help(capsys: pytest.CaptureFixture[str]):
    for arguments in ("-v", "--help", "compile --help"):
        assert run(arguments) == 0
    assert run("") == 0
    said = capsys.readouterr().out
    assert "ncc 1.9.0" in said
    assert "--calibrate-method" in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("complie", "did you mean 'compile'?"),
        ("compile -i onnx -t k999 m.onnx o", "target is 'k999'"),
        ("compile -i onnx m.onnx o", "required: -t/--target"),
        ("compile -i paddle -t cpu m.onnx o", "invalid choice: 'paddle'"),
        ("compile -i onnx -t cpu nope.onnx o", "there is no file 'nope.onnx'"),
        ("compile -i onnx -t cpu m.onnx o --datset x", "did you mean '--dataset'?"),
        ("compile -i onnx -t cpu m.onnx o --dataset x", "there is no folder 'x'"),
        ("compile -i onnx -t cpu m.onnx o --preprocess", "--input-shape"),
        ("compile -i onnx -t cpu m.onnx o --mean red", "--mean is 'red'"),
        ("compile -i caffe -t cpu m.onnx o", "--input-prototxt"),
        ("compile -i onnx -t cpu m.onnx no/such/folder/o", "no/such/folder"),
        ("compile -i tflite -t cpu m.onnx o", "import_tflite"),
        ("infer m.onnx o --dataset images", "this is no kmodel"),
        ("infer m.onnx o", "required: --dataset"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(command: str, words: str, capsys):
    assert run(command) == 2
    said = capsys.readouterr().err
    assert said.startswith("E ncc: ")
    assert said.count("\n") == 1
    assert words in said


def test_datasets_that_do_not_fit(capsys: pytest.CaptureFixture[str]):
    models.two_inputs(Path("pair.onnx"))
    Path("text").mkdir()
    Path("text/a.txt").write_text("no picture")
    Path("empty").mkdir()
    for model, dataset, words in (
        ("pair.onnx", "images", "models with one input"),
        ("m.onnx", "text", "not a readable picture"),
        ("m.onnx", "empty", "is empty"),
    ):
        assert run(f"compile -i onnx -t cpu {model} o.kmodel --dataset {dataset}") == 2
        assert words in capsys.readouterr().err
    assert run("compile -i onnx -t cpu m.onnx o --dataset text --dataset-format raw") == 2
    assert "'text/a.txt' has 10 bytes, the model takes 3072" in capsys.readouterr().err
