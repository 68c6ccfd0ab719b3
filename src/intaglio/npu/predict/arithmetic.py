"""Functions that need no exponential: hard swish, hard sigmoid, factors and offsets."""

from __future__ import annotations

from intaglio.ir import Graph, Node
from intaglio.ops.registry import REGISTRY
from intaglio.targets.host import family

BETWEEN = ("quantize_linear", "dequantize_linear")  # of a model that is quantised already
MOST = 16  # ops of a chain


def arithmetic_functions(graph: Graph) -> frozenset[str]:
    """Names of layers whose chain of functions has no exponential.

    The compiler makes one table of a chain, under the name of its product or of its last op.
    """
    return frozenset(
        node.origin
        for node in graph.nodes()
        if node.origin and not any(family(n) == "functions" for n in _chain(node))
    )


def _chain(node: Node) -> list[Node]:
    """A node and the element-wise ops before and behind it, up to products and other ops."""
    found, before = [node], [node] if _joins(node) else []
    while before and len(found) < MOST:
        for v in before.pop().inputs:
            n = v.producer if v is not None else None
            if n is not None and _joins(n) and n not in found:
                found.append(n)
                before.append(n)
    behind = [node]
    while behind and len(found) < MOST:
        for v in behind.pop().outputs:
            for n in v.uses:
                if _joins(n) and n not in found:
                    found.append(n)
                    behind.append(n)
    return found


def _joins(node: Node) -> bool:
    return node.op in BETWEEN or (node.op in REGISTRY and REGISTRY[node.op].elementwise)
