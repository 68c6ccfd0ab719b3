"""The evaluator of the imported model: the float model with its preprocessing."""

from __future__ import annotations

import intaglio
from intaglio.compat.nncase.kmodel import PackageModel
from intaglio.compat.nncase.simulator import ModelTensors
from intaglio.ir import Graph


class GraphEvaluator(ModelTensors):
    """Runs the float model, before quantisation."""

    def __init__(self, graph: Graph | None = None):
        super().__init__()
        if graph is not None:
            self._take(PackageModel(intaglio.compile(graph, target="cpu")))
