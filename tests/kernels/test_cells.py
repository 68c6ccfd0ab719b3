"""Steps of LSTM and GRU: kernels against numpy bodies, and layers against their lowered form."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import dtypes, ops
from intaglio.compiler import trace
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu.recurrent import GATES

STEPS = {"lstm": "cpu.lstm_steps", "gru": "cpu.gru_steps"}
LAYERS = {"lstm": "cpu.lstm_layer", "gru": "cpu.gru_layer"}
RNG = np.random.default_rng(4)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden"),
    [(1, 1, 1), (5, 1, 16), (3, 2, 7), (4, 5, 33), (2, 9, 48), (3, 0, 16)],
)
def test_steps(name, direction, steps, batch, hidden):
    d, wide = 2 if direction == "bidirectional" else 1, GATES[name] * 16
    blocks = -(-hidden // 16)
    gates, r = floats(steps, batch, d * blocks * wide), floats(d, blocks, hidden, wide) * 0.3
    first = floats(d, batch, hidden)
    last = floats(d, batch, hidden) if name == "lstm" else floats(d, blocks * 16)
    for given in ((None, None), (first, None), (None, last), (first, last)):
        check(STEPS[name], gates, r, *given, hidden=hidden, direction=direction)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize(("batch", "hidden"), [(1, 2), (1, 32), (6, 38)])
def test_steps_with_16_bit_weights(name, dtype, batch, hidden):
    wide, blocks = GATES[name] * 16, -(-hidden // 16)
    gates = floats(3, batch, blocks * wide)
    r = (floats(1, blocks, hidden, wide) * 0.3).astype(dtypes.numpy_of(dtype))
    if dtype == "bf16":
        pairs = r.reshape(1, blocks, hidden // 2, 2, wide).swapaxes(-1, -2)
        r = np.ascontiguousarray(pairs).reshape(1, blocks, hidden // 2, 2 * wide)
    check(STEPS[name], gates, r, floats(1, batch, hidden), hidden=hidden)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("steps", "deep", "hidden"),
    [(1, 1, 1), (16, 5, 16), (17, 3, 7), (40, 24, 33), (33, 100, 48), (64, 8, 16)],
)
def test_layer(name, direction, steps, deep, hidden):
    d, wide = 2 if direction == "bidirectional" else 1, GATES[name] * 16
    blocks = -(-hidden // 16)
    x, w = floats(steps, 1, deep), floats(d * blocks * GATES[name], deep, 16) * 0.5
    r, bias = floats(d, blocks, hidden, wide) * 0.3, floats(d * blocks * wide)
    first = floats(d, 1, hidden)
    last = floats(d, 1, hidden) if name == "lstm" else floats(d, blocks * 16)
    for given in ((None, None, None), (bias, first, None), (bias, None, last), (None, first, last)):
        check(LAYERS[name], x, w, r, *given, hidden=hidden, direction=direction)


def layer(
    name: str,
    hidden: int,
    batch: int,
    directions: int,
    steps: int = 6,
    deep: int = 5,
    **more: object,
) -> Graph:
    x = Value(Type("f32", (steps, batch, deep)), "x")
    rows = GATES[name] * hidden
    weights = [
        floats(directions, rows, deep),
        floats(directions, rows, hidden) * 0.2,
        floats(directions, 2 * rows),
    ]
    h = Value(Type("f32", (directions, batch, hidden)), "h")
    names = ("Sigmoid", "Tanh", "Tanh")[: 3 if name == "lstm" else 2] * directions
    nought = (0.0,) * len(names)
    attrs = {
        "hidden_size": hidden,
        "activations": names,
        "activation_alpha": nought,
        "activation_beta": nought,
        "direction": "bidirectional" if directions == 2 else "forward",
        **more,
    }
    traced = ops.REGISTRY[name](x, *map(constant, weights), None, h, **attrs)
    return Graph([x, h], traced, [f"y{i}" for i in range(len(traced))])


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("hidden", "batch", "directions"), [(20, 3, 2), (16, 1, 1), (160, 1, 1), (130, 2, 2)]
)
def test_a_layer_is_lowered_to_steps(name, threads, hidden, batch, directions):
    more = {"linear_before_reset": True} if name == "gru" else {}
    graph = layer(name, hidden, batch, directions, **more)
    traced = trace(graph)
    assert [s.op for s in traced.plan.steps] == ["cpu.gemm", STEPS[name]]
    feeds = {v.name: floats(*v.shape) for v in graph.inputs}
    want = intaglio.interpret(graph, feeds)
    with intaglio.open(traced.package, threads=threads) as session:
        got = session.run(feeds)
    for key in want:
        np.testing.assert_allclose(got[key], want[key], atol=2e-5)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("directions", [1, 2])
def test_a_long_sequence_is_lowered_to_a_layer_kernel(name, threads, directions):
    more = {"linear_before_reset": True} if name == "gru" else {}
    graph = layer(name, 130, 1, directions, steps=50, deep=70, **more)
    traced = trace(graph)
    assert [s.op for s in traced.plan.steps] == [LAYERS[name]]
    feeds = {v.name: floats(*v.shape) for v in graph.inputs}
    want = intaglio.interpret(graph, feeds)
    with intaglio.open(traced.package, threads=threads) as session:
        got = session.run(feeds)
    for key in want:
        np.testing.assert_allclose(got[key], want[key], atol=2e-5)


def test_unsupported_layers_keep_their_kernel_and_say_why():
    traced = trace(layer("gru", 8, 1, 1))
    assert [s.op for s in traced.plan.steps] == ["gru"]
    said = [e.refusal for r in traced.records for e in r.events if e.rule == "gru_as_steps"]
    assert "its reset gate applies before the matmul (linear_before_reset=0)" in said
