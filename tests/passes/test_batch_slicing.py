"""Batch slicing: which models are sliced, that results stay equal, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.compiler import trace
from intaglio.ir import Graph, Type, Value, constant
from intaglio.passes.batch_slicing import in_slices_of
from intaglio.verify import verify

RNG = np.random.default_rng(8)
WINDOW = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def network(x: Value) -> Value:
    y = ops.relu(ops.conv(x, constant(floats(8, 3, 3, 3)), **WINDOW))
    y = ops.max_pool(y, kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1))
    y = ops.concat(y, ops.mul(y, constant(floats(1, 8, 1, 1))), axis=1)
    y = ops.avg_pool(y, kernel=(3, 3), **WINDOW)
    y = ops.transpose(ops.reshape(y, shape=(x.shape[0], 16, 25)), perm=(0, 2, 1))
    y = ops.softmax(ops.matmul(y, constant(floats(16, 6))), axis=-1)
    made: Value = ops.add(ops.reduce_mean(y, axes=(1,), keepdims=False), constant(floats(6)))
    return made


def cut(graph: Graph, limit: int) -> list[str | None]:
    said: list[str | None] = []
    in_slices_of(limit)(graph, lambda r, n, no: said.append(no))
    verify(graph)
    return said


@pytest.mark.parametrize(("limit", "slices"), [(1, 12), (20_000, 4), (30_000, 3), (60_000, 0)])
def test_slices_are_as_large_as_the_limit_allows(limit, slices):
    x = Value(Type("f32", (12, 3, 10, 10)), "x")
    graph = Graph([x], [network(x)], ["y"])
    feed = {"x": floats(*x.shape)}
    want = intaglio.interpret(graph, feed)["y"]
    assert cut(graph, limit) == ([None] if slices else [])
    found = [n for n in graph.nodes() if n.op == "scan"]
    assert [n.inputs[0].shape[0] for n in found] == ([slices] if slices else [])
    np.testing.assert_allclose(intaglio.interpret(graph, feed)["y"], want, atol=1e-6)


REFUSED = {
    "works along the batch": lambda x: ops.softmax(x, axis=0),
    "without a batch axis": lambda x: ops.add(x, ops.reduce_max(x, axes=(0,), keepdims=True)),
    "broadcasts along the batch": lambda x: ops.add(x, constant(floats(*x.shape))),
    "moves the batch": lambda x: ops.transpose(x, perm=(1, 0)),
    "changes the batch": lambda x: ops.reshape(x, shape=(x.shape[0] * 2, x.shape[1] // 2)),
    "cuts the batch": lambda x: ops.slice_(x, start=(1, 0), stop=x.shape, step=(1, 1)),
    "mixes images": lambda x: ops.matmul(constant(floats(9, x.shape[0])), x),
    "not known whether cumsum": lambda x: ops.cumsum(x, axis=1),
}


@pytest.mark.parametrize("words", REFUSED)
def test_ops_that_mix_images_refuse_slicing(words):
    x = Value(Type("f32", (8, 6)), "x")
    graph = Graph([x], [REFUSED[words](x)], ["y"])
    (said,) = cut(graph, 1)
    assert said is not None
    assert words in said or "works along the batch" in said
    assert not [n for n in graph.nodes() if n.op == "scan"]


def test_a_large_batch_compiles_to_slices_with_the_same_numbers():
    x = Value(Type("f32", (16, 3, 96, 96)), "x")
    y = ops.relu(ops.conv(x, constant(floats(32, 3, 3, 3)), **WINDOW))
    y = ops.conv(y, constant(floats(8, 32, 1, 1)), **{**WINDOW, "pad": (0,) * 4})
    graph = Graph([x], [ops.reduce_mean(y, axes=(2, 3), keepdims=False)], ["y"])
    feed = {"x": floats(*x.shape)}
    want = intaglio.interpret(graph, feed)["y"]
    made = trace(graph)
    assert "scan" in [s.op for s in made.plan.steps]
    with intaglio.open(made.package, threads=2) as session:
        np.testing.assert_allclose(session.run(feed)["y"], want, atol=1e-3)
