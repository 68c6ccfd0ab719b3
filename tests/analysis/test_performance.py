"""Predictions add up, and say what they are made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.analysis.memory import memory
from intaglio.analysis.performance import performance
from intaglio.analysis.performance_text import page, picture, text
from intaglio.cli import main
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value
from intaglio.quant.quantize import Options


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A few quantised layers."""
    random = np.random.default_rng(0)
    x = Value(Type("f32", (1, 3, 32, 32)), "x")
    y = x
    for out, size, stride in ((16, 3, 2), (32, 1, 1), (32, 3, 1), (64, 3, 2)):
        w = random.normal(0, 0.2, (out, y.shape[1], size, size)).astype(np.float32)
        y = ops.relu(ops.conv(y, w, None, stride=(stride,) * 2, pad=(size // 2,) * 4,
                              dilation=(1, 1), groups=1))  # fmt: skip
    y = ops.softmax(ops.reduce_mean(y, axes=(2, 3), keepdims=False))
    samples = [{"x": random.normal(size=x.shape).astype(np.float32)} for _ in range(3)]
    how = Options(method="minmax", accuracy=None)
    return intaglio.quantize(Graph([x], [y], ["y"]), samples, target="rk3588", options=how)


@pytest.fixture(scope="module")
def package(graph: Graph):
    return intaglio.compile(graph, target="rk3588")


def test_layers_add_up_to_the_whole(package):
    found = performance(package)
    npu = sum(r.microseconds for r in found.layers if r.unit == "NPU")
    start = sum(t.milliseconds - t.cycles / t.chip.clock / 1e3 for t in found.timelines)
    assert found.npu_milliseconds == pytest.approx(npu / 1e3 + start)
    assert found.milliseconds == found.npu_milliseconds + found.cpu_milliseconds
    assert found.fps == pytest.approx(1e3 / found.milliseconds)
    assert sum(share for *_, share in found.ranking()) == pytest.approx(1.0)
    assert {r.op for r in found.layers if r.unit == "CPU"} >= {"softmax"}
    assert all(0 <= r.mac_use <= 1 for r in found.layers)


def test_what_if(package):
    usual = package.performance()
    assert package.performance(clock=usual.clock / 2).milliseconds > usual.milliseconds
    assert package.performance(ddr=usual.ddr / 50).milliseconds > usual.milliseconds
    with pytest.raises(BadInput, match="above 0"):
        package.performance(clock=-1)


def test_more_cores_are_faster_where_there_is_work(graph: Graph):
    one, three = (intaglio.compile(graph, target="rk3588", cores=n).performance() for n in (1, 3))
    assert (one.cores, three.cores) == (1, 3)
    assert len(three.busy[0]["compute"]) == 3
    apart = intaglio.compile(graph, target="rk3588", by_layer=True).performance()
    assert apart.milliseconds > one.milliseconds


def test_reports(package):
    found = performance(package)
    assert f"{found.milliseconds:.3f} ms" in text(found)
    assert "<svg" in page(found)
    assert picture(found).count("<rect") >= 3  # a box in each lane
    events = json.loads(found.trace())["traceEvents"]
    assert {e["tid"] for e in events} == {"load", "compute", "store"}
    assert json.loads(json.dumps(found.to_dict()))["layers"][0]["op"].startswith("conv")


def test_memory(package):
    found = memory(package)
    assert found.total == json.loads(json.dumps(found.to_dict()))["total"]
    assert found.modules[0].weights > 0
    assert "weights are most of it" in str(package.memory())


def test_packages_of_the_cpu_have_no_prediction(graph: Graph):
    package = intaglio.compile(graph)
    with pytest.raises(BadInput, match="for the CPU"):
        package.performance()
    with pytest.raises(BadInput, match="no NPU module"):
        package.memory()


def test_commands(package, graph: Graph, tmp_path: Path, capsys):
    itg, onnx = tmp_path / "net.itg", tmp_path / "net.onnx"
    package.save(itg)
    intaglio.save_onnx(graph, onnx)
    main(
        ["perf", str(itg), "--html", str(tmp_path / "p.html"), "--trace", str(tmp_path / "t.json")]
    )
    assert "frames a second" in capsys.readouterr().out
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    main(["perf", str(onnx), "--chips", "rk3588,k230"])
    assert "k230" in capsys.readouterr().out
    main(["perf", str(onnx), "--target", "rk3588", "--sweep", "cores=1,2", "--json"])
    assert [r["cores"] for r in json.loads(capsys.readouterr().out)] == [1, 2]
    main(["perf", str(itg), "--clock", "500"])
    assert "times as fast" in capsys.readouterr().out
    main(["memory", str(itg), "--json"])
    assert json.loads(capsys.readouterr().out)["target"] == "rk3588"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["perf", "none.itg"], "cannot read none.itg"),
        (["perf", "{itg}", "--sram", "1000"], "compiled already"),
        (["perf", "{onnx}"], "which chip?"),
        (["perf", "{onnx}", "--target", "rk3588", "--sweep", "colour=1"], "--sweep colour=1"),
        (["perf", "{onnx}", "--chips", "rk3588", "--html", "x.html"], "for one prediction"),
        (["memory", "{onnx}", "--target", "cpu"], "intaglio inspect"),
    ],
)
def test_mistakes_are_one_line(package, graph, tmp_path: Path, capsys, args, words):
    files = {"itg": tmp_path / "net.itg", "onnx": tmp_path / "net.onnx"}
    package.save(files["itg"])
    intaglio.save_onnx(graph, files["onnx"])
    with pytest.raises(SystemExit) as e:
        main([a.format(**files) for a in args])
    assert e.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
