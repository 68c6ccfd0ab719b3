"""Chips that round in their own way: their ops in place of the NPU ops of all chips."""

from __future__ import annotations

from collections.abc import Callable

from intaglio.ir import Graph, Node, Value


def with_ops_of_chip(graph: Graph, chip_node: Callable[[Node, list[Value | None]], Node]) -> Graph:
    """A copy of a graph whose nodes `chip_node` makes, from the old node and its new inputs."""
    inner: dict[Value, Value] = {v: Value(v.type, v.name) for v in graph.inputs}
    for n in graph.nodes():
        given = [v if v is None or v.data is not None else inner[v] for v in n.inputs]
        made = chip_node(n, given)
        for old, new in zip(n.outputs, made.outputs, strict=True):
            new.name, inner[old] = old.name, new
    outputs = [inner[v] for v in graph.outputs]
    return Graph([inner[v] for v in graph.inputs], outputs, graph.output_names, graph.name)
