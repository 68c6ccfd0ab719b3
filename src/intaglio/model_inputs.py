"""The inputs of a model file, before it is compiled: names, types, and open dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput, option
from intaglio.frontends import load, load_with, sniff
from intaglio.frontends.model_source import is_live, model_source
from intaglio.frontends.onnx import STRINGS, OnnxModel, parse_onnx
from intaglio.frontends.onnx.input_binding import input_dtype, open_shape
from intaglio.frontends.onnx.topological_order import reads, sorted_nodes
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.preprocess import split_options
from intaglio.ir import Array, Graph, Type
from intaglio.symint import Symbol, Symbols, SymInt, range_of

UNLIMITED = 1 << 31  # extents of an open dimension without a range
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Binding:
    """What a model is loaded for: the shapes of its inputs, and values that become constants."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    overridden: Sequence[str] = ()  # initialisers that are inputs
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def words(self) -> dict[str, Any]:
        """The binding as a part of a key: what is not bound is left out."""
        found = {
            "shapes": self.shapes,
            "values": self.values,
            "inputs": list(self.overridden),
            "dtypes": self.dtypes,
        }
        return {k: v for k, v in found.items() if v}


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
        self.unranked: dict[str, str] = {}  # element types of inputs without a declared rank
        self.overridable: dict[str, Type] = {}  # initialisers that an input may replace
        self.types = self._types()

    def _types(self) -> dict[str, Type] | None:
        """The inputs by name; None if the file does not tell them."""
        preprocessing, rest = split_options(self.keywords)
        if isinstance(self.model, OnnxModel):
            self.output_names = self._outputs()
            if not preprocessing and self._are_inputs(rest.get("inputs")):
                return self._declared()
        try:
            graph = self.load()
        except BadInput:
            if preprocessing:
                raise  # it changes the inputs, so that their shapes cannot be those of the model
            return None  # a shape is missing: the first inputs give it
        self.output_names = [n for n in graph.output_names if n not in graph.state]
        return {v.name: v.type for v in graph.inputs if v.name not in graph.state}

    def _are_inputs(self, names: Sequence[str] | None) -> bool:
        return names is None or set(names) <= {i.name for i in self.model.proto.graph.input}

    def _outputs(self) -> list[str]:
        """The names of the outputs; those that hold strings are left out, as the importer does."""
        given = self.model.proto.graph.output
        numbers = [o.name for o in given if o.type.tensor_type.elem_type != STRINGS]
        return list(self.keywords.get("outputs") or numbers or (o.name for o in given))

    def _declared(self) -> dict[str, Type]:
        graph = self.model.proto.graph
        stored = {t.name for t in graph.initializer}
        stored |= {s.values.name for s in graph.sparse_initializer}
        bound = set(self.keywords.get("values") or {})
        chosen = self.keywords.get("inputs")
        needed = None if self.keywords.get("outputs") is None else self._needed(stored | bound)
        infos = [
            i
            for i in graph.input
            if i.name not in bound
            and (chosen is None or i.name in chosen)
            and (needed is None or i.name in needed)
        ]
        listed: dict[str, tuple[Any, list[Any]]] = {}
        for info in infos:
            declared = (self.keywords.get("shapes") or {}).get(info.name) or open_shape(info)
            if declared is not None:
                listed[info.name] = info, self._axes(info.name, declared)
            elif info.name not in stored:
                self.unranked[info.name] = input_dtype(info)
        names = dict.fromkeys(d for _, axes in listed.values() for d in axes if isinstance(d, str))
        space = Symbols([Symbol(n, 0, UNLIMITED) for n in names])
        types = {
            name: Type(
                input_dtype(info), tuple(space.extent(d) if isinstance(d, str) else d for d in axes)
            )
            for name, (info, axes) in listed.items()
        }
        is_input = set(types) if chosen is not None else set(types) - stored
        self.overridable = {n: t for n, t in types.items() if n not in is_input}
        return {n: t for n, t in types.items() if n in is_input}

    def _axes(self, name: str, declared: Iterable[Any]) -> list[Any]:
        dims = self.keywords.get("dims") or {}
        axes = [dims.get(d, d) if isinstance(d, str) else d for d in declared]
        return [f"{name}.{i}" if d == "" else d for i, d in enumerate(axes)]

    def _needed(self, given: set[str]) -> set[str]:
        """The names of all tensors that the chosen outputs depend on."""
        graph = self.model.proto.graph
        known = given | {i.name for i in graph.input}
        nodes = sorted_nodes(graph.node, self.output_names, known.__contains__, lambda _: False)
        return {name for _, n in nodes for name in reads(n)} | set(self.output_names)

    @property
    def may_vary(self) -> bool:
        """Whether runs may have inputs of different shapes."""
        types = self.types
        return types is None or bool(self.unranked) or not all(t.fixed for t in types.values())

    @property
    def is_graph(self) -> bool:
        """Whether the model is a Graph, which has the shapes and ranges that it was loaded with."""
        return isinstance(self.model, Graph)

    # ---- loading -------------------------------------------------------------------------------
    def load(self, **more: Any) -> Graph:
        """The graph, with options in addition to those of the session."""
        if isinstance(self.model, Graph):
            self._refuse_graph(more)
            return self.model
        merged = dict(self.keywords)
        for name, value in more.items():
            merged[name] = {**(merged.get(name) or {}), **value}
        graph: Graph = load(self.model, **merged)
        return graph

    def load_for(self, binding: Binding) -> Graph:
        """The graph for these shapes and values."""
        if isinstance(self.model, Graph):
            self._refuse_graph(binding.words())
            return self.model
        preprocessing, rest = split_options(self.keywords)
        given = {k: v for k, v in rest.items() if v is not None}
        examples = given.pop("inputs", None) if is_live(self.model) else None
        values = {**given.get("values", {}), **binding.values}
        if binding.overridden and "inputs" not in given:
            kept = [n for n in (*(self.types or {}), *self.unranked) if n not in values]
            given["inputs"] = [*kept, *(n for n in binding.overridden if n not in values)]
        if binding.dtypes:
            given["dtypes"] = {**given.get("dtypes", {}), **binding.dtypes}
        options = ImportOptions(**{**given, "values": values}).at(binding.shapes)
        return load_with(self.model, options, preprocessing, examples)

    def _refuse_graph(self, more: Mapping[str, Any]) -> None:
        if more:
            raise BadInput(
                "a Graph has the shapes and ranges that it was loaded with; give the model file "
                "instead"
            )

    # ---- ranges --------------------------------------------------------------------------------
    def within(self, ranges: Sequence[Symbol]) -> Binding:
        """What the model is loaded for to run all sizes in these ranges."""
        space = Symbols(ranges)
        shapes = {
            name: tuple(
                space.extent(range_of(d).name) if isinstance(d, SymInt) else d for d in t.shape
            )
            for name, t in (self.types or {}).items()
        }
        return Binding(shapes)


