"""Weights rounded to few bits that stay floats."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.weight_only.rounded import rounded_weights


def network(rng: np.random.Generator) -> Graph:
    x = Value(Type("f32", (1, 4, 6, 6)), "x")
    w = constant(rng.normal(size=(8, 2, 3, 3)).astype(np.float32), "w")
    y = ops.relu(ops.conv(x, w, stride=(1, 1), dilation=(1, 1), groups=2, pad=(1, 1, 1, 1)))
    flat = ops.reshape(y, shape=(1, 288))
    m = constant(rng.normal(size=(288, 5)).astype(np.float32), "m")
    return Graph([x], [ops.matmul(flat, m)], ["y"])


def weights(graph: Graph) -> dict[str, np.ndarray]:
    return {v.name: v.data for v in graph.values() if v.name in ("w", "m")}


@pytest.mark.parametrize(
    ("dtype", "group", "symmetric", "steps"),
    [("i4", 0, True, 15), ("u4", 32, False, 16), ("i4", 64, True, 15), ("i8", 0, True, 255)],
)
def test_weights_lie_on_a_grid(dtype: str, group: int, symmetric: bool, steps: int):
    graph = network(np.random.default_rng(0))
    found = weights(rounded_weights(graph, dtype, group, symmetric))
    before = weights(graph)
    for channel in found["m"].T:
        for block in np.split(channel, 288 // group) if group == 32 else [channel[: group or None]]:
            assert len(np.unique(block)) <= steps + 1
    for name in ("w", "m"):
        off = np.linalg.norm(found[name] - before[name]) / np.linalg.norm(before[name])
        assert 0 < off < (0.2 if "4" in dtype else 0.02)
        assert found[name].dtype == np.float32


def test_convolutions_may_keep_theirs():
    graph = network(np.random.default_rng(0))
    found = weights(rounded_weights(graph, "i8", convolutions=False))
    np.testing.assert_array_equal(found["w"], weights(graph)["w"])
    assert (found["m"] != weights(graph)["m"]).any()


def test_samples_bring_outputs_nearer():
    rng = np.random.default_rng(1)
    graph = network(rng)
    mix = rng.normal(size=(4, 4))
    some = [
        {"x": np.einsum("ij,njhw->nihw", mix, rng.normal(size=(1, 4, 6, 6))).astype(np.float32)}
        for _ in range(40)
    ]

    def error(made: Graph) -> float:
        off = [
            intaglio.interpret(graph, s)["y"] - intaglio.interpret(made, s)["y"] for s in some[32:]
        ]
        return float(np.linalg.norm(off))

    plain = rounded_weights(graph, "i4")
    fitted = rounded_weights(graph, "i4", samples=some[:32])
    assert error(fitted) < 1.05 * error(plain)
