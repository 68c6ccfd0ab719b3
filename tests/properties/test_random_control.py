"""Random control flow: loops, scans and branches that swap, share and collect their states."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.graphs import assert_same, feeds

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

quick = settings(
    max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
STATE = Type("f32", (2, 3))
DEPTH = 2


def grow(draw: Any, values: list[Value], depth: int) -> None:
    """Add a few nodes that keep the type STATE to `values`."""
    for _ in range(draw(st.integers(0, 4))):
        kinds = ["unary", "binary", "view", "constant"] + ["if", "loop", "scan"] * (depth > 0)
        kind, x, y = draw(st.sampled_from(kinds)), *(draw(st.sampled_from(values)) for _ in "xy")
        if kind == "unary":
            values.append(draw(st.sampled_from([ops.tanh, ops.neg, ops.sin]))(x))
        elif kind == "binary":
            values.append(draw(st.sampled_from([ops.add, ops.mul, ops.sub]))(x, y))
        elif kind == "view":
            values.append(ops.reshape(ops.relu(ops.reshape(x, shape=(6,))), shape=(2, 3)))
        elif kind == "constant":
            values.append(ops.add(x, constant(np.float32(draw(st.integers(-2, 2))))))
        else:
            values += {"if": branch, "loop": loop, "scan": scan}[kind](draw, values, depth - 1)


def inside(draw: Any, outer: list[Value], most: int = 2) -> tuple[list[Value], list[Value]]:
    """Captured outer values, and the inputs of the body that stand for them."""
    taken = [draw(st.sampled_from(outer)) for _ in range(draw(st.integers(0, most)))]
    return taken, [Value(v.type, f"captured{i}") for i, v in enumerate(taken)]


def pick(draw: Any, values: list[Value], count: int) -> list[Value]:
    return [draw(st.sampled_from(values)) for _ in range(count)]


def branch(draw: Any, outer: list[Value], depth: int) -> list[Value]:
    count = draw(st.integers(1, 2))
    first, second = draw(st.sampled_from(outer)), draw(st.sampled_from(outer))
    cond = ops.reshape(
        ops.less(ops.reduce_sum(first, axes=(0, 1), keepdims=False), constant(np.float32(0.3))),
        shape=(),
    )
    bodies, taken = [], [second, *pick(draw, outer, 1)]
    for name in ("then", "else"):
        given_ = [Value(v.type, f"{name}{i}") for i, v in enumerate(taken)]
        values = list(given_)
        grow(draw, values, depth)
        outputs = pick(draw, [*values, constant(np.ones((2, 3), np.float32))], count)
        bodies.append(Graph(given_, outputs, [f"o{i}" for i in range(count)], name))
    results = ops.if_(cond, *taken, then_graph=bodies[0], else_graph=bodies[1])
    return results if isinstance(results, list) else [results]


def loop(draw: Any, outer: list[Value], depth: int) -> list[Value]:
    carried, scans = draw(st.integers(1, 3)), draw(st.integers(0, 1))
    first = pick(draw, outer, carried)
    taken, captured = inside(draw, outer)
    number, go = Value(Type("i64", ()), "i"), Value(Type("bool", ()), "go")
    states = [Value(STATE, f"state{k}") for k in range(carried)]
    values = [*states, *captured]
    if draw(st.booleans()):
        values.append(ops.mul(states[0], ops.cast(number, dtype="f32")))
    grow(draw, values, depth)
    again = go
    if draw(st.booleans()):
        total = ops.reduce_sum(draw(st.sampled_from(values)), axes=(0, 1), keepdims=False)
        again = ops.less(total, constant(np.float32(4)))
    outputs = [again, *pick(draw, values, carried), *pick(draw, values, scans)]
    body = Graph([number, go, *states, *captured], outputs, [f"o{i}" for i in range(len(outputs))])
    trip = draw(st.integers(0, 3))
    results = ops.loop(
        constant(np.int64(trip)),
        constant(np.True_),
        *first,
        *taken,
        body=body,
        carried=carried,
        bound=trip,
    )
    results = results if isinstance(results, list) else [results]
    sums = [ops.reduce_sum(v, axes=(0,), keepdims=False) for v in results[carried:]]
    return [*results[:carried], *sums]


def scan(draw: Any, outer: list[Value], depth: int) -> list[Value]:
    states, count = draw(st.integers(0, 2)), draw(st.integers(1, 2))
    first, over = pick(draw, outer, states), pick(draw, outer, count)
    taken, captured = inside(draw, outer, 1)
    now = [Value(STATE, f"state{k}") for k in range(states)]
    rows = [Value(Type("f32", (3,)), f"row{k}") for k in range(count)]
    values = [*now, *captured, *(ops.add(r, constant(np.zeros((2, 3), np.float32))) for r in rows)]
    grow(draw, values, depth)
    slices = [ops.reduce_max(v, axes=(0,), keepdims=False) for v in pick(draw, values, 1)]
    outputs = [*pick(draw, values, states), *slices, draw(st.sampled_from(rows))]
    body = Graph([*now, *rows, *captured], outputs, [f"o{i}" for i in range(len(outputs))])
    order = {f"reverse_{side}": draw(st.integers(0, 3)) for side in ("in", "out")}
    return list(ops.scan(*first, *over, *taken, body=body, states=states, scans=count, **order))


@st.composite
def programs(draw: Any) -> Graph:
    inputs = [Value(STATE, "a"), Value(STATE, "b")]
    values = list(inputs)
    grow(draw, values, DEPTH)
    values += draw(st.sampled_from([branch, loop, scan]))(draw, values, DEPTH - 1)
    grow(draw, values, 0)
    outputs = [values[-1], *pick(draw, values, 2)]
    return Graph(inputs, outputs, ["x", "y", "z"], "program")


@quick
@given(programs(), st.sampled_from([0, 3]))
def test_control_flow_keeps_its_meaning(graph, level):
    inputs = feeds(graph)
    want = intaglio.interpret(graph, inputs)
    with intaglio.open(intaglio.compile(graph, level=level).bytes, threads=1) as session:
        assert_same(session.run(inputs), want, graph)
        assert_same(session.run(inputs), want, graph)