class SizesSeen:
    """The extents that open dimensions had, and the ranges that hold them."""

    def __init__(self) -> None:
        self._extents: dict[str, tuple[int, int, int]] = {}  # smallest, largest, common divisor

    def add(self, sizes: Mapping[str, int]) -> None:
        for name, extent in sizes.items():
            low, high, common = self._extents.get(name, (extent, extent, extent))
            self._extents[name] = min(low, extent), max(high, extent), math.gcd(common, extent)

    @property
    def vary(self) -> bool:
        """Whether some dimension had several extents."""
        return any(low < high for low, high, _ in self._extents.values())

    def ranges(self) -> list[Symbol]:
        """Ranges that hold all extents seen, up to a power of two."""
        return [_range_of(name, *seen) for name, seen in self._extents.items()]


def _range_of(name: str, smallest: int, largest: int, common: int) -> Symbol:
    """A range for an open dimension. Sizes of pictures often are multiples of 8 to 64."""
    power = common & -common  # the largest power of two that divides all
    multiple = power if power >= 8 and smallest >= 4 * power else 1
    high = max(1 << max(largest - 1, 0).bit_length(), multiple)
    return Symbol(name, multiple if smallest else 0, high, multiple)


def refuse_ranges(keywords: Mapping[str, Any]) -> None:
    """BadInput if sizes are given as ranges or lists, which a session finds out by itself."""
    for name in ("dims", "shapes"):
        given = keywords.get(name) or {}
        values = given.values() if isinstance(given, Mapping) else ()
        extents = [e for v in values for e in (v if isinstance(v, list | tuple) else [v])]
        listed = name == "dims" and any(isinstance(v, list | tuple) for v in values)
        if listed or any(isinstance(e, str | list | tuple) for e in extents):
            raise BadInput(
                f"{option(name)} has a range or a list of sizes; a session of a model file compiles"
                " for the sizes that come: leave them out, or open the package that "
                f"intaglio.compile(model, {option(name, ...)}) makes"
            )
