"""Weight-only quantisation and dynamic int8 of matrix products."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.weight_only.dynamic import dynamic
from intaglio.quant.weight_only.matrix import quantize_matrix
from intaglio.quant.weight_only.weights import weight_only

RNG = np.random.default_rng(5)


def matrix(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def back(q, scale, zero, group):
    real = q.astype(np.float32) - (0 if zero is None else spread(zero, q, group))
    return real * spread(scale, q, group)


def spread(p, q, group):
    p = p.astype(np.float32)
    return np.repeat(p, group, 0)[: q.shape[0]] if group else p


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group", [0, 32, 48])
@pytest.mark.parametrize(
    ("dtype", "most"), [("i8", 0.01), ("u8", 0.01), ("i4", 0.15), ("u4", 0.15)]
)
def test_error_of_a_matrix(dtype, group, most, symmetric):
    w = matrix(100, 20)
    q, scale, zero = quantize_matrix(w, dtype, group, symmetric)
    assert q.shape == w.shape
    assert (zero is None) == (symmetric and dtype[0] == "i")
    error = np.linalg.norm(back(q, scale, zero, group) - w) / np.linalg.norm(w)
    assert error < most


def test_clipping_lowers_the_error():
    w = matrix(256, 8)
    w[3] *= 3
    q, scale, _ = quantize_matrix(w, "i4")
    plain = np.abs(w).max(0) / 7
    without = np.rint(w / plain) * plain
    assert np.square(back(q, scale, None, 0) - w).sum() < 0.9 * np.square(without - w).sum()


def test_zeros_stay_zeros():
    q, scale, _ = quantize_matrix(np.zeros((5, 3), np.float32))
    assert not q.any()
    assert (scale == 1).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"dtype": "i16"}, "known are"), ({"group": 3}, "a group of 3"), ({"w": np.inf}, "finite")],
)
def test_refusals(change, words):
    w = np.full((4, 4), change.pop("w", 1), np.float32)
    with pytest.raises(BadInput, match=words):
        quantize_matrix(w, **change)


def network():
    """A table, a product with a bias, and one whose matrix is transposed."""
    ids = Value(Type("i64", (1, 9)), "ids")
    x = ops.gather(constant(matrix(50, 64)), ids, axis=0)
    y = ops.gelu(ops.add(ops.matmul(x, constant(matrix(64, 96) / 8)), constant(matrix(96))))
    rows = ops.reshape(y, shape=(9, 96))
    z = ops.gemm(rows, constant(matrix(40, 96) / 9), constant(matrix(40)), trans_b=True)
    return Graph([ids], [z], ["z"])


def close(a, b, most):
    return np.linalg.norm(a - b) < most * np.linalg.norm(b)


@pytest.mark.parametrize(
    ("quantized", "most"),
    [
        (dynamic, 0.03),
        (weight_only, 0.02),
        (lambda g: weight_only(g, "u8", 32, symmetric=False), 0.02),
        (lambda g: weight_only(g, "i4", 32), 0.2),
        (lambda g: weight_only(g, "u4", 32, symmetric=False), 0.2),
    ],
)
def test_graphs_compute_nearly_the_same(quantized, most):
    graph = network()
    feeds = {"ids": RNG.integers(0, 50, (1, 9))}
    want = intaglio.interpret(graph, feeds)["z"]
    made = quantized(graph)
    meant = intaglio.interpret(made, feeds)["z"]
    assert close(meant, want, most)
    assert not close(meant, want, 1e-6)
    with intaglio.open(intaglio.compile(made)) as session:
        np.testing.assert_allclose(session.run(feeds)["z"], meant, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(intaglio.interpret(graph, feeds)["z"], want)  # left alone


def test_kept_layers_stay():
    graph = network()
    last = graph.outputs[0].producer
    last.origin = "last"
    ops_of = lambda g: [n.op for n in g.nodes()]  # noqa: E731
    assert ops_of(dynamic(graph)).count("dynamic_matmul") == 2
    kept = ops_of(dynamic(graph, keep=["last"]))
    assert kept.count("dynamic_matmul") == 1
    assert kept.count("gemm") == 1


def test_samples_and_wide_layers_lower_the_error():
    graph = network()
    for i, n in enumerate(graph.nodes()):
        n.origin = f"n{i}"
    samples = [{"ids": RNG.integers(0, 50, (1, 9))} for _ in range(60)]
    feeds = {"ids": RNG.integers(0, 50, (1, 9))}
    want = intaglio.interpret(graph, feeds)["z"]

    def error(**how):
        made = weight_only(graph, "i4", 32, **how)
        y = intaglio.interpret(made, feeds)["z"]
        return np.linalg.norm(y - want), [
            n.inputs[0].dtype for n in made.nodes() if n.op == "dequantize_linear"
        ]

    plain, types = error()
    assert types.count("i4") == 2
    assert error(samples=samples)[0] < plain
    less, types = error(samples=samples, wide=0.62)
    assert less < plain
    assert types.count("i4") == 1
    with pytest.raises(BadInput, match="wide= needs samples"):
        weight_only(graph, "i4", 32, wide=0.2)
