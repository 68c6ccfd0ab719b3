"""`intaglio perf --as-vendor` and the benchmark of published speeds predict the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import npu_fit, npu_zoo
from intaglio.cli import main
from intaglio.targets import chip

onnx = pytest.importorskip("onnx")

QUICK = [
    npu_fit.Row("rk3576", "retinaface_320", "i8", 1, 1, 1.0),
    npu_fit.Row("bm1688", "extractor", "f16", 4, 2, 1.0),
]


def _command(row: npu_fit.Row, path: Path, capsys: pytest.CaptureFixture[str]) -> float:
    """What the command prints for the network as an ONNX file."""
    onnx.save(npu_zoo.model(row.net), path)
    how = ["--target", row.chip, "--dtype", npu_fit.NAMES[row.dtype], "--cores", str(row.cores)]
    how += ["--batch", str(row.batch)] if row.batch > 1 else []
    main(["perf", str(path), "--as-vendor", "--json", *how])
    found = json.loads(capsys.readouterr().out)
    assert sum(r["microseconds"] for r in found["layers"]) == pytest.approx(
        1e3 * found["milliseconds"]
    )
    return float(found["milliseconds"]) / row.batch


def _agree(row: npu_fit.Row, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = npu_fit.predict(row, npu_fit.network(row), chip.load(row.chip))
    assert _command(row, path, capsys) == pytest.approx(benchmark, rel=1e-6)


@pytest.mark.parametrize("row", QUICK, ids=lambda r: r.label)
def test_the_command_predicts_what_the_benchmark_does(row, tmp_path: Path, capsys):
    _agree(row, tmp_path / "m.onnx", capsys)


@pytest.mark.slow
@pytest.mark.parametrize("row", npu_fit.read(), ids=lambda r: r.label)
def test_the_command_predicts_every_row_of_the_table(row, tmp_path: Path, capsys):
    _agree(row, tmp_path / "m.onnx", capsys)
