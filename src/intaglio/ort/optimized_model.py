"""The file of `SessionOptions.optimized_model_filepath`: the optimised model as ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import intaglio
from intaglio.open_dimensions import Settings, find_open, optimize_open
from intaglio.ort.errors import InvalidArgument


def write_optimized(model: Any, path: str, level: int, keywords: Mapping[str, Any]) -> None:
    """Optimise a model and write it as ONNX; open dimensions stay open."""
    if Path(path).suffix in (".itg", ".ort"):
        raise InvalidArgument(
            f"optimized_model_filepath is '{path}'; the optimised model is written as ONNX; give a "
            "name that ends in .onnx; intaglio.compile(model).save writes packages"
        )
    source = find_open(model, dict(keywords))
    if source is not None:
        optimize_open(source, Settings(level)).save(path)
        return
    graph = intaglio.load(model, **keywords)
    intaglio.save_onnx(intaglio.optimize(graph, level), path)
