"""Runs networks on this machine's CPU, with all of their tensors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import intaglio
from intaglio import dtypes
from intaglio.ir import Array, Graph, Value
from intaglio.session import Session


def tensors_of(graph: Graph) -> list[Value]:
    """Named results with fixed shapes, in the order of the network."""
    found = [
        v
        for n in graph.nodes()
        for v in n.outputs
        if v.name and v.type.fixed and not v.type.dynamic and dtypes.is_float(v.dtype)
    ]
    return list({v.name: v for v in found}.values())


def opened(graph: Graph) -> Session:
    """The network, compiled for this CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return intaglio.open(intaglio.compile(graph.copy()))


def run(graph: Graph, sample: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name."""
    with opened(graph) as session:
        return dict(session.run(dict(sample)))


def run_all(graph: Graph, sample: Mapping[str, Array], level: int = 2) -> dict[str, Array]:
    """The inputs, all tensors of the optimised network, and its outputs, by name."""
    golden = intaglio.optimize(graph.copy(), level=level)
    names = dict(zip(golden.output_names, golden.outputs, strict=True))
    tensors = [v for v in tensors_of(golden) if v.name not in names]
    whole = Graph(golden.inputs, [*tensors, *names.values()], [*(v.name for v in tensors), *names])
    return {**sample, **run(whole, sample)}
