"""Integer arithmetic of whole layers, and biases that it keeps as floats."""

from __future__ import annotations

import numpy as np

import intaglio
from intaglio import ops
from intaglio.compiler import trace_optimize
from intaglio.ir import Graph, Type, Value, constant

RNG = np.random.default_rng(4)
WINDOW = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1)}


def layer(bias: np.ndarray, scales: np.ndarray) -> Graph:
    x = Value(Type("i8", (1, 4, 5, 5)), "x")
    w = constant(RNG.integers(-127, 128, (len(bias), 4, 1, 1)).astype(np.int8))
    real = ops.dequantize_linear(x, np.float32(0.02), np.int8(1))
    weights = ops.dequantize_linear(w, scales.astype(np.float32), None, axis=0)
    y = ops.conv(real, weights, bias.astype(np.float32), **WINDOW)
    return Graph([x], [y], ["y"])


def test_large_bias_rescales_its_channel() -> None:
    """Channels that training has left without weights keep their bias, which is all they are."""
    graph = layer(np.array([0.5, -3.0, 2.0]), np.array([0.01, 1e-20, 1e-12]))
    feeds = {"x": RNG.integers(-128, 128, (1, 4, 5, 5)).astype(np.int8)}
    whole = intaglio.optimize(graph, level=3)
    assert [n.op for n in whole.nodes()] == ["qlinear_conv"]
    got, want = (intaglio.interpret(g, feeds)["y"] for g in (whole, graph))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


def test_bias_beyond_32_bits_stays_float() -> None:
    graph = layer(np.array([0.5, np.inf]), np.array([0.01, 0.01]))
    optimized = trace_optimize(graph, level=3)
    whole, records = optimized.graph, optimized.records
    assert "conv" in [n.op for n in whole.nodes()]
    refusals = [e.refusal for r in records for e in r.events if e.rule == "conv_to_floats"]
    assert any("exceeds 32 bits" in words for words in refusals if words)
