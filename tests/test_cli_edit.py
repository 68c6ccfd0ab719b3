"""`intaglio edit` on the command line: order, scripts, reports, errors, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.edit.models import classifier, close, image, run
from tests.test_cli import ROOT, intaglio

from intaglio.cli import main

GOLDEN = ROOT / "tests" / "golden" / "edit"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(classifier(), path)
    return path


def told(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """What the command prints in this process."""
    main(["edit", *map(str, args)])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The one line of an error."""
    with pytest.raises(SystemExit) as end:
        main(["edit", *map(str, args)])
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert len(printed.err.splitlines()) == 1
    return printed.err


def test_the_summary(model: Path, tmp_path: Path, monkeypatch, capsys):
    """Regenerate with `python -m tests.test_cli_edit` if it changed on purpose."""
    monkeypatch.chdir(tmp_path)
    assert summary(capsys) == (GOLDEN / "summary.txt").read_text()


EDITS = (
    *("--remove", "every Dropout"),
    *("--rename", "scores=probabilities"),
    *("--change-input", "image: uint8 NHWC"),
    *("--add-output", "r1"),
    *("--insert-after", "logits: Clip(min=0, max=6)"),
    *("--change-output", "probabilities: a,b->b,a"),
)


def summary(capsys) -> str:
    return told(capsys, "model.onnx", *EDITS, "--cut-outputs", "probabilities,r1")


def test_the_process_writes_a_model_that_computes_the_same(model: Path, tmp_path: Path):
    out = tmp_path / "edited.onnx"
    done = intaglio("edit", model, "-o", out, "--change-input", "image: uint8 NHWC")
    assert done.returncode == 0, done.stderr
    assert "checked     runs; equal to the original: scores" in done.stdout
    assert done.stdout.splitlines()[-1] == f"{out}: 0.00 MB, opset 18"
    x = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), np.uint8)
    want = run(classifier(), {"image": x.transpose(0, 3, 1, 2).astype(np.float32)})
    close(run(str(out), {"image": x})["scores"], want["scores"])


def test_edits_are_made_in_the_order_given(model: Path, tmp_path: Path, capsys):
    """Over different options, and with scripts between them: each needs the one before it."""
    script = tmp_path / "edits.txt"
    script.write_text("rename b: c  # second\n\ninsert after c: Neg\n")
    out = tmp_path / "out.onnx"
    first = ("--rename", "c1=b", "--script", script, "--insert-after", "c_Neg: Abs")
    printed = told(capsys, model, *first, "--rename", "c_Neg_Abs=q", "-o", out, "--remove", "q")
    lines = [line[12:].split("  ")[0] for line in printed.splitlines()[:6]]
    assert lines == [
        "rename c1: b",
        "rename b: c",
        "insert after c: Neg",
        "insert after c_Neg: Abs",
        "rename c_Neg_Abs: q",
        "remove q",
    ]
    assert [n.op_type for n in onnx.load(out).graph.node][:3] == ["Conv", "Neg", "Relu"]


def test_without_edits_names_are_listed(model: Path, capsys):
    lines = told(capsys, model).splitlines()
    assert lines[:2] == ["input       image  f32[1x3x8x8]", "output      scores  f32[1x5]"]
    assert lines[3].split() == ["node", "operator", "reads", "results"]
    assert lines[4].split() == ["conv1", "Conv", "image", "c1", "f32[1x4x8x8]"]
    found = json.loads(told(capsys, model, "--json"))
    assert found["nodes"][0]["results"] == {"c1": "f32[1x4x8x8]"}
    assert found["inputs"] == {"image": {"dtype": "f32", "shape": [1, 3, 8, 8]}}


def test_json(model: Path, capsys):
    found = json.loads(told(capsys, model, "--json", "--remove", "dropout", "--rename", "image=x"))
    assert found["edits"][0] == {"edit": "remove dropout", "effect": "node 'dropout' removed"}
    assert found["nodes"] == [9, 8]
    before, after = found["inputs"]
    assert list(before) == ["image"]
    assert after["x"] == {"dtype": "f32", "shape": [1, 3, 8, 8], "was": "image"}
    assert found["check"]["ran"] is True
    assert found["check"]["outputs"][0]["difference"] == 0


