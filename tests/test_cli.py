"""The command line in its own process: exit codes, output and messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def intaglio(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "intaglio", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "digits.itg"
    done = intaglio("compile", DIGITS, "--dim", "batch=1", "-o", path)
    assert done.returncode == 0, done.stderr
    assert "compiled in" in done.stdout
    return path


def test_run_prints_and_saves_the_outputs(package: Path, tmp_path: Path):
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    np.save(tmp_path / "image.npy", image)
    done = intaglio("run", package, tmp_path / "image.npy", "-o", tmp_path / "out.npz", "--json")
    assert done.returncode == 0, done.stderr
    printed = np.array(json.loads(done.stdout)["probabilities"], np.float32)
    with np.load(tmp_path / "out.npz") as saved:
        np.testing.assert_array_equal(saved["probabilities"], printed)
    assert printed.shape == (1, 10)
    assert printed.sum() == pytest.approx(1, abs=1e-5)


def test_run_takes_a_model_and_makes_up_inputs():
    done = intaglio("run", DIGITS, "--dim", "batch=2", "--fill", "random", "--top", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("probabilities: float32[2, 10]")


def test_inspect_counts_what_is_there(package: Path):
    done = intaglio("inspect", DIGITS, "--dim", "batch=1", "--json")
    facts = json.loads(done.stdout)
    assert facts["inputs"] == {"image": {"dtype": "f32", "shape": [1, 1, 8, 8]}}
    # stem 8*8*9*32, two blocks of 8*8*(9*32 + 32*32), down 4*4*9*32*64, classify 64*10
    assert facts["macs"] == 64 * 9 * 32 + 2 * 64 * (9 * 32 + 32 * 32) + 16 * 9 * 32 * 64 + 640
    done = intaglio("inspect", package)
    assert done.returncode == 0, done.stderr
    assert "memory plan" in done.stdout
    assert "probabilities  f32[1x10]" in done.stdout


def test_bench_reports_latency_and_layers(package: Path):
    done = intaglio("bench", package, "--seconds", "0.05", "--threads", "1,2", "--layers", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [r["threads"] for r in rows] == [1, 2]
    assert all(r["median_ms"] >= r["min_ms"] > 0 and r["layers"] for r in rows)


@pytest.mark.parametrize("command", ["compile", "run", "inspect", "bench", "quantize"])
def test_help_teaches_by_example(command: str):
    done = intaglio(command, "--help")
    assert done.returncode == 0
    assert f"intaglio {command} model" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["compile", "missing.onnx"], "missing.onnx"),
        (["compile", DIGITS], "--dim batch="),
        (["compile", DIGITS, "--dim", "batch=x"], "whole number"),
        (["compile", DIGITS, "--dim", "batch"], "NAME=VALUE"),
        (["compile", DIGITS, "--shape", "nope=1x1x8x8"], "nope"),
        (["compile", DIGITS, "--dim", "batch=1", "--target", "abacus"], "abacus"),
        (["compile", DIGITS, "--dim", "batch=1", "--isa", "mmx"], "mmx"),
        (["compile", DIGITS, "--dim", "batch=1", "--output", "nope"], "nope"),
        (["compile", DIGITS, "--dim", "batch=1", "-o", "no/such/folder/x.itg"], "no/such/folder"),
        (["compile", __file__], "test_cli.py"),
        (["run", DIGITS, "--dim", "batch=1"], "'image' is missing"),
        (["run", DIGITS, "--dim", "batch=1", "nope.npy"], "nope.npy"),
        (["run", DIGITS, "--dim", "batch=1", "--threads", "0"], "--threads"),
        (["bench", DIGITS, "--dim", "batch=1", "--threads", "two"], "whole number"),
        (["polish", "model.onnx"], "polish"),
        (["compile", "--frobnicate"], "--frobnicate"),
    ],
    ids=lambda a: " ".join(Path(str(x)).name for x in a) if isinstance(a, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(args: list[object], words: str, tmp_path: Path):
    done = intaglio(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not list(tmp_path.iterdir()), "something was left behind"
