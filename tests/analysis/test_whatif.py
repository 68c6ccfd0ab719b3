"""What-if predictions: a changed clock, type, batch or memory changes the prediction."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.analysis import arena, payoff
from intaglio.analysis.memory import picture
from intaglio.analysis.whatif import Model, WhatIf, batched, pruned
from intaglio.cli import main, model_files
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.predict.element_types import as_bytes
from intaglio.npu.sparse_weights import blocks
from intaglio.quant import Options
from intaglio.targets import chip as chips

WINDOW = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def net() -> Graph:
    """Convolutions, then linear layers on rows: a flattened image with a class token in front."""
    random = np.random.default_rng(0)
    x = Value(Type("f32", (1, 32, 16, 16)), "x")
    y = x
    for size in (3, 3, 1):
        w = random.normal(0, 0.1, (64, y.shape[1], size, size)).astype(np.float32)
        pad = (size // 2,) * 4
        y = ops.relu(ops.conv(y, w, None, **{**WINDOW, "pad": pad}))
    y = ops.transpose(ops.reshape(y, shape=(1, 64, 256)), perm=(0, 2, 1))
    first = constant(random.normal(size=(1, 1, 64)).astype(np.float32))
    y = ops.concat(first, y, axis=1)
    y = ops.matmul(ops.part(y, 0, 100, axis=1), random.normal(0, 0.1, (64, 32)).astype(np.float32))
    return Graph([x], [y], ["y"])


@pytest.fixture(scope="module")
def graph() -> Graph:
    random = np.random.default_rng(1)
    samples = [{"x": random.normal(size=(1, 32, 16, 16)).astype(np.float32)} for _ in range(2)]
    how = Options(method="minmax", accuracy=None)
    return intaglio.quantize(net(), samples, target="rk3588", options=how)


@pytest.fixture(scope="module")
def model(graph: Graph) -> Model:
    return Model(graph)


def test_a_batch_computes_what_its_samples_do(graph: Graph):
    for one in (net(), graph):
        x = np.random.default_rng(2).normal(size=(3, 32, 16, 16)).astype(np.float32)
        each = [intaglio.interpret(one, {"x": x[i : i + 1]})["y"] for i in range(3)]
        got = intaglio.interpret(batched(one, 3), {"x": x})["y"]
        np.testing.assert_allclose(got, np.concatenate(each), rtol=1e-5, atol=1e-5)


def test_models_without_a_batch_axis_are_refused():
    x = Value(Type("f32", ()), "x")
    with pytest.raises(BadInput, match="a first axis of fixed size"):
        batched(Graph([x], [ops.relu(x)], ["y"]), 2)
    with pytest.raises(BadInput, match="at least 1"):
        batched(net(), 0)
    x = Value(Type("f32", (1, 4)), "x")
    y = ops.matmul(np.ones((3, 1), np.float32), x, origin="turned")
    with pytest.raises(BadInput, match="matmul 'turned' has a fixed batch"):
        batched(Graph([x], [y], ["y"]), 2)


@pytest.mark.parametrize("form", ["2:4 in", "2:4 out", "16:4"])
def test_pruned_weights_are_stored_without_zeros(graph: Graph, model: Model, form: str):
    chip = chips.load("rk3576")
    weights = [
        w for w in pruned(graph, form, chip).values() if w.data is not None and w.type.rank == 4
    ]
    for w in weights:
        if form == "16:4":
            cut = blocks(np.moveaxis(w.data, (2, 3), (0, 1))) != 0
            assert cut.any(-1).sum(-1).max() == cut.any(-2).sum(-1).max() == 2
            continue
        lines = np.moveaxis(w.data, 0 if "out" in form else 1, -1)
        assert np.count_nonzero(lines.reshape(-1, 4), 1).max() == 2
    dense, sparse = (model.memory("rk3576", WhatIf(sparse=f)).modules for f in (None, form))
    assert sum(m.weights for m in sparse) < 0.75 * sum(m.weights for m in dense)
    with pytest.raises(BadInput, match=r"rk3588 does not read .* sparse weights"):
        pruned(graph, form, chips.load("rk3588"))
    with pytest.raises(BadInput, match="'1:2'; it is one of 2:4 in"):
        pruned(graph, "1:2", chip)


def test_wider_types_take_longer_and_more_memory(model: Model):
    narrow, wide = (model.performance("rk3588", WhatIf(dtype=t)) for t in ("int8", "fp16"))
    assert narrow.milliseconds == model.performance("rk3588", WhatIf()).milliseconds
    assert wide.milliseconds > narrow.milliseconds
    assert {r.dtype for r in wide.layers if r.unit == "NPU"} == {"f16"}
    assert wide.ddr == narrow.ddr
    small, large = (model.memory("rk3588", WhatIf(dtype=t)).modules[0] for t in (None, "int16"))
    floats = small.outputs  # f32 outputs do not get wider; transfers are whole bursts
    assert wide.bytes == pytest.approx(2 * narrow.bytes - floats, rel=0.1)
    assert large.sram == small.sram
    assert large.inputs == 2 * small.inputs
    assert large.outputs == small.outputs == floats > 60_000
    assert large.traffic - floats == 2 * (small.traffic - floats)
    with pytest.raises(BadInput, match="does not multiply i16; it has i8, f16"):
        as_bytes(chips.load("bm1684x"), "i16")


def test_unknown_types_are_refused(model: Model):
    with pytest.raises(BadInput, match="element type is 'int3'"):
        model.performance("rk3588", WhatIf(dtype="int3"))
    with pytest.raises(BadInput, match="does not multiply i4"):
        model.performance("rk3588", WhatIf(dtype="int4"))


def test_larger_batches_take_longer_and_give_more_samples_per_second(model: Model):
    one, four = (model.performance("rk3588", WhatIf(batch=n)) for n in (1, 4))
    assert four.milliseconds > one.milliseconds
    assert four.fps > one.fps
    assert f"{four.milliseconds:.3f} ms for 4 samples" in str(four)


def test_vendor_compilers_run_layers_in_sequence(graph: Graph):
    ours, layers, theirs = (
        Model(graph, *how).performance("rk3588", WhatIf()) for how in ((), (True,), (False, True))
    )
    assert ours.milliseconds < layers.milliseconds < theirs.milliseconds
    line = theirs.timelines[0]
    ends: dict[int, float] = {}
    for layer, begin, end in zip(line.costs.layer, line.start, line.end, strict=True):
        assert begin >= max((e for k, e in ends.items() if k < layer), default=0)
        ends[layer] = max(end, ends.get(layer, 0))
    assert not any(r.near for r in theirs.layers)  # the vendor's compiler does not use shared SRAM
    same = [Model(graph, False, v).performance("k230", WhatIf()) for v in (False, True)]
    # this vendor's compiler groups layers, too
    assert same[0].timelines[0].cycles == same[1].timelines[0].cycles


def test_programs_are_compiled_once(model: Model):
    first, _ = model.compiled("rk3588", WhatIf(clock=500))
    again, _ = model.compiled("rk3588", WhatIf(ddr=3))
    assert first is again


def test_loads_of_cores(model: Model):
    two = model.performance("rk3588", WhatIf(cores=2))
    for r in two.layers:
        if r.unit == "NPU":
            assert len(r.load) == 2
            assert sum(r.load) == pytest.approx(1) or r.npu_cycles == 0
            assert r.max_cycles == max(r.ddr_cycles, r.npu_cycles)
    one, all3 = (model.performance("rk3588", WhatIf(cores=n)) for n in (1, 3))
    assert all3.all_cores == 1
    assert 1 < one.all_cores <= 3
    assert one.milliseconds / all3.milliseconds < 1.05 * one.all_cores
    assert "with all 3 cores: at most" in str(one)


def test_pay_off(model: Model):
    found = payoff.payoff(model, "rk3576")
    assert [r.cores for r in found["cores"]] == [1, 2]
    assert [(r.cores, r.batch) for r in found["batch"]] == [
        (c, b) for c in (1, 2) for b in range(1, 7)
    ]
    assert [r.case for r in found["sparse"]] == ["dense", "2:4 in", "2:4 out", "16:4"]
    for rows in found.values():
        assert rows[0].gain == 1
        for r in rows:
            assert r.fps == pytest.approx(1e3 * r.batch / r.milliseconds)
            assert r.gain == pytest.approx(r.fps / rows[0].fps)
            assert len(r.load) == r.cores
    assert found["sparse"][3].weights < found["sparse"][1].weights < found["sparse"][0].weights
    text = payoff.text(found)
    assert all(r.case in text for rows in found.values() for r in rows)


def test_charts_are_valid_svg(model: Model):
    rows = [(n, model.performance("rk3588", WhatIf(clock=n))) for n in (250.0, 500.0, 1000.0)]
    drawn = ElementTree.fromstring(payoff.plot("net", "clock", rows))
    marks = [e for e in drawn.iter() if e.tag.endswith("circle")]
    assert len(marks) == 9
    words = [("int8", rows[0][1]), ("fp16", rows[1][1])]
    bars = ElementTree.fromstring(payoff.plot("net", "dtype", words))
    assert sum(e.tag.endswith("rect") for e in bars.iter()) == 1 + 6
    report = model.memory("rk3566", WhatIf(batch=4, sram=65536))
    boxes = [e for e in ElementTree.fromstring(picture(report)).iter() if e.tag.endswith("title")]
    assert len(boxes) == len(report.lives[0])
    assert "internal memory peaks at layer" in str(report)
    assert arena.svg([], 0, 0, "<none>").count("&lt;none&gt;") == 1


def test_commands(graph: Graph, tmp_path: Path, capsys):
    onnx, floats = tmp_path / "net.onnx", tmp_path / "floats.onnx"
    intaglio.save_onnx(graph, onnx)
    intaglio.save_onnx(net(), floats)
    main(["perf", str(onnx), "--target", "rk3588", "--batch", "2", "--dtype", "fp16"])
    assert "with batch=2 dtype=fp16: " in capsys.readouterr().out
    main(["perf", str(onnx), "--target", "rk3588", "--batch", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["what_if"] == "batch=2"
    assert told["usual"]["fps"] < told["fps"]
    picture = tmp_path / "s.svg"
    main(
        [
            "perf",
            str(onnx),
            "--target",
            "rk3576",
            "--sweep",
            "dtype=int8,int4,fp16",
            "--svg",
            str(picture),
        ]
    )
    said = capsys.readouterr().out
    assert "dtype=int4: rk3576 does not multiply i4" in said
    assert "dtype=fp16" in said
    ElementTree.fromstring(picture.read_text())
    main(["memory", str(onnx), "--target", "rk3588", "--batch", "2", "--svg", str(picture)])
    assert "with batch=2: " in capsys.readouterr().out
    main(["perf", str(floats), "--target", "rk3588", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {r["unit"] for r in found["layers"] if r["op"].startswith("conv")} == {"NPU"}
    main(["perf", str(onnx), "--target", "rk3566", "--payoff", "--json"])
    assert list(json.loads(capsys.readouterr().out)) == ["batch"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--batch", "0"], "batch is 0; it must be at least 1"),
        (["--dtype", "int3"], "element type is 'int3'; it is one of int4, int8"),
        (["--sparse", "2:4 in"], "rk3588 does not read 2:4 in sparse weights; it reads none"),
        (["--sram", "0"], "sram is 0"),
        (["--payoff", "--sweep", "cores=1,2"], "exclude each other"),
        (["--payoff", "--html", "x.html"], "for one prediction"),
        (["--sweep", "batch=a"], "takes numbers for"),
        (["--sweep", "batch=1,0"], "batch is 0; it must be at least 1"),
        (["--sweep", "dtype=int8,int3"], "element type is 'int3'"),
        (["--sweep", "sparse=2:3"], "sparse is '2:3'"),
        (["--payoff", "--batch", "2"], "leave out --batch 2"),
        (["--cores", "4"], "cores is 4; rk3588 has 3; give at most --cores 3"),
    ],
)
def test_mistakes_are_one_line(graph: Graph, tmp_path: Path, capsys, args, words):
    onnx = tmp_path / "net.onnx"
    intaglio.save_onnx(graph, onnx)
    with pytest.raises(SystemExit) as e:
        main(["perf", str(onnx), "--target", "rk3588", *args])
    assert e.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("chip", ["rk3588", "rk3566"])
def test_f16_predictions_are_near_those_of_f16_programs(graph: Graph, chip: str):
    """The prediction for an int8 program with dtype fp16 is near that of an f16 program."""
    real = intaglio.compile(net(), target=chip, precision="f16").performance()
    asked = Model(graph).performance(chip, WhatIf(dtype="fp16"))
    convs = [sum(r.npu_cycles for r in p.layers if r.op.startswith("conv")) for p in (real, asked)]
    assert convs[1] == pytest.approx(convs[0], rel=0.1)
    assert asked.npu_milliseconds == pytest.approx(real.npu_milliseconds, rel=0.2)


def test_a_float_model_is_quantised_for_the_chip_that_is_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "floats.onnx"
    intaglio.save_onnx(net(), path)
    asked = []
    quantize = intaglio.quantize

    def spy(graph, data, *, target, **rest):
        asked.append(target)
        return quantize(graph, data, target=target, **rest)

    monkeypatch.setattr(intaglio, "quantize", spy)
    model = model_files.integer_model(str(path), {})
    model.performance("k230", WhatIf())
    model.memory("k230", WhatIf(cores=1))
    model.performance("rk3588", WhatIf())
    assert asked == ["k230", "rk3588"]
