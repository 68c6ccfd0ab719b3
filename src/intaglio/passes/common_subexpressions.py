"""Common sub-expression elimination: merge nodes with equal ops, operands and attributes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from intaglio.ir import Graph, Node, Value
from intaglio.rewrite import Trace

MAX_COMPARED_BYTES = 4096  # larger constants are compared by identity


def merge_duplicates(graph: Graph, trace: Trace) -> int:
    """Merge nodes that compute the same; returns how many were removed."""
    graph.tidy()
    first: dict[Hashable, Node] = {}
    merged = 0
    for node in list(graph.nodes()):
        for a in node.attrs.values():
            if isinstance(a, Graph):
                merged += merge_duplicates(a, trace)
        same = first.setdefault(_key(node), node)
        if same is not node:
            for old, new in zip(node.outputs, same.outputs, strict=True):
                graph.replace(old, new)
            merged += 1
    return merged


def _key(node: Node) -> Hashable:
    attrs = tuple((k, _attr(v)) for k, v in sorted(node.attrs.items()))
    results = tuple(v.type for v in node.outputs)
    return node.op, tuple(_operand(v) for v in node.inputs), attrs, results


def _operand(v: Value | None) -> Hashable:
    if v is not None and v.data is not None and v.data.nbytes <= MAX_COMPARED_BYTES:
        return v.type, v.data.tobytes()
    return None if v is None else id(v)


def _attr(value: Any) -> Hashable:
    return value if isinstance(value, Hashable) and not isinstance(value, Graph) else id(value)
