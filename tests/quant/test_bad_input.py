"""Models and data that cannot be quantised: a one-line error, exit code 2, no file written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.analysis import quantized as report
from intaglio.cli import main
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Type, Value, constant
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate

RNG = np.random.default_rng(2)
SHAPE = (1, 3, 8, 8)
WINDOW: dict[str, Any] = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def net(first: Any = None, bias: Any = None, act: Callable[..., Value] = ops.relu) -> Graph:
    """Two convolutions, `a` and `c`, with an activation `r` between."""
    x = Value(Type("f32", SHAPE), "x")
    w = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32) if first is None else first
    b = np.zeros(8, np.float32) if bias is None else bias
    a = ops.conv(x, constant(w, "w1"), constant(b, "b1"), **WINDOW, origin="conv_a")
    r = act(a, origin="act_r")
    last = constant(RNG.standard_normal((4, 8, 3, 3)).astype(np.float32), "w2")
    c = ops.conv(r, last, None, **WINDOW, origin="conv_c")
    a.name, r.name, c.name = "a", "r", "c"
    return Graph([x], [c], ["c"])


def numbers(scale: float = 1.0, count: int = 4) -> Array:
    return (RNG.standard_normal((count, *SHAPE)) * scale).astype(np.float32)


def filled(value: float, *shape: int) -> Array:
    return np.full(shape or (4, *SHAPE), value, np.float32)


@pytest.mark.parametrize(
    ("graph", "data", "args", "words"),
    [
        (net, numbers()[:0], [], "no samples; at least one is needed"),
        (net, filled(0, 4, 1, 3, 9, 9), [], "input 'x' has shape (1, 3, 8, 8), the sample"),
        (net, filled(np.nan), [], "input 'x' holds nan at [0, 0, 0, 0]"),
        (net, filled(-np.inf), [], "input 'x' holds -inf at"),
        (
            lambda: net(act=ops.log),
            numbers(),
            [],
            "tensor 'r' (output of log 'act_r') holds NaN or infinite values in x.npy[0]",
        ),
        (
            lambda: net(filled(1e30, 8, 3, 3, 3)),
            numbers(1e20),
            [],
            "tensor 'r' (output of relu 'act_r') holds NaN or infinite values",
        ),
        (
            lambda: net(filled(np.nan, 8, 3, 3, 3)),
            numbers(),
            [],
            "constant 'w1' of layer 'a' (conv) holds 216 NaN or infinite values",
        ),
        (
            lambda: net(bias=filled(np.inf, 8)),
            numbers(),
            [],
            "constant 'b1' of layer 'a' (conv) holds 8 NaN",
        ),
        (net, numbers(1e37), [], "output 'c' of the float model holds NaN or infinite values in s"),
        (
            net,
            numbers(1e6),
            ["--scheme", "layers: {a: f16}"],
            "layer 'a' is to compute in f16: 'x' reaches",
        ),
        (
            lambda: net(filled(1e6, 8, 3, 3, 3)),
            numbers(1e-6),
            ["--scheme", "layers: {a: f16}"],
            "layer 'a' is to compute in f16: its weights 'w1' reach 1e+06",
        ),
        (net, numbers(), ["--strict", "--scheme", "layers: {q: f32}"], "no layer is called 'q'"),
        (
            net,
            numbers(),
            ["--strict", "--scheme", "tensors: {q: {type: i8, range: [0, 1]}}"],
            "no tensor is called 'q'",
        ),
        (net, numbers(), ["--scheme", "layers: {a: int4}"], "precision is 'int4'; it is one of"),
        (
            net,
            numbers(),
            ["--scheme", "tensors: {x: {type: u16, range: [0, 1]}}"],
            "cpu does not take a tensor of uint16; it takes int8, uint8",
        ),
        (net, numbers(), ["--scheme", "layers: {a: f32, c: f32}"], "there is nothing to quantise"),
    ],
)
def test_one_line_and_exit_code_2(
    graph: Callable[[], Graph],
    data: Array,
    args: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    intaglio.save_onnx(graph(), "net.onnx")
    np.save("x.npy", data)
    if "--scheme" in args:
        Path("s.yaml").write_text(args[-1])
        args = [*args[:-1], "s.yaml"]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as stopped:
        main(["quantize", "net.onnx", "--data", "x.npy", "-o", "q.itg", *args])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1, said
    assert sorted(tmp_path.iterdir()) == before, "something was left behind"


@pytest.mark.parametrize(
    ("data", "words"),
    [(filled(0.0), "'x' is always 0: it gets scale 1"), (filled(3.0), "'x' is always 3")],
)
def test_constant_tensors_are_reported_and_quantised(data: Array, words: str):
    made = calibrate(net(), data)
    facts = report.check(made, "cpu", lambda *progress: None)
    assert any(words in said for said in facts["accuracy"]["warnings"])
    assert min(o["cosine"] for o in facts["accuracy"]["outputs"]) > 0.999


def test_constant_tensors_are_reported_without_a_comparison():
    said = report.text(report.facts(calibrate(net(), filled(0.0))))
    assert "'x' is always 0: it gets scale 1" in said


def test_channels_of_zeros_are_stored_as_zeros():
    w = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)
    w[2:5] = 0
    made = calibrate(net(w, bias=filled(2.0, 8)), numbers())
    stored = next(v for v in made.graph.values() if v.name == "w1_stored").data
    assert stored is not None
    zeros = ~stored.any(axis=(1, 2, 3))
    assert zeros.any(), "one of them carries what the biases give"
    np.testing.assert_array_equal(np.array(made.scheme.tensors["w1"].scale)[zeros], 1.0)
    assert not made.floats


def test_unknown_layers_in_the_options_are_reported():
    with pytest.warns(UserWarning, match="options: no layer is called 'zzz'"):
        calibrate(net(), numbers(), options=Options(layers={"zzz": "f32"}))
    with pytest.raises(BadInput, match="layer 'a': cpu cannot compute layers in int7"):
        calibrate(net(), numbers(), options=Options(layers={"a": "int7"}))
