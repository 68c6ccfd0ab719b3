"""Random graphs of elementwise ops only: fused chains give the same results in fewer steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.graphs import BINARY, UNARY, assert_same, feeds

import intaglio
from intaglio import native, ops
from intaglio.compiler import trace
from intaglio.cpu_isa import NAMES, bits_of
from intaglio.ir import Graph, Type, Value

SHAPES = [(3, 4, 20), (3, 1, 20), (20,), (1, 4, 1), (), (2, 1, 4, 20), (4, 700), (4, 1)]


@st.composite
def elementwise(draw: Any, most: int = 30) -> Graph:
    """Unary and binary ops on values that broadcast to each other; some are read many times."""
    shapes = draw(st.sampled_from([SHAPES[:5], SHAPES[:6], SHAPES[6:], SHAPES[4:5]]))
    count = draw(st.integers(1, 10))
    inputs = [Value(Type("f32", draw(st.sampled_from(shapes))), f"in{i}") for i in range(count)]
    values = list(inputs)
    for _ in range(draw(st.integers(2, most))):
        x = values[-1] if draw(st.booleans()) else draw(st.sampled_from(values))
        if draw(st.booleans()):
            values.append(ops.REGISTRY[draw(st.sampled_from(UNARY))](x))
        elif draw(st.booleans()):
            values.append(ops.clip(x, lo=-1.0, hi=draw(st.sampled_from([0.5, 1.0]))))
        else:
            name = draw(st.sampled_from(BINARY))
            values.append(ops.REGISTRY[name](x, draw(st.sampled_from(values))))
            if name == "mul":  # powers of powers would overflow
                values[-1] = ops.clip(values[-1], lo=-4.0, hi=4.0)
    outputs = [values[-1], *draw(st.lists(st.sampled_from(values), max_size=2))]
    return Graph(inputs, outputs, [f"out{i}" for i in range(len(outputs))], "random")


ISAS = [name for name in NAMES if not bits_of(name) & ~native.machine()]


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(elementwise(), st.sampled_from(ISAS))
def test_chains_compute_the_same_as_single_nodes(graph, isa):
    inputs = feeds(graph)
    chained, single = trace(graph, isa=isa), trace(graph, isa=isa, disable=["elementwise_chain"])
    got = [run(traced, inputs) for traced in (chained, single)]
    assert_same(got[0], intaglio.interpret(graph, inputs), graph)
    for name, w in got[1].items():  # the same functions on the same numbers: equal bits
        np.testing.assert_array_equal(got[0][name], w, err_msg=str(graph))
    fired = any(r.name == "chain elementwise" and r.fired for r in chained.records)
    assert (len(chained.plan.steps) < len(single.plan.steps)) == fired


def run(traced: Any, inputs: Any) -> Any:
    with intaglio.open(traced.package.bytes, threads=2) as session:
        return session.run(inputs)


def test_a_gate_is_one_step():
    """swish(x) * (y + gate) + residual, with a gate per channel, then bounded"""
    x, y, residual = (Value(Type("f32", (2, 8, 8, 24)), name) for name in "xyr")
    gate = Value(Type("f32", (2, 1, 1, 24)), "gate")
    gated = ops.add(ops.mul(ops.swish(x), ops.add(y, gate)), residual)
    graph = Graph([x, y, gate, residual], [ops.clip(gated, lo=0.0, hi=6.0)], ["out"], "gate")
    assert [s.op for s in trace(graph).plan.steps] == ["cpu.chain"]
    assert len(trace(graph, disable=["elementwise_chain"]).plan.steps) == 5


def test_a_gate_is_not_computed_for_every_pixel():
    """An operation on fewer elements than the result has stays a step of its own"""
    x, gate = Value(Type("f32", (1, 8, 8, 24)), "x"), Value(Type("f32", (1, 1, 1, 24)), "gate")
    graph = Graph([x, gate], [ops.mul(x, ops.sigmoid(gate))], ["out"], "gate")
    assert sorted(s.op for s in trace(graph).plan.steps) == ["mul", "sigmoid"]
