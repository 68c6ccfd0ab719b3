"""Residual sums and layer normalisation of token rows in f16: one program, the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import intaglio
from intaglio import ops, passes
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.lowering.target import npu_target
from intaglio.targets import chip as chips

CHIP = chips.load("rk3588")
SLOW = replace(CHIP.host, products=1e-6, arithmetic=1e-6)  # the NPU is always faster
TARGET = npu_target(replace(CHIP, host=SLOW), "scalar", "f16")
WIDE, TOKENS = 32, 10


def number(rng, *shape):
    return constant(rng.standard_normal(shape).astype(np.float32))


def linear(rng, x, many):
    w = constant((rng.standard_normal((x.shape[-1], many)) / x.shape[-1] ** 0.5).astype(np.float32))
    return ops.add(ops.matmul(x, w), number(rng, many))


def norm(rng, x, plain=False, **attrs):
    ends = () if plain else (number(rng, WIDE), number(rng, WIDE))
    return ops.layer_norm(x, *ends, **attrs)


def block(rng, x, **attrs):
    """The second half of a transformer's layer, after the projection of its attention."""
    first = linear(rng, x, WIDE)
    inner = linear(rng, norm(rng, first, **attrs), 2 * WIDE)
    return linear(rng, norm(rng, ops.add(linear(rng, ops.relu(inner), WIDE), first)), WIDE)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("attrs", [{}, {"plain": True}, {"epsilon": 0.5}])
def test_a_block_is_one_program(attrs, batch):
    rng = np.random.default_rng(4)
    x = Value(Type("f32", (batch, TOKENS, WIDE)), "x")
    graph = Graph([x], [block(rng, x, **attrs)], ["y"])
    feed = {"x": rng.standard_normal(x.shape).astype(np.float32)}
    made = graph.copy()
    report = passes.run(made, [*passes.neutral(TARGET.cost), *passes.offload(TARGET)])
    assert sum(m.kind == "npu" for m in report.found["partition"].modules) == 1
    assert {r.op for r in report.found["partition"].on_cpu} <= {"cast", "transpose"}
    got = intaglio.interpret(made, feed)["y"]
    np.testing.assert_allclose(got, intaglio.interpret(graph, feed)["y"], atol=0.03)
    with intaglio.open(intaglio.compile(graph, target=TARGET)) as session:
        np.testing.assert_array_equal(session.run(feed)["y"], got)


@pytest.mark.parametrize(("size", "largest"), [(0.02, 0.02), (1.0, 500.0), (150.0, 150.0)])
def test_squares_of_small_and_large_numbers(size, largest):
    """Transformers have single channels that are hundreds of times the others."""
    rng = np.random.default_rng(4)
    x = Value(Type("f32", (1, TOKENS, WIDE)), "x")
    w = rng.standard_normal((WIDE, WIDE)) * size / WIDE**0.5
    w[:, 3] *= largest / size
    made = ops.layer_norm(ops.matmul(x, constant(w.astype(np.float32))))
    graph = Graph([x], [linear(rng, made, WIDE)], ["y"])
    feed = {"x": np.clip(rng.standard_normal(x.shape), -1, 1).astype(np.float32)}
    want = intaglio.interpret(graph, feed)["y"]
    passes.run(graph, [*passes.neutral(TARGET.cost), *passes.offload(TARGET)])
    assert "layer_norm" not in [n.op for n in graph.nodes()]
    np.testing.assert_allclose(intaglio.interpret(graph, feed)["y"], want, atol=0.03)


def test_rows_that_no_unit_made_stay_on_the_cpu():
    rng = np.random.default_rng(4)
    x = Value(Type("f32", (1, TOKENS, WIDE)), "x")
    graph = Graph([x], [linear(rng, norm(rng, x), WIDE)], ["y"])
    passes.run(graph, [*passes.neutral(TARGET.cost), *passes.offload(TARGET)])
    assert "layer_norm" in [n.op for n in graph.nodes()]
