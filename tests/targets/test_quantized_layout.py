"""Quantised networks stay channels-last between their convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

RNG = np.random.default_rng(2)
WINDOW = {"stride": (1, 1), "dilation": (1, 1)}


def real(q: Value, scale: float = 0.05) -> Value:
    made: Value = ops.dequantize_linear(q, np.float32(scale), np.int8(3))
    return made


def stored(x: Value, scale: float = 0.05) -> Value:
    made: Value = ops.quantize_linear(x, np.float32(scale), np.int8(3), dtype="i8")
    return made


def conv(q: Value, channels: int, k: int = 3) -> Value:
    """A convolution whose operands are quantised; its result is not."""
    w = constant(RNG.integers(-90, 90, (channels, q.shape[1], k, k)).astype(np.int8))
    scale = constant(RNG.uniform(0.005, 0.01, channels).astype(np.float32))
    weights = ops.dequantize_linear(w, scale, None, axis=0)
    made: Value = ops.conv(real(q), weights, None, pad=(k // 2,) * 4, **WINDOW)
    return made


def gated(q: Value) -> Value:
    """Squeeze and excite."""
    mean = stored(ops.reduce_mean(real(q), axes=(2, 3)))
    gate = stored(ops.sigmoid(real(stored(conv(mean, q.shape[1], 1)))), 1 / 256)
    return stored(ops.mul(real(q), real(gate, 1 / 256)))


def network(x: Value) -> Value:
    a = stored(ops.relu(conv(x, 24)))
    b = stored(ops.swish(real(stored(conv(a, 24)))))
    c = gated(stored(ops.add(real(a), real(b))))
    d = stored(ops.avg_pool(real(c), kernel=(3, 3), pad=(1,) * 4, **WINDOW), 0.04)
    e = stored(ops.max_pool(real(c), kernel=(3, 3), pad=(1,) * 4, **WINDOW))
    f = stored(ops.concat(real(d, 0.04), real(e), axis=1))
    g = ops.resize(
        real(f),
        axes=(2, 3),
        shape=(16, 16),
        scales=(2.0, 2.0),
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    return stored(conv(stored(ops.relu(conv(stored(g), 48))), 10))


def test_a_quantised_network_moves_only_its_input_and_output() -> None:
    x = Value(Type("i8", (1, 8, 8, 8)), "x")
    graph = Graph([x], [network(x)], ["y"])
    feeds: dict[str, Any] = {"x": RNG.integers(-128, 128, x.shape).astype(np.int8)}
    whole = intaglio.optimize(graph, level=3)
    integers = {n.op for n in whole.nodes()}
    assert not integers & {"dequantize_linear", "quantize_linear", "conv", "add", "mul", "sigmoid"}
    want = intaglio.interpret(whole, feeds)["y"]
    near = intaglio.interpret(graph, feeds)["y"]
    assert np.corrcoef(want.ravel(), near.ravel())[0, 1] > 0.999
    with intaglio.open(intaglio.compile(graph), threads=1, profile=True) as session:
        np.testing.assert_array_equal(session.run(feeds)["y"], want)
        steps = [s.op for s in session.profile()]
    assert steps.count("transpose") <= 2, steps
