"""Topological sort of the nodes that the outputs need; the order in the file is not relied on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from intaglio.errors import BadInput

_GRAPH, _GRAPHS = 5, 10  # AttributeProto.AttributeType


def sub_graphs(proto: Any) -> Iterable[Any]:
    """The graphs in the attributes of a node."""
    for a in proto.attribute:
        if a.type == _GRAPH or a.HasField("g"):
            yield a.g
        elif a.type == _GRAPHS:
            yield from a.graphs


def free_names(graph: Any) -> set[str]:
    """Names of outer tensors that a sub-graph reads."""
    result = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    result |= {s.values.name for s in graph.sparse_initializer}
    result |= {name for n in graph.node for name in n.output}
    read = names_read(graph.node) | {o.name for o in graph.output}
    return read - result


def reads(proto: Any) -> list[str]:
    """Names of all tensors that a node needs: operands, and captures of its sub-graphs."""
    names = [name for name in proto.input if name]
    for graph in sub_graphs(proto):
        names += sorted(free_names(graph))
    return names


def names_read(nodes: Iterable[Any]) -> set[str]:
    """Names of all tensors that these nodes need."""
    return {name for n in nodes for name in reads(n)}


def sorted_nodes(
    nodes: Sequence[Any],
    outputs: Sequence[str],
    given: Callable[[str], bool],
    outer: Callable[[str], bool],
) -> list[tuple[int, Any]]:
    """(index, node) of every node that `outputs` need, producers first.

    The nodes of `given` tensors are left out; `outer` tensors are used if no node computes them.
    """
    producer: dict[str, int] = {}
    for i, n in enumerate(nodes):
        for name in n.output:
            if name and producer.setdefault(name, i) != i:
                first = _show(nodes, producer[name])
                raise BadInput(
                    f"onnx: tensor '{name}' is computed twice, by {first} and {_show(nodes, i)}; "
                    "names must be unique"
                )
    done: dict[int, bool] = {}  # False while its operands are visited
    order: list[tuple[int, Any]] = []
    stack: list[int] = []

    def visit(name: str, reader: str) -> None:
        i = producer.get(name)
        if given(name) or (i is None and outer(name)):
            return
        if i is None:
            raise BadInput(
                f"onnx: {reader} reads '{name}', which no node, input or initialiser provides; "
                "the model is incomplete"
            )
        if done.get(i) is False:
            loop = [*stack_path(i), i]
            raise BadInput(
                f"onnx: the graph has a cycle: {' -> '.join(_show(nodes, k) for k in loop)}; "
                "a model must be acyclic"
            )
        if i not in done:
            stack.append(i)

    def stack_path(start: int) -> list[int]:
        open_nodes = [k for k in stack if done.get(k) is False]
        return open_nodes[open_nodes.index(start) :]

    for output in outputs:
        visit(output, "the graph's output list")
        while stack:
            i = stack[-1]
            if i in done:
                stack.pop()
                if not done[i]:
                    done[i] = True
                    order.append((i, nodes[i]))
                continue
            done[i] = False
            for name in reversed(reads(nodes[i])):
                visit(name, _show(nodes, i))
    return order


def _show(nodes: Sequence[Any], i: int) -> str:
    return f"{nodes[i].op_type} '{nodes[i].name or f'{nodes[i].op_type}_{i}'}'"
