"""`intaglio compress`: recipes, their mistakes, the report, going on after an end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.compress.small_nets import build, labelled, with_softmax

import intaglio
from intaglio.cli import main

torch = pytest.importorskip("torch", reason="needs torch: pip install .[train]")
torch.set_num_threads(1)

STEPS = """
model: net.onnx
steps:
  - train: {epochs: 8, batch: 16, rate: 0.01}
  - prune: {macs: 0.6, criterion: taylor, round_to: 4}
  - train: {epochs: 4, batch: 16, rate: 0.005, teacher: self}
  - sparsify: "2:4 in"
  - train: {epochs: 6, batch: 16, rate: 0.005}
  - quantize: {weights: 4, fast: true}
  - train: {epochs: 2, batch: 16}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    intaglio.save_onnx(with_softmax(build("residual")), tmp_path / "net.onnx")
    for name, seed in (("train.npz", 0), ("test.npz", 1)):
        x, y = labelled(192, seed)
        np.savez(tmp_path / name, x=x, y=y)
    (tmp_path / "recipe.yaml").write_text(STEPS)
    return tmp_path


ARGS = ["compress", "recipe.yaml", "--data", "train.npz", "--test", "test.npz"]


def test_a_recipe_runs_and_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]):
    more = ["--checkpoints", "kept", "--html", "report.html", "--json"]
    main([*ARGS, "-o", "small.itg", *more])
    first = json.loads(capsys.readouterr().out)
    stages = first["stages"]
    assert [s["name"].split()[-1] for s in stages] == [
        "start", "train", "prune", "train", "sparsify", "train", "quantize", "train"
    ]  # fmt: skip
    assert stages[-1]["accuracy"] > 60 > stages[0]["accuracy"]
    assert stages[3]["macs"] <= 0.61 * stages[0]["macs"]
    assert sorted(p.name for p in Path("kept").iterdir()) == [
        "01-train.pt", "03-train.pt", "05-train.pt", "07-train.pt"
    ]  # fmt: skip
    page = Path("report.html").read_text()
    assert "Channels kept" in page
    assert "fewer" in page
    assert "Weights kept" in page
    assert "measured on one thread" in page
    assert first["after"]["bytes"] < first["before"]["bytes"]
    assert first["after"]["milliseconds"] > 0
    with intaglio.open("small.itg") as session:
        x = np.load("test.npz")["x"][:1]
        assert session.run({"input": x})["scores"].shape == (1, 10)
    main([*ARGS, "-o", "again.onnx", *more])  # every training is done: nothing is trained again
    again = json.loads(capsys.readouterr().out)
    assert [s["accuracy"] for s in again["stages"]] == [s["accuracy"] for s in stages]
    loaded = intaglio.load("again.onnx")
    with intaglio.open(intaglio.compile(loaded)) as session, intaglio.open("small.itg") as other:
        assert np.allclose(
            session.run({"input": x})["scores"], other.run({"input": x})["scores"], atol=1e-6
        )


LATER = "model: net.onnx\nsteps:\n  - train: {epochs: 100000}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps: []", "'model' is missing"),
        (
            "model: net.onnx\nsteps:\n  - prone: {macs: 0.5}",
            "no key is called 'prone'; did you mean",
        ),
        ("model: net.onnx\nsteps:\n  - prune: {mac: 0.5}", "prune: no key is called 'mac'"),
        ("model: net.onnx\nsteps:\n  - prune", "write one step"),
        ("model: net.onnx\nsteps:\n  - train: {epochs: -1}", "epochs is -1"),
        ("model: [", "no YAML"),
        ("model: net.onnx\nsteps:", "steps is None; give a list"),
        ("model: net.onnx\ndata: 5\nsteps: []", "data is 5"),
        ("model: net.onnx\ndata: {std: 0}\nsteps: []", "std is 0; give numbers above 0"),
        ("model: net.onnx\ntarget: rk35\nsteps: []", "rk35"),
        ("model: net.onnx\nsteps:\n  - train: {teacher: no.onnx}", "no.onnx: no such file"),
        # mistakes of later steps, before the first one runs
        (LATER + "  - prune: {macs: 2}", "step 2: macs is 2"),
        (LATER + "  - prune: {ms: 2}", "step 2: ms: predictions are for chips"),
        (LATER + "  - sparsify: '3:4'", "step 2: pattern is '3:4'; known are 2:4 in"),
        (LATER + "  - quantize: {weights: 1}", "step 2: weights is 1"),
        (LATER + "  - quantize:\n  - prune: {macs: 0.5}", "step 3: prune after quantize"),
        (LATER + "  - binarize: {leave: conv1}", "step 2: leave is 'conv1'; give a list"),
        (LATER + "  - train: {device: 3}", "step 2: device is 3; give auto, cpu or cuda"),
        (LATER + "fold: 3", "fold is 3; give true or false"),
        (LATER + "  - train: {flip: 3}", "step 2: flip is 3"),
        (LATER + "  - train: {teacher: self, labels: x}", "step 2: labels is 'x'"),
        ("model: net.onnx\ntarget: k210\nsteps:\n  - quantize: {weights: 4}", "fewer than 8 bits"),
    ],
)
def test_mistakes_are_one_line(folder: Path, capsys, text: str, words: str):
    (folder / "recipe.yaml").write_text(text)
    with pytest.raises(SystemExit) as e:
        main([*ARGS, "-o", "small.itg"])
    told = capsys.readouterr().err
    assert e.value.code == 2
    assert words in told
    assert told.count("\n") == 1
    assert not Path("small.itg").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-o", "nowhere/small.itg"], "cannot write nowhere/small.itg: there is no folder"),
        (["-o", "small.itg", "--html", "nowhere/a.html"], "cannot write nowhere/a.html"),
        (["-o", "small.tar"], "must end in .itg or .onnx"),
        (
            ["-o", "small.itg", "--test", "classes.npz"],
            "a label is class 10, the model has 10 outputs",
        ),
        (["-o", "small.itg", "--test", "pictures"], "there are no pictures in its folders"),
        (["-o", "small.itg", "--test", "broken"], "x.png: cannot be read (no picture)"),
        (["-o", "small.itg", "--test", "none.npz"], "data is 'none.npz'; give an .npz file"),
    ],
)
def test_bad_files_are_refused_before_training(folder: Path, capsys, args: list[str], words: str):
    (folder / "recipe.yaml").write_text(LATER)
    x, y = labelled(8)
    np.savez(folder / "classes.npz", x=x, y=y + 10 - y.max())
    for name in ("pictures", "broken"):
        (folder / name / "first").mkdir(parents=True)
    (folder / "broken" / "first" / "x.png").write_text("no pixels")
    with pytest.raises(SystemExit) as e:
        main([*ARGS, *args])
    told = capsys.readouterr().err
    assert e.value.code == 2
    assert words in told
    assert told.count("\n") == 1
