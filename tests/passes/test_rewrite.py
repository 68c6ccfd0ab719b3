"""The rewrite driver: matching, firing, cost, and that the graph stays valid."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value, constant, detach
from intaglio.ops import REGISTRY
from intaglio.rewrite import ANY, P, no, rewrite, rule
from intaglio.verify import BrokenGraph, verify

x, y, c = P["x y c!"]


neg, add, sub, relu = (REGISTRY[n] for n in ("neg", "add", "sub", "relu"))


def source(shape=(2, 3), name="x"):
    return Value(Type("f32", shape), name)


def graph_of(*outputs, inputs):
    return Graph(inputs, outputs, [f"out{i}" for i in range(len(outputs))])


def test_constants_are_found_on_either_side():
    @rule(P.add(x, c))
    def fires(x, c):
        return neg(x)

    a = source()
    g = graph_of(add(constant(np.float32(1)), a), inputs=[a])
    assert rewrite(g, [fires]) == 1
    assert [n.op for n in g.nodes()] == ["neg"]
    verify(g)


def test_matching_backtracks_over_both_orders():
    """x must be the operand of relu too; the first order tried binds it wrongly."""

    @rule(P.sub(P.add(x, y), P.relu(x)))
    def fires(x, y):
        return sub(x, y)

    a, b = source(name="a"), source(name="b")
    g = graph_of(sub(add(b, a), relu(a)), inputs=[a, b])
    assert rewrite(g, [fires]) == 1
    verify(g)


def test_a_shared_operand_is_not_fused_unless_the_pattern_says_so():
    def fresh():
        a = source()
        r = relu(a)
        return graph_of(relu(r), r, inputs=[a])

    @rule(P.relu(P.relu(x)))
    def once(x):
        return relu(x)

    @rule(P.relu(P.relu(x).shared()))
    def also_shared(x):
        return relu(x)

    assert rewrite(fresh(), [once]) == 0
    assert rewrite(fresh(), [also_shared]) == 1


def test_a_replacement_of_another_type_is_refused_in_words():
    @rule(P.add(x, c))
    def wrong(x, c):
        return x

    a = source((3,))
    g = graph_of(add(a, np.zeros((2, 3), np.float32)), inputs=[a])
    said = []
    assert rewrite(g, [wrong], lambda r, n, why: said.append(why)) == 0
    assert "f32[3]" in said[0]
    assert "f32[2x3]" in said[0]


def test_refusals_and_firings_are_traced():
    @rule(P.relu(x))
    def shy(x):
        return no("not today")

    @rule(ANY)
    def bold(node):
        return neg(node.inputs[0]) if node.op == "relu" else None

    a = source()
    g = graph_of(relu(a), inputs=[a])
    said = []
    rewrite(g, [shy, bold], lambda r, n, why: said.append((r.name, why)))
    assert said == [("shy", "not today"), ("bold", None)]


def test_endless_rules_are_caught():
    @rule(P.relu(x))
    def again(x):
        return relu(x)

    a = source()
    with pytest.raises(RuntimeError, match="does not terminate: again"):
        rewrite(graph_of(relu(a), inputs=[a]), [again])


def test_a_rewrite_wakes_the_patterns_below_it():
    """The root of a deep pattern is seen before its leaf takes the right form, and again after."""

    @rule(P.neg(P.neg(P.neg(P.relu(x)))))
    def deep(x):
        return relu(x)

    @rule(P.add(x, 0.0))
    def add_zero(x):
        return relu(x)

    a = source()
    g = graph_of(neg(neg(neg(add(a, 0.0)))), inputs=[a])
    rewrite(g, [deep, add_zero])
    assert [n.op for n in g.nodes()] == ["relu"]


def test_the_origin_follows():
    @rule(P.relu(x))
    def twice_negative(x):
        return neg(neg(x))

    a = source()
    g = graph_of(relu(a, origin="Relu_7"), inputs=[a])
    rewrite(g, [twice_negative])
    assert {n.origin for n in g.nodes()} == {"Relu_7"}
    got = interpret(g, {"x": np.ones((2, 3), np.float32)})["out0"]
    np.testing.assert_array_equal(got, np.full((2, 3), 1, np.float32))


def test_set_input_keeps_uses_complete():
    a, b = source(), source()
    node = add(a, a).producer
    Graph.set_input(node, 0, b)
    assert list(a.uses) == list(b.uses) == [node]  # `a` is still the second input
    Graph.set_input(node, 1, b)
    assert not a.uses
    assert list(b.uses) == [node]
    Graph.set_input(node, 3, a)
    assert node.inputs == [b, b, None, a]
    Graph.set_input(node, 3, None)
    assert not a.uses
    Graph.replace_input(node, b, a)
    assert node.inputs == [a, a, None, None]
    assert not b.uses
    detach(node)
    assert not a.uses


def test_verify_finds_broken_graphs():
    a = source()
    g = graph_of(relu(neg(a)), inputs=[a])
    verify(g)
    node = next(iter(g.nodes()))
    node.outputs[0].type = Type("f32", (9,))
    with pytest.raises(BrokenGraph, match="inference says"):
        verify(g)

    g = graph_of(relu(neg(a)), inputs=[a])
    first, last = g.nodes()
    g.set_input(first, 0, last.outputs[0])
    with pytest.raises(BrokenGraph, match="reads its own result"):
        verify(g)

    g = graph_of(relu(neg(a)), inputs=[a])
    last.outputs[0].uses.clear()
    next(iter(g.nodes())).outputs[0].uses.clear()
    with pytest.raises(BrokenGraph, match="does not list the node"):
        verify(g)

    with pytest.raises(BrokenGraph, match="neither an input"):
        verify(graph_of(relu(a), inputs=[]))


def steps(node):
    return 1.0


def test_a_weighed_rule_fires_only_where_it_saves():
    @rule(P.relu(x), weigh=True)
    def longer(x):
        return neg(neg(x))

    @rule(P.relu(P.neg(x)), weigh=True)
    def shorter(x):
        return neg(x)

    def fresh():
        a = source()
        return graph_of(relu(neg(a)), inputs=[a])

    said = []
    g = fresh()
    assert rewrite(g, [longer], lambda r, n, why: said.append(why), steps) == 0
    assert "instead of" in said[0]
    assert [n.op for n in g.nodes()] == ["neg", "relu"]
    verify(g)  # what was weighed and dropped left no trace
    assert rewrite(fresh(), [longer, shorter], cost=steps) == 1


def test_of_rivals_the_cheapest_wins_in_any_order():
    @rule(P.relu(P.neg(P.neg(x))), weigh=True)
    def good(x):
        return neg(neg(x))

    @rule(P.relu(P.neg(P.neg(x))), weigh=True)
    def best(x):
        return neg(x)

    for rules in ([good, best], [best, good]):
        a, said = source(), []
        g = graph_of(relu(neg(neg(a))), inputs=[a])
        rewrite(g, rules, lambda r, n, why, said=said: said.append((r.name, why)), steps)
        assert ("best", None) in said
        assert [n.op for n in g.nodes()] == ["neg"]


def test_shared_nodes_are_no_saving():
    @rule(P.relu(P.neg(x).shared()), weigh=True)
    def around(x):
        return neg(x)

    a = source()
    shared = neg(a)
    g = graph_of(relu(shared), shared, inputs=[a])
    assert rewrite(g, [around], cost=steps) == 0


def test_a_node_read_twice_is_released_once():
    """Else a chain of nodes that do so would take twice as long with every node."""
    x = Value(Type("f32", (2,)), "x")
    v = x
    for _ in range(64):
        v = REGISTRY["add"](v, v)
    graph = Graph([x], [v], ["y"])
    graph.replace(v, x)
    assert list(x.uses) == [graph.result]
