"""`intaglio perf --as-vendor`, its API and the benchmark of published speeds predict the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import intaglio
from benchmarks import npu_fit, npu_nets
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.cli import main
from intaglio.targets import chip

NAMES = {"i8": "int8", "f16": "fp16", "f32": "fp32"}
MORE = Path(npu_fit.__file__).with_name("npu_more.csv")
QUICK = [
    ("rk3588", "mobilenet_v2", "i8", 1, 1),
    ("rk3576", "resnet50_v2", "i8", 1, 1),
    ("rk3588", "retinaface_320", "i8", 1, 1),
    ("bm1684x", "retinaface_640", "f16", 1, 1),
    ("bm1688", "lprnet", "i8", 4, 2),
]
NAMED = [  # those that differed most
    ("k230", "yolov8s_det", "i8", 1, 1),
    ("bm1684x", "yolov5s_3output", "i8", 1, 1),
]
EVERY = [
    (c, net, dtype, batch, 1)
    for c in ("rk3566", "rk3562", "rk3588", "rk3576", "k230", "bm1684", "bm1684x", "cv186x")
    for net in dict.fromkeys(npu_fit.NETS.values())
    for dtype, batch in (("i8", 1), ("f16", 1), ("i8", 4))
    if dtype in chip.load(c).types and not (net == "yolox_s" and c in ("bm1684", "bm1684x"))
]


def _row(case: tuple[str, str, str, int, int]) -> npu_fit.Row:
    return npu_fit.Row(*case, 1.0)


def _benchmark(row: npu_fit.Row) -> float:
    return npu_fit.predict(row, npu_fit.network(row), chip.load(row.chip))


def _api(row: npu_fit.Row) -> float:
    """What a user of `Model` gets for the network as a quantised model."""
    model = Model(npu_nets.model(npu_nets.MAKERS[row.net](row.batch)), as_vendor=True)
    found = model.performance(row.chip, WhatIf(dtype=NAMES[row.dtype], cores=row.cores))
    assert sum(r.microseconds for r in found.layers) == pytest.approx(1e3 * found.milliseconds)
    return found.milliseconds / row.batch


def _command(row: npu_fit.Row, path: Path, capsys: pytest.CaptureFixture[str]) -> float:
    """What the command prints for the network as an ONNX file."""
    intaglio.save_onnx(npu_nets.model(npu_nets.MAKERS[row.net](row.batch)), path)
    how = ["--target", row.chip, "--dtype", NAMES[row.dtype], "--cores", str(row.cores)]
    main(["perf", str(path), "--as-vendor", "--json", *how])
    return float(json.loads(capsys.readouterr().out)["milliseconds"]) / row.batch


@pytest.mark.parametrize("case", QUICK[:3])
def test_the_api_predicts_what_the_benchmark_does(case):
    assert _api(_row(case)) == pytest.approx(_benchmark(_row(case)), rel=1e-9)


def test_the_command_predicts_what_the_benchmark_does(tmp_path: Path, capsys):
    row = _row(QUICK[2])
    assert _command(row, tmp_path / "m.onnx", capsys) == pytest.approx(_benchmark(row), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("case", NAMED)
def test_the_command_predicts_large_detectors_as_the_benchmark_does(case, tmp_path: Path, capsys):
    row = _row(case)
    assert _command(row, tmp_path / "m.onnx", capsys) == pytest.approx(_benchmark(row), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*QUICK[3:], *NAMED, *EVERY])
def test_the_api_predicts_every_row_of_the_benchmark(case):
    assert _api(_row(case)) == pytest.approx(_benchmark(_row(case)), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("row", npu_fit.read(MORE), ids=lambda r: r.label)
def test_the_api_predicts_the_rows_of_the_table(row):
    assert _api(row) == pytest.approx(_benchmark(row), rel=1e-9)
