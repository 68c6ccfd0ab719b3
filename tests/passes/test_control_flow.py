"""Control flow in the passes: constant folding, captures, and copies that the plan avoids."""

from __future__ import annotations

import numpy as np

import intaglio
from intaglio import ops, passes, targets
from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value, constant
from intaglio.passes.memory import plan_memory

F = Type("f32", (4,))
RNG = np.random.default_rng(0)


def branches(captures):
    """then: x + w, else: x * w"""
    made = []
    for op in (ops.add, ops.mul):
        inside = [Value(v.type, f"i{k}") for k, v in enumerate(captures)]
        made.append(Graph(inside, [op(*inside)], ["y"]))
    return made


def counting_loop(first, *captures, trip=3):
    """state = tanh(state) + capture; every state is collected too"""
    number, go = Value(Type("i64", ()), "i"), Value(Type("bool", ()), "go")
    state, *taken = [Value(v.type, f"s{k}") for k, v in enumerate((first, *captures))]
    new = ops.add(ops.tanh(state), *taken)
    body = Graph([number, go, state, *taken], [go, new, new], ["go", "state", "all"])
    return ops.loop(
        constant(np.int64(trip)), None, first, *captures, body=body, carried=1, bound=trip
    )


def legal(graph):
    passes.run(graph, [*passes.neutral(), *passes.lowering(targets.find("cpu"))])
    return plan_memory(graph)[0]


def test_if_of_constant_is_inlined():
    x = Value(F, "x")
    w = constant(np.arange(4, dtype=np.float32))
    then_graph, else_graph = branches([x, w])
    y = ops.if_(constant(np.False_), x, w, then_graph=then_graph, else_graph=else_graph)
    graph = intaglio.optimize(Graph([x], [y], ["y"]))
    assert [n.op for n in graph.nodes()] == ["mul"]
    a = RNG.standard_normal(4).astype(np.float32)
    np.testing.assert_array_equal(
        interpret(graph, {"x": a})["y"], a * np.arange(4, dtype=np.float32)
    )


def test_constants_move_into_bodies_and_fold_there():
    x, c = Value(F, "x"), Value(Type("bool", ()), "c")
    zero = constant(np.zeros(4, np.float32))
    then_graph, else_graph = branches([x, zero])
    y = ops.if_(c, x, zero, then_graph=then_graph, else_graph=else_graph)
    (node,) = intaglio.optimize(Graph([x, c], [y], ["y"])).nodes()
    assert len(node.inputs) == 2
    assert [n.op for n in node.attrs["then_graph"].nodes()] == []  # x + 0 is x
    assert [n.op for n in node.attrs["else_graph"].nodes()] == ["mul"]


def test_loop_states_and_branch_results_are_not_copied():
    x, c = Value(F, "x"), Value(Type("bool", ()), "c")
    final, collected = counting_loop(ops.neg(x), ops.exp(x))
    then_graph, else_graph = branches([final, x])
    chosen = ops.if_(c, final, x, then_graph=then_graph, else_graph=else_graph)
    plan = legal(Graph([x, c], [chosen, collected], ["y", "all"]))
    loop, branch = (next(s for s in plan.steps if s.op == op) for op in ("loop", "if"))
    body = loop.attrs["body"]
    assert loop.inputs[2] is body.inputs[2], "the state starts where it was made"
    assert body.outputs[1] is body.inputs[2], "the new state is written over the old one"
    assert loop.outputs[0] is body.inputs[2], "the last state stays where it is"
    assert loop.inputs[3] is body.inputs[3], "what the body captures is not copied"
    assert body.inputs[0] is None, "a counter that nobody reads is not kept"
    for sub in branch.plans:
        assert sub.outputs[0] is branch.outputs[0], "a branch writes straight to the result"
    assert loop.outputs[1].memory == branch.outputs[0].memory == "output"


def test_a_swap_is_not_done_in_place():
    """Fibonacci: a, b = b, a + b."""
    x, y = Value(F, "x"), Value(F, "y")
    number, go = Value(Type("i64", ()), "i"), Value(Type("bool", ()), "go")
    a, b = Value(F, "a"), Value(F, "b")
    body = Graph([number, go, a, b], [go, b, ops.add(a, b)], ["go", "a", "b"])
    ends = ops.loop(constant(np.int64(9)), None, x, y, body=body, carried=2, bound=9)
    graph = Graph([x, y], ends, ["a", "b"])
    one = np.ones(4, np.float32)
    with intaglio.open(intaglio.compile(graph)) as session:
        got = session.run({"x": one * 0, "y": one})
    assert (got["a"][0], got["b"][0]) == (34, 55)
