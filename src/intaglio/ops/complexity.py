"""Number of parameters and multiply-accumulates (MACs) of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from intaglio.ir import Graph, Node
from intaglio.ops.registry import REGISTRY


@dataclass(frozen=True, slots=True)
class Complexity:
    """Parameters and MACs of one run."""

    parameters: int
    parameter_bytes: int
    macs: int


def macs(node: Node) -> int:
    """MACs of one node, including those of its bodies (If, Loop, Scan)."""
    return REGISTRY[node.op].macs(node)


def all_nodes(graph: Graph) -> Iterator[Node]:
    """Every node of the graph and of the bodies of its control flow."""
    for n in graph.nodes():
        yield n
        for body in n.bodies():
            yield from all_nodes(body)


def complexity(graph: Graph) -> Complexity:
    """Parameters, each counted once, and MACs of a graph."""
    nodes = list(all_nodes(graph))
    constants = {
        id(v): v.type for n in nodes for v in n.inputs if v is not None and v.data is not None
    }
    return Complexity(
        sum(t.size for t in constants.values()),
        sum(t.bytes for t in constants.values()),
        sum(macs(n) for n in graph.nodes()),
    )
