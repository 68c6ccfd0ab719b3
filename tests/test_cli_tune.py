"""`intaglio compile --tune` on the command line, and the reports that show its choices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def intaglio(*args: object, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "intaglio", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "INTAGLIO_CACHE": str(cache)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tune")
    path, cache = folder / "digits.itg", folder / "cache"
    how = ["--tune", "--tune-seconds", 20, "--tune-threads", 1, "--explain"]
    done = intaglio("compile", DIGITS, "--dim", "batch=1", "-o", path, *how, cache=cache)
    assert done.returncode == 0, done.stderr
    assert "layers with several implementations are measured (0 from the cache" in done.stdout
    assert " us" in done.stdout
    assert "direct" in done.stdout
    return path, cache


def test_what_was_measured_serves_the_next_time(tuned: tuple[Path, Path], tmp_path: Path):
    path, cache = tuned
    again = tmp_path / "again.itg"
    done = intaglio("compile", DIGITS, "--dim", "batch=1", "-o", again, "--tune", cache=cache)
    assert " 0 in " in done.stdout
    assert again.read_bytes() == path.read_bytes()


def test_inspect_and_bench_show_the_choices(tuned: tuple[Path, Path], tmp_path: Path):
    path, cache = tuned
    shown = intaglio("inspect", path, "--choices", "--graph", cache=cache)
    assert " measured, 0 estimated" in shown.stdout
    assert ", measured)" in shown.stdout
    facts = json.loads(intaglio("inspect", path, "--json", cache=cache).stdout)
    assert facts["choices"]
    assert all(c["microseconds"] for c in facts["choices"])
    rows = json.loads(
        intaglio("bench", path, "--layers", "--seconds", 0.05, "--json", cache=cache).stdout
    )
    assert any(r["way"].endswith(", measured") for r in rows[0]["layers"])
    plain = tmp_path / "plain.itg"
    intaglio("compile", DIGITS, "--dim", "batch=1", "-o", plain, cache=cache)
    shown = intaglio("inspect", plain, "--graph", cache=cache)
    assert "0 measured, " in shown.stdout
    assert ", estimated)" in shown.stdout


def test_a_damaged_cache_is_one_line(tuned: tuple[Path, Path], tmp_path: Path):
    (file,) = tuned[1].iterdir()
    (tmp_path / file.name).write_bytes(file.read_bytes()[:50])
    done = intaglio(
        "compile", DIGITS, "--dim", "batch=1", "-o", tmp_path / "d.itg", "--tune", cache=tmp_path
    )
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "intaglio: warning: " in done.stderr
    assert "is damaged" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["compile", DIGITS, "--tune-seconds", 3], "--tune-seconds needs --tune"),
        (["compile", DIGITS, "--tune-threads", 3], "--tune-threads needs --tune"),
        (["compile", DIGITS, "--tune", "--tune-seconds", -1], "it needs more than 0"),
        (["compile", DIGITS, "--tune", "--tune-threads", 0], "it needs at least 1"),
        (["compile", DIGITS, "--tune", "--tune-seconds", "soon"], "not a valid float"),
        (["inspect", DIGITS, "--choices"], "--choices is for packages"),
    ],
)
def test_mistakes_are_one_line(args, words, tmp_path: Path):
    done = intaglio(*args, cache=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout
