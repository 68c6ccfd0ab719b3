"""Calibrating what keeps state between runs: every sample with the state that it meets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import intaglio
from intaglio.ir import Array, Graph, Type


def given_inputs(graph: Graph) -> list[tuple[str, Type]]:
    """What samples are for: all inputs but those that a session keeps by itself."""
    return [(v.name, v.type) for v in graph.inputs if v.name not in graph.state]


def keeping(graph: Graph, state: Mapping[str, Array | None]) -> Graph:
    """The graph with this state; with none, it is read and given like any input and output."""
    if dict(graph.state) == {} == dict(state):
        return graph
    made = graph.copy()
    made.state = dict(state)
    return made


def with_state(graph: Graph, samples: Iterable[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """The samples in order, as the runs of one session, each with the state before it."""
    made: list[dict[str, Array]] = []
    with intaglio.open(intaglio.compile(graph)) as session:
        for sample in samples:
            made.append({**sample, **session.state})
            session.run(sample)
    return made


def calibrated(graph: Graph, samples: Any, read: Any) -> Any:
    """Samples for all inputs of a graph, states too, which from here on are plain inputs."""
    if not graph.state:
        return samples
    whole = with_state(graph, samples)
    graph.state = {}
    return read(whole, [(v.name, v.type) for v in graph.inputs], limit=len(whole))
