"""LSTM and GRU with 8-bit weights: kernels against numpy bodies, layers against their lowered form.

A state that differs in its last bit may round to another byte, which changes it by 1/127. So after
the first step results agree within that, not to the last bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import ops
from intaglio.compiler import trace
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.weight_only.dynamic import dynamic
from intaglio.targets.cpu.qrecurrent import _recurrent
from intaglio.targets.cpu.recurrent import GATES

STEPS = {"lstm": "cpu.qlstm_steps", "gru": "cpu.qgru_steps"}
RNG = np.random.default_rng(9)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden"),
    [(1, 1, 1), (1, 1, 16), (5, 1, 16), (1, 2, 7), (1, 5, 33), (4, 5, 33), (1, 9, 48), (3, 0, 16)],
)
def test_steps(name, direction, steps, batch, hidden):
    d, count = 2 if direction == "bidirectional" else 1, GATES[name]
    blocks = -(-hidden // 16)
    r = RNG.integers(-127, 128, (d, count * hidden, hidden)).astype(np.int8)
    packed = [v.data for v in _recurrent(r, np.abs(floats(d, count * hidden)) / 300, count, hidden)]
    gates, first = floats(steps, batch, d * blocks * count * 16), floats(d, batch, hidden)
    last = floats(d, batch, hidden) if name == "lstm" else floats(d, blocks * 16)
    if name == "gru":
        last[:, hidden:] = 0
    for given in ((None, None), (first, None), (None, last), (first, last)):
        check(
            STEPS[name],
            gates,
            *packed,
            *given,
            hidden=hidden,
            direction=direction,
            tolerance=None if steps == 1 else 0.02,
        )


def layer(name: str, hidden: int, batch: int, directions: int) -> Graph:
    x = Value(Type("f32", (6, batch, 10)), "x")
    rows = GATES[name] * hidden
    weights = [
        floats(directions, rows, 10) / 3,
        floats(directions, rows, hidden) * 0.1,
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
    }
    if name == "gru":
        attrs["linear_before_reset"] = True
    results = ops.REGISTRY[name](x, *map(constant, weights), None, h, **attrs)
    return Graph([x, h], results, [f"y{i}" for i in range(len(results))])


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("hidden", "batch", "directions"), [(20, 3, 2), (16, 1, 1), (161, 1, 1), (130, 2, 2)]
)
def test_a_layer_with_8_bit_weights(name, threads, hidden, batch, directions):
    graph = layer(name, hidden, batch, directions)
    small = dynamic(graph)
    assert [n.op for n in small.nodes()] == [f"dynamic_{name}"]
    feeds = {v.name: floats(*v.shape) / 2 for v in graph.inputs}
    want, meant = intaglio.interpret(graph, feeds), intaglio.interpret(small, feeds)
    traced = trace(small)
    assert STEPS[name] in [s.op for s in traced.plan.steps]
    with intaglio.open(traced.package, threads=threads) as session:
        got = session.run(feeds)
    for key, exact in want.items():
        np.testing.assert_allclose(got[key], meant[key], atol=0.02)
        assert np.linalg.norm(meant[key] - exact) < 0.03 * np.linalg.norm(exact)


def test_unsupported_layers_stay_float():
    graph = layer("gru", 8, 1, 1)
    node = next(graph.nodes())
    node.attrs["linear_before_reset"] = False
    assert [n.op for n in dynamic(graph).nodes()] == ["gru"]
