"""Invariants of a graph, checked after every pass in tests and with INTAGLIO_DEBUG=1."""

from __future__ import annotations

from intaglio import dtypes
from intaglio.ir import Graph, Node, Type, Value
from intaglio.ops.registry import REGISTRY


class BrokenGraph(AssertionError):
    """A pass made an invalid graph: a bug in Intaglio, not a mistake of the user."""


def verify(graph: Graph, where: str = "graph") -> None:
    """Raise BrokenGraph unless the graph is acyclic, well typed and has complete uses."""
    nodes = _sorted(graph, where)
    known = set(graph.inputs)
    if len({v.name for v in graph.inputs}) != len(graph.inputs):
        raise BrokenGraph(f"{where}: two inputs have the same name: {graph.inputs}")
    if len(graph.output_names) != len(graph.outputs):
        raise BrokenGraph(f"{where}: {len(graph.outputs)} outputs, {graph.output_names} names")
    results = dict(zip(graph.output_names, graph.outputs, strict=True))
    read = {v.name: v for v in graph.inputs}
    for name in graph.state:
        ends = read.get(name), results.get(name)
        if None in ends or len({v.type.but(quant=None) for v in ends if v}) != 1:
            raise BrokenGraph(
                f"{where}: state '{name}' is the input {ends[0]} and the output {ends[1]}; "
                "their types must match"
            )
    for node in [*nodes, graph.result]:
        what = f"{where}: {node.op} '{node.origin}'"
        for v in node.inputs:
            if v is not None:
                _check_operand(node, v, known, what)
        if node is graph.result:
            continue
        if node.op not in REGISTRY:
            raise BrokenGraph(f"{what}: no such op")
        for body in node.bodies():
            verify(body, what)
        types = REGISTRY[node.op].types(node.inputs, node.attrs)
        got = [v.type for v in node.outputs]
        if len(got) != len(types) or not all(map(_covers, got, types)):
            raise BrokenGraph(f"{what}: outputs are {got}, inference says {types}")
        known.update(node.outputs)


def _check_operand(node: Node, v: Value, known: set[Value], what: str) -> None:
    if node not in v.uses:
        raise BrokenGraph(f"{what}: reads {v}, which does not list the node in its uses")
    if v.data is not None:
        if v.data.shape != v.shape or v.data.dtype != dtypes.numpy_of(v.dtype):
            raise BrokenGraph(f"{what}: constant {v} holds {v.data.dtype}{v.data.shape}")
        if v.producer is not None:
            raise BrokenGraph(f"{what}: constant {v} has a producer")
    elif v not in known:
        raise BrokenGraph(
            f"{what}: reads {v}, which is neither an input nor the output of an earlier node"
        )


def _covers(t: Type, inferred: Type) -> bool:
    """Whether `t` is the inferred type; it may have more dynamic axes, which folding resolved."""
    plain = (t.dtype, t.shape) == (inferred.dtype, inferred.shape)
    return plain and set(inferred.dynamic) <= set(t.dynamic)


def _sorted(graph: Graph, where: str) -> list[Node]:
    """The nodes, producers first; BrokenGraph if there is a cycle."""
    order: list[Node] = []
    open_: dict[Node, bool] = {}  # True until all producers of the node are sorted
    stack = [v.producer for v in graph.outputs if v.producer]
    while stack:
        node = stack[-1]
        if node not in open_:
            open_[node] = True
            for v in node.inputs:
                if v is not None and v.producer is not None:
                    if open_.get(v.producer):
                        raise BrokenGraph(
                            f"{where}: {node.op} '{node.origin}' reads its own result"
                        )
                    if v.producer not in open_:
                        stack.append(v.producer)
        else:
            stack.pop()
            if open_[node]:
                open_[node] = False
                order.append(node)
    return order
