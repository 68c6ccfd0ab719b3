"""The float model before quantisation: loaded, optimised, with unique tensor names."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import intaglio
from intaglio import passes, targets
from intaglio.errors import BadInput, option
from intaglio.ir import Graph
from intaglio.passes.fold import FOLD
from intaglio.quant.options import refuse_unknown
from intaglio.quant.ranges.probe import deferred_gc
from intaglio.quant.weights.unpacking import unpack_weights
from intaglio.targets import Target


def prepare(model: str | Path | Graph, target: str | Target = "cpu", **load: Any) -> Graph:
    """The float graph that is quantised: optimised, and every tensor has a unique name."""
    chip = targets.find(target)
    replace = passes.Rules([*chip.replace, *FOLD], chip.cost)
    with deferred_gc():
        if isinstance(model, Graph):
            if load:
                refuse_unknown(load)
                raise BadInput(
                    f"{option(next(iter(load)))} is for model files: a Graph is loaded already; "
                    "leave it out"
                )
            graph = model.copy()
        else:
            refuse_unknown(load)
            graph = intaglio.load(model, **load)
        unpack_weights(graph)
        passes.run(graph, [*passes.neutral(chip.cost), passes.Pass("replace", replace)], level=2)
        name_tensors(graph)
        gc.collect()  # frees the weights as the file had them, before calibration needs memory
    return graph


def name_tensors(graph: Graph) -> None:
    """Give every tensor that has no name, or that shares its name, a unique name."""
    taken = {v.name for v in graph.inputs}
    for v in graph.values():
        if v in graph.inputs:
            continue
        stem = v.name or (v.producer.origin or v.producer.op if v.producer else "constant")
        name, i = stem, 1
        while not name or name in taken:
            name, i = f"{stem}_{i}", i + 1
        v.name = name
        taken.add(name)
