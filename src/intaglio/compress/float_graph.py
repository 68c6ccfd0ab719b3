"""The float graph that training starts from: with batch norms folded, or as layers of their own."""

from __future__ import annotations

from intaglio import passes
from intaglio.ir import Graph
from intaglio.quant.prepare import name_tensors, prepare

UNFOLDED = ("canonicalize", "merge duplicates", "recognize")  # passes that leave batch norms alone


def float_graph(model: Graph, fold: bool = True) -> Graph:
    """A prepared copy. Without `fold` batch norms stay: long trainings go better with them."""
    if fold:
        return prepare(model)
    graph = model.copy()
    passes.run(graph, [p for p in passes.neutral() if p.name in UNFOLDED], level=2)
    name_tensors(graph)
    return graph


def has_norms(graph: Graph) -> bool:
    """Whether batch norms of this graph are layers of their own."""
    return any(n.op == "batch_norm" for n in graph.nodes())
