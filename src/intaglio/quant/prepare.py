"""The float model before quantisation: loaded, optimised, with unique tensor names."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import intaglio
from intaglio import passes, targets
from intaglio.errors import BadInput
from intaglio.ir import Graph
from intaglio.passes.fold import FOLD
from intaglio.quant.ranges.probe import collecting_late
from intaglio.quant.weights.unpacking import unpack_weights
from intaglio.targets import Target

INPUT_TYPES = ("float", "float32", "uint8")
ONLY_FOR_UINT8 = ("input_layout", "swap_rb", "letterbox", "input_range")


def prepare(model: str | Path | Graph, target: str | Target = "cpu", **load: Any) -> Graph:
    """The float graph that is quantised: optimised, and every tensor has a unique name."""
    chip = targets.find(target)
    replace = passes.Rules([*chip.replace, *FOLD], chip.cost)
    with collecting_late():
        if isinstance(model, Graph):
            if load:
                raise BadInput(
                    f"{next(iter(load))}= is no option of quantisation, and for model "
                    "files only: a Graph is read already; leave it out"
                )
            graph = model.copy()
        else:
            graph = intaglio.load(os.fspath(model), **load)
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


def embedded_preprocessing(given: Mapping[str, Any], mean: Any, std: Any) -> dict[str, Any]:
    """The preprocessing options that become part of the quantised graph.

    `mean` and `std` are part of it only if an input takes bytes (input_type "uint8"); otherwise
    they apply to the calibration samples alone.
    """
    kinds = given.get("input_type")
    each = list(kinds.values()) if isinstance(kinds, Mapping) else [kinds or "float"]
    for kind in each:
        if kind not in INPUT_TYPES:
            raise BadInput(f"input_type is '{kind}'; known are {', '.join(INPUT_TYPES)}")
    if "uint8" in each:
        return {**given, "mean": mean, "std": std}
    if wrong := [k for k in ONLY_FOR_UINT8 if given.get(k)]:
        raise BadInput(f"{wrong[0]} is for input_type 'uint8', which is not given")
    return {k: v for k, v in given.items() if k in ("output_layout", "layout")}
