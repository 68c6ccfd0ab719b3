"""Performance reports: layers sum up to the total; text, page and trace."""

from __future__ import annotations

import html
import json
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.analysis import vendor_style
from intaglio.analysis.memory import memory
from intaglio.analysis.performance import performance
from intaglio.analysis.performance_page import page, picture
from intaglio.analysis.performance_text import text
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.cli import main
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value
from intaglio.quant import Options


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A few quantised layers."""
    random = np.random.default_rng(0)
    x = Value(Type("f32", (1, 3, 32, 32)), "x")
    y = x
    for out, size, stride in ((16, 3, 2), (32, 1, 1), (32, 3, 1), (64, 3, 2)):
        w = random.normal(0, 0.2, (out, y.shape[1], size, size)).astype(np.float32)
        y = ops.relu(
            ops.conv(
                y, w, None, stride=(stride,) * 2, pad=(size // 2,) * 4, dilation=(1, 1), groups=1
            )
        )
    y = ops.softmax(ops.reduce_mean(y, axes=(2, 3), keepdims=False))
    samples = [{"x": random.normal(size=x.shape).astype(np.float32)} for _ in range(3)]
    how = Options(method="minmax", accuracy=None)
    return intaglio.quantize(Graph([x], [y], ["y"]), samples, target="rk3588", options=how)


@pytest.fixture(scope="module")
def package(graph: Graph):
    return intaglio.compile(graph, target="rk3588")


def test_layers_sum_to_the_total(package):
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
    assert str(found.band) in text(found)
    assert found.to_dict()["band"]["low"] < found.milliseconds < found.band.high
    events = json.loads(found.trace())["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    ran = [e for e in events if e["ph"] == "X"]
    assert {lanes[e["pid"], e["tid"]] for e in ran} == {"CPU", "load", "compute", "store"}
    assert max(e["ts"] + e["dur"] for e in ran) == pytest.approx(1e3 * found.milliseconds)
    plain = json.loads(json.dumps(found.to_dict()))
    assert [r["id"] for r in plain["layers"]] == list(range(len(plain["layers"])))
    assert plain["layers"][0]["op"] == "quantize_linear"  # as they run
    assert plain["layers"][1]["op"].startswith("conv")
    assert sum(plain["bounds"].values()) == pytest.approx(1)
    assert all(r["inputs"] and r["output"] for r in plain["layers"])
    shown = page(found, "what if <clock>")
    assert "what if &lt;clock&gt;" in shown
    assert all(html.escape(r.name) in shown for r in found.layers)


def test_modules_run_in_sequence(package):
    found = performance(package)
    assert [p.name for p in found.parts] == ["cpu0", "npu0", "cpu1"]
    assert [p.begin for p in found.parts[1:]] == [p.end for p in found.parts[:-1]]
    assert found.parts[-1].end == pytest.approx(1e3 * found.milliseconds)
    on_cpu = [r for r in found.layers if r.unit == "CPU"]
    assert len(on_cpu) == len(package.meta["partition"]["on_cpu"])
    assert sum(r.microseconds for r in on_cpu) == pytest.approx(1e3 * found.cpu_milliseconds)


def test_memory(package):
    found = memory(package)
    assert found.total == json.loads(json.dumps(found.to_dict()))["total"]
    assert found.modules[0].weights > 0
    assert "weights take the most" in str(package.memory())
    for r in found.modules[0].maps:
        assert r.name in str(package.memory())


def test_the_peak_of_internal_memory_is_that_of_the_plan(graph: Graph):
    """Feature maps are live while the groups of layers that use them run."""
    report = intaglio.compile(graph, target="rk3566", by_layer=True).memory()
    plain = report.to_dict()["modules"][0]
    assert plain["internal_peak"]["bytes"] == plain["internal"] > 0
    assert f"of {plain['internal']:,} bytes are live" in plain["advice"][-2]
    assert plain["internal_peak"]["maps"]


def test_packages_of_the_cpu_have_no_prediction(graph: Graph):
    package = intaglio.compile(graph)
    with pytest.raises(BadInput, match="for the CPU"):
        package.performance()
    assert package.memory().internal == package.plan.arena


def test_notebooks_show_tables(package):
    for found in (package.performance(), package.memory()):
        html = found._repr_html_()
        assert "<table>" in html
        assert "<svg" in html


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


def test_a_package_is_predicted_as_the_vendor_would_run_it(package, graph: Graph, tmp_path: Path):
    model = Model(graph, as_vendor=True)
    for what in (WhatIf(), WhatIf(dtype="fp16", cores=2), WhatIf(clock=500, ddr=4)):
        usual = model.performance("rk3588", what)
        found = vendor_style.of_package(package, what)
        assert found.milliseconds == usual.milliseconds
        assert [r.microseconds for r in found.layers] == [r.microseconds for r in usual.layers]
    assert found.milliseconds > package.performance(clock=500, ddr=4).npu_milliseconds


def test_a_package_in_f16_is_predicted_as_the_vendor_would_run_it():
    x = Value(Type("f32", (1, 16, 32, 32)), "x")
    w = np.random.default_rng(0).normal(0, 0.2, (32, 16, 3, 3)).astype(np.float32)
    y = ops.conv(x, w, None, stride=(1, 1), pad=(1,) * 4, dilation=(1, 1), groups=1)
    floats = intaglio.compile(Graph([x], [y], ["y"]), target="rk3588", precision="f16")
    found = vendor_style.of_package(floats, WhatIf())
    assert {r.dtype for r in found.layers if r.unit == "NPU"} == {"f16"}
    products = 32 * 16 * 9 * 32 * 32
    assert found.milliseconds > products / 512 / 1e6  # the rate of f16, at 1 GHz
    with pytest.raises(BadInput, match="computes in f16; another type"):
        vendor_style.of_package(floats, WhatIf(dtype="int8"))


def test_the_largest_costs_are_explained(package, tmp_path: Path, capsys):
    itg = tmp_path / "net.itg"
    package.save(itg)
    main(["perf", str(itg), "--as-vendor", "--explain"])
    said = capsys.readouterr().out
    assert said.count("to change it: ") == 3
    assert "ops beside the units, 2 layers" in said or "end the model before" in said
    main(["perf", str(itg), "--explain", "--json"])
    costs = json.loads(capsys.readouterr().out)["explain"]
    assert [c["microseconds"] for c in costs] == sorted(
        (c["microseconds"] for c in costs), reverse=True
    )
    assert 0 < sum(c["share"] for c in costs) <= 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["perf", "{itg}", "--explain", "--sweep", "clock=1,2"], "leave it out here"),
        (["perf", "none.itg"], "none.itg: no such file"),
        (["perf", "{cut}"], "it is truncated"),
        (["perf", "{cpu}"], "this package is for the CPU"),
        (["perf", "{cpu}", "--cores", "3"], "compiled already"),
        (["perf", "{cpu}", "--chips", "all"], "need the model file"),
        (["perf", "{itg}", "--payoff", "--target", "rk3588"], "need the model file"),
        (["perf", "{itg}", "--clock", "0"], "clock is 0; it must be above 0"),
        (["perf", "{itg}", "--ddr", "nan"], "ddr is nan; it must be above 0"),
        (["perf", "{itg}", "--sweep", "clock=100,inf"], "clock is inf"),
        (["perf", "{itg}", "--sweep", "clock=100,200", "--clock", "9"], "leave out one of them"),
        (["perf", "{onnx}", "--target", "rk3589"], "no chip is called 'rk3589'"),
        (["perf", "{onnx}", "--chips", "rk3588", "--target", "k230"], "leave out --target"),
        (["memory", "none.itg"], "none.itg: no such file"),
        (["memory", "{onnx}", "--batch", "2"], "assumptions are about a chip"),
        (["memory", "{itg}", "--target", "rk3588"], "leave out --target"),
        (["memory", "{itg}", "--batch", "2"], "compiled already"),
        (["perf", "{itg}", "--sram", "1000"], "compiled already"),
        (["perf", "{itg}", "--as-vendor", "--batch", "2"], "needs the model file"),
        (["perf", "{cpu}", "--as-vendor"], "it is for the CPU"),
        (["perf", "{itg}", "--as-vendor", "--dtype", "int4"], "does not multiply i4"),
        (["perf", "{onnx}"], "no chip is given"),
        (["perf", "{onnx}", "--target", "rk3588", "--sweep", "colour=1"], "not colour=1"),
        (["perf", "{onnx}", "--chips", "rk3588", "--html", "x.html"], "for one prediction"),
    ],
)
def test_mistakes_are_one_line(package, graph, tmp_path: Path, capsys, args, words):
    files = {k: tmp_path / f"net.{k}" for k in ("itg", "onnx", "cpu", "cut")}
    package.save(files["itg"])
    files["cut"].write_bytes(package.bytes[:3000])
    intaglio.save_onnx(graph, files["onnx"])
    if "{cpu}" in args:
        intaglio.compile(graph).save(files["cpu"])
    with pytest.raises(SystemExit) as e:
        main([a.format(**files) for a in args])
    assert e.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_several_sizes_are_reported_at_the_largest(tmp_path):
    """The metadata of layers is of the largest plan, which is the last one."""
    from onnx import TensorProto, helper, numpy_helper, save

    w = np.random.default_rng(0).normal(0, 0.2, (16, 16, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "a", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["y"], "y"),
    ]
    shape = [1, 16, "side", "side"]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"]
    held = [numpy_helper.from_array(w, "w")]
    save(
        helper.make_model(helper.make_graph(nodes, "g", *([p] for p in ports), held)),
        tmp_path / "m",
    )
    both, large = (
        intaglio.compile(tmp_path / "m", target="rk3588", dims={"side": sides})
        for sides in ([48, 8], 48)
    )
    assert performance(both).to_dict() == performance(large).to_dict()
    assert memory(both).cpu_arena == memory(large).cpu_arena
