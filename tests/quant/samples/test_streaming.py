"""Streaming models: samples are one stream and give the inputs without the state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.analysis import quantized as report
from intaglio.cli import main
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.pipeline import calibrate
from intaglio.quant.search.strategies import auto
from intaglio.quant.weight_only.datafree import without_data

RNG = np.random.default_rng(5)
DATA = [RNG.standard_normal((1, 32)).astype(np.float32) for _ in range(12)]


def net() -> Graph:
    """y = (x + s) w, of which a half is the next s."""
    x, s = Value(Type("f32", (1, 32)), "x"), Value(Type("f32", (1, 32)), "state.s")
    w = constant(np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32) / 8)
    y = ops.matmul(ops.add(x, s), w)
    y.name = "y"
    after = ops.mul(y, np.float32(0.5))
    return Graph([x, s], [y, after], ["y", "state.s"], state={"state.s": None})


def run(graph: Graph) -> np.ndarray:
    with intaglio.open(intaglio.compile(graph)) as session:
        return np.concatenate([session.run({"x": x})["y"] for x in DATA])


@pytest.mark.parametrize(
    "how", [{}, {"mode": "dynamic"}, {"mode": "weights"}, {"mode": "weights", "weights": "int4"}]
)
def test_the_state_is_carried_and_reported(how):
    want = run(net())
    mode = how.get("mode")
    made = without_data(net(), data=DATA, **how) if mode else calibrate(net(), DATA)
    assert list(made.graph.state) == ["state.s"]
    assert np.linalg.norm(run(made.graph) - want) < 0.2 * np.linalg.norm(want)
    facts = report.check(made, "cpu", lambda *progress: None)
    assert {o["output"] for o in facts["accuracy"]["outputs"]} == {"y", "state.s"}
    assert min(o["cosine"] for o in facts["accuracy"]["outputs"]) > 0.98
    assert "milliseconds" in report.check(
        replace(made, dataset=None), "cpu", lambda *progress: None
    )


def test_strategies_are_compared_on_the_stream():
    found = auto(net(), DATA, strategies=(("minmax", {"method": "minmax"}),))
    assert [t.figure > 0.99 for t in found.tried] == [True, True]
    assert list(found.best.graph.state) == ["state.s"]


def test_the_command_needs_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(intaglio, "load", lambda *args, **how: net())
    np.save("x.npy", np.stack(DATA))
    main(["quantize", "m.onnx", "--data", "x.npy", "-o", "m.itg", "-q"])
    with intaglio.open("m.itg") as session:
        assert list(session.inputs) == ["x"]
        assert list(session.state) == ["state.s"]
