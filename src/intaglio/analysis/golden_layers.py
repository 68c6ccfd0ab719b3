"""The layers of the golden model, each on tensors that are rounded as a package stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intaglio.analysis.accuracy import OTHER, LayerCopy
from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Value


class GoldenLayers:
    """Golden tensors, each computed by the interpreter from the `read` ones before it."""

    def __init__(self, golden: Graph, read: Sequence[Value], wanted: Sequence[Value]):
        self.places = {v: Value(v.type.but(quant=None), f"rounded {i}") for i, v in enumerate(read)}
        known = {place.name: place for place in self.places.values()}
        names = {v: place.name for v, place in self.places.items()}
        self.wanted = [v for v in wanted if v.producer is not None]
        results = [LayerCopy(known, names, None).copy(v) for v in self.wanted]
        inputs = [v for v in known.values() if v.uses or v in results]
        self.graph = Graph(inputs, results, [f"t{i}" for i in range(len(results))])

    def run(self, feeds: Mapping[str, Array], read: Mapping[Value, Array]) -> dict[Value, Array]:
        """The results by golden tensor; `read` are the values of the tensors to compute from."""
        given = {place.name: read[v] for v, place in self.places.items()}
        given |= {f"{OTHER}{n}": a for n, a in feeds.items()}
        results = interpret(self.graph, {v.name: given[v.name] for v in self.graph.inputs})
        return {v: results[f"t{i}"] for i, v in enumerate(self.wanted)}


def own_error(golden: Array, result: Array, expected: Array) -> Array:
    """The golden values with the error that a layer adds: its result on rounded tensors less what
    is `expected` of the golden layer on the same ones."""
    with np.errstate(invalid="ignore", over="ignore"):
        own = golden + (result - expected)
    moved = np.where(np.isfinite(expected), own, result)
    same: Array = np.where(result == expected, golden, moved)
    return same
