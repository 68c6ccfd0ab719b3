from __future__ import annotations

import numpy as np
import pytest
from tests.ops.body import run

from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops import add, concat, less, relu
from intaglio.ops.registry import REGISTRY

F = Type("f32", (2,))
X = np.array([1, -2], np.float32)


def v(t: Type = F, name: str = "") -> Value:
    return Value(t, name)


def body(again: bool | None = True) -> Graph:
    """h -> h + x; collects the new h. `again` None: while the sum is below 3 x."""
    i, go, h, x = v(Type("i64", ())), v(Type("bool", ())), v(), v()
    new = add(h, x)
    more = go if again else constant(np.array(False))
    if again is None:
        more = less(i, constant(np.array(2)))
    return Graph([i, go, h, x], [more, new, new])


def test_if_picks_a_branch() -> None:
    a, b = v(), v()
    graphs = {"then_graph": Graph([a], [relu(a)]), "else_graph": Graph([b], [concat(b, b, axis=0)])}
    assert run("if", np.array(True), X, **graphs).tolist() == [1, 0]
    assert run("if", np.array([False]), X, **graphs).tolist() == [1, -2, 1, -2]
    node = REGISTRY["if"].node(v(Type("bool", ())), v(), **graphs)
    assert str(node.outputs[0].type) == "f32[<=4]"


def test_branches_must_agree() -> None:
    a, b = v(), v()
    graphs = {"then_graph": Graph([a], [a]), "else_graph": Graph([b], [constant(3)])}
    with pytest.raises(BadInput, match="element type and rank must be equal"):
        REGISTRY["if"].node(v(Type("bool", ())), v(), **graphs)


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_loop(trips: int) -> None:
    h, scan = run("loop", np.array(trips), None, X, X, body=body(), carried=1, bound=9)
    np.testing.assert_array_equal(h, X * (trips + 1))
    assert scan.shape == (trips, 2)
    if trips:
        np.testing.assert_array_equal(scan[-1], h)


def test_loop_ends_on_its_condition() -> None:
    how = {"carried": 1, "bound": 9}
    assert run("loop", np.array(5), np.array(False), X, X, body=body(), **how)[0].tolist() == [
        1,
        -2,
    ]
    assert len(run("loop", np.array(5), None, X, X, body=body(False), **how)[1]) == 1
    assert len(run("loop", None, None, X, X, body=body(None), **how)[1]) == 3
    with pytest.raises(RunError, match="more than 9 iterations"):
        run("loop", None, None, X, X, body=body(), **how)


def test_loop_types() -> None:
    def scan(trip: Value | None, again: bool | None) -> str:
        node = REGISTRY["loop"].node(trip, None, v(), v(), body=body(again), carried=1, bound=4)
        return str(node.outputs[1].type)

    four = constant(np.array(4))
    assert scan(four, True) == "f32[4x2]"  # nothing can end it early
    assert scan(four, None) == scan(v(Type("i64", ())), True) == scan(None, True) == "f32[<=4x2]"


def test_carried_values_keep_their_type() -> None:
    i, go, h = v(Type("i64", ())), v(Type("bool", ())), v(name="h")
    grows = Graph([i, go, h], [go, concat(h, h, axis=0)])
    with pytest.raises(BadInput, match=r"from f32\[2\] to f32\[4\]"):
        REGISTRY["loop"].node(None, None, v(), body=grows, carried=1, bound=3)
    with pytest.raises(BadInput, match="takes 3 inputs, 4 are given"):
        REGISTRY["loop"].node(None, None, v(), v(), body=grows, carried=1, bound=3)


@pytest.mark.parametrize(("reverse_in", "reverse_out"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_scan(reverse_in: int, reverse_out: int) -> None:
    state, part, captured = v(), v(), v()
    total = add(state, part)
    graph = Graph([state, part, captured], [total, add(total, captured)])
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    how = {"states": 1, "scans": 1, "reverse_in": reverse_in, "reverse_out": reverse_out}
    last, sums = run("scan", X, xs, np.ones(2, np.float32), body=graph, **how)
    want = np.cumsum(np.concatenate([X[None], xs[::-1] if reverse_in else xs]), 0)[1:]
    np.testing.assert_array_equal(last, want[-1])
    np.testing.assert_array_equal(sums, (want[::-1] if reverse_out else want) + 1)


def test_scan_of_a_run_time_length() -> None:
    state, part = v(), v()
    graph = Graph([state, part], [add(state, part), part])
    xs = v(Type("f32", (9, 2), dynamic=(0,)))
    node = REGISTRY["scan"].node(v(), xs, body=graph, states=1, scans=1)
    assert [str(o.type) for o in node.outputs] == ["f32[2]", "f32[<=9x2]"]