def test_open_dimensions_and_data(tmp_path: Path, capsys):
    path = tmp_path / "open.onnx"
    onnx.save(classifier("batch"), path)
    printed = told(capsys, path, "--change-input", "image: NHWC")
    assert "image  f32[batchx3x8x8] -> f32[batchx8x8x3]" in printed
    assert "runs at image 1x8x8x3 and at image 4x8x8x3; equal to the original: scores" in printed
    np.save(tmp_path / "x.npy", image(2).transpose(0, 2, 3, 1))
    edit = ("--change-input", "image: NHWC", "--data", f"image={tmp_path / 'x.npy'}")
    assert "runs at image 2x8x8x3;" in told(capsys, path, *edit)
    assert "runs at image 2x8x8x3;" in told(capsys, path, *edit, "--engine", "native")


def test_a_skipped_check(model: Path, capsys):
    assert "checked" not in told(capsys, model, "--remove", "relu1", "--no-check")
    wrong = ("--set-shape", "image=1x4x8x8")
    assert "image  f32[1x3x8x8] -> f32[1x4x8x8]" in told(capsys, model, *wrong, "--no-check")
    line = refused(capsys, model, *wrong)
    assert line.startswith('intaglio: --set-shape "image=1x4x8x8": the edited model does not run')
    assert line.rstrip().endswith("nothing is written; to write it nevertheless, skip the "
                                  "comparison with --no-check")  # fmt: skip


def test_data_of_the_original_is_converted(model: Path, tmp_path: Path, capsys):
    (tmp_path / "samples").mkdir()
    for i in range(2):
        np.save(tmp_path / "samples" / f"{i}.npy", image() + i)
    out = tmp_path / "e.onnx"
    edit = ("--change-input", "image: NHWC", "--convert-data", tmp_path / "samples")
    printed = told(capsys, model, "-o", out, *edit)
    assert f"data        2 samples: {tmp_path / 'e-data.txt'}" in printed
    first = (tmp_path / "e-data.txt").read_text().split()[0]
    np.testing.assert_array_equal(np.load(tmp_path / first), image().transpose(0, 2, 3, 1))
    assert "give -o" in refused(capsys, model, *edit)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["--remove", "relu9"],
            """--remove "relu9": the model has no node 'relu9'; did you mean""",
        ),
        (["--insert-after", "c1"], "has no value; write insert after TENSOR: NODE"),
        (
            ["--insert-aftr", "c1: Relu"],
            "no option is called '--insert-aftr'; did you mean '--insert",
        ),
        (["--script", "none.txt"], "cannot read 'none.txt': no such file"),
        (["--rename", "a=b", "-o", "model.onnx"], "it is the original model; give another name"),
        (["--rename", "c1=b", "-o", "e.itg"], "the edited model is ONNX"),
        (["--rename", "c1=b", "-o", "no/e.onnx"], "there is no folder"),
        (["-o", "e.onnx"], "no edit is given, 'e.onnx' would be a copy"),
        (["--change-input", "image: a,b->b"], "formula 'a,b->b': 'a' is not on the right"),
    ],
)
def test_errors_are_one_line(args, words, model: Path, monkeypatch, capsys):
    monkeypatch.chdir(model.parent)
    assert words in refused(capsys, "model.onnx", *args)
    assert [p.name for p in model.parent.iterdir()] == ["model.onnx"]


def test_an_error_in_a_script_names_the_line(model: Path, tmp_path: Path, capsys):
    script = tmp_path / "edits.txt"
    script.write_text("# head\nremove relu1\nremove conv9\n")
    line = refused(capsys, model, "-o", tmp_path / "e.onnx", "--script", script)
    assert f"{script}, line 3: the model has no node 'conv9'" in line
    assert not (tmp_path / "e.onnx").exists()
    script.write_bytes(b"\xff\xfe\0")
    assert "is no text file" in refused(capsys, model, "--script", script)


def test_missing_and_damaged_models(tmp_path: Path, capsys):
    assert "no such file" in refused(capsys, tmp_path / "none.onnx", "--remove", "a")
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07garbage")
    assert "is not an ONNX model" in refused(capsys, tmp_path / "bad.onnx", "--remove", "a")


if __name__ == "__main__":
    import contextlib
    import io
    import os
    import tempfile

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()) as shown,
    ):
        os.chdir(folder)
        onnx.save(classifier(), "model.onnx")
        main(["edit", "model.onnx", *EDITS, "--cut-outputs", "probabilities,r1"])
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / "summary.txt").write_text(shown.getvalue())
