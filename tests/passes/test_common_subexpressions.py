import numpy as np
from tests.check import compare

from intaglio import ops, passes
from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value, constant
from intaglio.passes.common_subexpressions import merge_duplicates

ROW = Type("f32", (2, 3))


def merged(graph: Graph) -> list[str]:
    merge_duplicates(graph, lambda *_: None)
    return [n.op for n in graph.nodes()]


def test_equal_chains_become_one_and_keep_both_outputs():
    x = Value(ROW, "x")
    chains = [ops.relu(ops.add(x, constant(np.float32(2)))) for _ in range(2)]
    graph = Graph([x], chains, ["a", "b"])
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3) - 3}
    want = interpret(graph, feeds)
    assert merged(graph) == ["add", "relu"]
    got = interpret(graph, feeds)
    assert list(got) == ["a", "b"]
    for name in want:
        compare(got[name], want[name], name)


def test_other_constants_attributes_and_operands_stay_apart():
    x, y = Value(ROW, "x"), Value(ROW, "y")
    made = [
        ops.add(x, constant(np.float32(2))),
        ops.add(x, constant(np.float32(3))),
        ops.add(x, y),
        ops.softmax(x, axis=0),
        ops.softmax(x, axis=1),
    ]
    assert len(merged(Graph([x, y], made, list("abcde")))) == 5


def test_it_is_part_of_level_one():
    x = Value(ROW, "x")
    graph = Graph([x], [ops.mul(ops.exp(x), ops.exp(x))], ["y"])
    passes.run(graph, passes.neutral(), level=1)
    assert [n.op for n in graph.nodes()] == ["exp", "mul"]
