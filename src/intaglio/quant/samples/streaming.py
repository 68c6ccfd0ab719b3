"""Calibration of streaming models: each sample together with the state before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import intaglio
from intaglio.ir import Array, Graph, Type


def user_inputs(graph: Graph) -> list[tuple[str, Type]]:
    """The inputs that samples provide: all but the state, which a session carries itself."""
    return [(v.name, v.type) for v in graph.inputs if v.name not in graph.state]


def with_graph_state(graph: Graph, state: Mapping[str, Array | None]) -> Graph:
    """The graph with this state; with none, state tensors are plain inputs and outputs."""
    if dict(graph.state) == {} == dict(state):
        return graph
    result = graph.copy()
    result.state = dict(state)
    return result


def samples_with_state(
    graph: Graph, samples: Iterable[Mapping[str, Array]]
) -> list[dict[str, Array]]:
    """The samples, each with the state that a session has before it, run in order."""
    results: list[dict[str, Array]] = []
    with intaglio.open(intaglio.compile(graph)) as session:
        for sample in samples:
            results.append({**sample, **session.state})
            session.run(sample)
    return results


def state_as_inputs(graph: Graph, samples: Any, read: Any) -> Any:
    """Samples for all inputs; the graph's state becomes plain inputs and outputs, in place."""
    if not graph.state:
        return samples
    whole = samples_with_state(graph, samples)
    graph.state = {}
    return read(whole, [(v.name, v.type) for v in graph.inputs], limit=len(whole))
