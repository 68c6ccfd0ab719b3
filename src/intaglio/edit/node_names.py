"""Names of tensors in nodes and in the sub-graphs of nodes, where inner names hide outer ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from intaglio.frontends.onnx.topological_order import free_names, sub_graphs


def copy_of(message: Any) -> Any:
    """A copy of a protobuf message."""
    made = type(message)()
    made.CopyFrom(message)
    return made


def renamed(proto: Any, reads: Mapping[str, str], results: Mapping[str, str]) -> Any:
    """A copy of a node that reads tensors, or calls its results, by other names.

    Names of outer tensors in its sub-graphs are replaced too.
    """
    made = copy_of(proto)
    for i, name in enumerate(made.input):
        made.input[i] = reads.get(name, name)
    for i, name in enumerate(made.output):
        made.output[i] = results.get(name, name)
    for graph in sub_graphs(made):
        free = {name: reads[name] for name in free_names(graph) if name in reads}
        if free:
            _rename_free(graph, free)
    return made


def _rename_free(graph: Any, names: Mapping[str, str]) -> None:
    """Rename outer tensors that a sub-graph reads."""
    nodes = [renamed(n, names, {}) for n in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for output in graph.output:
        output.name = names.get(output.name, output.name)


def with_reads(proto: Any, old: str, new: str) -> Any:
    """A copy of the node that reads `new` instead of `old`, also inside of its sub-graphs."""
    return renamed(proto, {old: new}, {})


def with_results(proto: Any, old: str, new: str) -> Any:
    """A copy of the node whose result `old` is called `new`."""
    return renamed(proto, {}, {old: new})


def inner_names(proto: Any) -> Iterator[str]:
    """Names of tensors and nodes inside of the sub-graphs of a node."""
    for graph in sub_graphs(proto):
        yield from (i.name for i in graph.input)
        yield from (t.name for t in graph.initializer)
        yield from (t.values.name for t in graph.sparse_initializer)
        for n in graph.node:
            yield n.name
            yield from n.output
            yield from inner_names(n)


def labels(nodes: Iterable[Any]) -> list[str]:
    """Unique names of nodes. A node without one is called by its operator and its place in the
    file, `Conv_12`, as in messages of the importer.
    """
    taken: set[str] = set()
    result = []
    for i, n in enumerate(nodes):
        label = n.name or f"{n.op_type}_{i}"
        while label in taken:
            label += f"_{i}"
        taken.add(label)
        result.append(label)
    return result
