"""The inputs of a model file, before it is compiled: names, types, and open dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput
from intaglio.frontends import load, sniff
from intaglio.frontends.model_source import is_live, model_source
from intaglio.frontends.onnx import OnnxModel, parse_onnx
from intaglio.frontends.onnx.input_binding import input_dtype, open_shape
from intaglio.ir import Graph, Type
from intaglio.symint import Symbol, Symbols, SymInt, range_of

UNLIMITED = 1 << 31  # extents of an open dimension without a range
Shape = tuple[int, ...]


class ModelInputs:
    """A model that can be loaded at any size."""

    def __init__(self, model: Any, keywords: Mapping[str, Any]):
        self.keywords = dict(keywords)
        self.model: Any = model
        if not isinstance(model, Graph) and not is_live(model):
            self.model = model_source(model)
            if not isinstance(self.model, Path) or sniff(self.model) == "ONNX":
                self.model = parse_onnx(self.model)
        self.output_names: list[str] = []
        self.types = self._types()

    def _types(self) -> dict[str, Type] | None:
        """The inputs by name; None if the file does not tell them."""
        if isinstance(self.model, OnnxModel):
            return self._declared()
        try:
            graph = self.load()
        except BadInput:
            return None  # a shape is missing: the first inputs give it
        self.output_names = [n for n in graph.output_names if n not in graph.state]
        return {v.name: v.type for v in graph.inputs if v.name not in graph.state}

    def _declared(self) -> dict[str, Type]:
        graph = self.model.proto.graph
        stored = {t.name for t in graph.initializer}
        stored |= {s.values.name for s in graph.sparse_initializer}
        bound = {*stored, *(self.keywords.get("values") or {})}
        infos = [i for i in graph.input if i.name not in bound]
        shapes = self.keywords.get("shapes") or {}
        dims = self.keywords.get("dims") or {}
        listed: dict[str, list[Any]] = {}
        for info in infos:
            declared = shapes.get(info.name) or open_shape(info)
            if declared is None:
                raise BadInput(
                    f"onnx: input '{info.name}' has no declared rank; give its shape with shapes="
                )
            axes = [dims.get(d, d) if isinstance(d, str) else d for d in declared]
            for i, d in enumerate(axes):
                if d == "":
                    axes[i] = f"{info.name}.{i}"
            listed[info.name] = axes
        names = dict.fromkeys(d for axes in listed.values() for d in axes if isinstance(d, str))
        space = Symbols([Symbol(n, 0, UNLIMITED) for n in names])
        self.output_names = list(self.keywords.get("outputs") or (o.name for o in graph.output))
        return {
            info.name: Type(
                input_dtype(info),
                tuple(space.extent(d) if isinstance(d, str) else d for d in listed[info.name]),
            )
            for info in infos
        }

    def load(self, **more: Any) -> Graph:
        """The graph, with options in addition to those of the session."""
        if isinstance(self.model, Graph):
            if more:
                raise BadInput(
                    "a Graph has the shapes that it was loaded with; give the model file instead"
                )
            return self.model
        merged = dict(self.keywords)
        for name, value in more.items():
            merged[name] = {**(merged.get(name) or {}), **value}
        graph: Graph = load(self.model, **merged)
        return graph

    def options_at(self, shapes: Mapping[str, Shape]) -> dict[str, Any]:
        """The options of `load` for these shapes of the inputs."""
        if self.types is not None and all(
            n in self.types and self.types[n].shape == s for n, s in shapes.items()
        ):
            return {}
        return {"shapes": dict(shapes)}

    def ranges(self, seen: Sequence[Mapping[str, int]]) -> list[Symbol]:
        """Ranges of the open dimensions that hold all sizes seen, up to a power of two."""
        return [_range_of(name, [s[name] for s in seen]) for name in seen[0]]

    def options_within(self, ranges: Sequence[Symbol]) -> dict[str, Any]:
        """The options of `load` for these ranges of the open dimensions."""
        space = Symbols(ranges)
        shapes = {
            name: tuple(
                space.extent(range_of(d).name) if isinstance(d, SymInt) else d for d in t.shape
            )
            for name, t in (self.types or {}).items()
        }
        return {"shapes": shapes}


def _range_of(name: str, extents: Sequence[int]) -> Symbol:
    """A range for an open dimension. Sizes of pictures often are multiples of 8 to 64."""
    common = math.gcd(*extents)
    power = common & -common  # the largest power of two that divides all
    multiple = power if power >= 8 and min(extents) >= 4 * power else 1
    high = max(1 << (max(extents) - 1).bit_length(), multiple)
    return Symbol(name, multiple if min(extents) else 0, high, multiple)
