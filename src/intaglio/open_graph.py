"""Graphs with open dimensions: their symbols, and the same graph at one size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from intaglio.errors import BadInput, option
from intaglio.ir import Graph, Node, Type, Value
from intaglio.symint import Symbol, SymInt, bound, fixed, range_of


def open_ranges(types: Iterable[Type]) -> dict[str, Symbol]:
    """The open dimensions of inputs by name."""
    shapes: list[tuple[Any, ...]] = [t.shape for t in types]
    found = [range_of(d) for shape in shapes for d in shape if isinstance(d, SymInt)]
    return {s.name: s for s in found}


def symbols_of(graph: Graph) -> dict[str, Symbol]:
    """The open dimensions of a graph's inputs by name."""
    return open_ranges(v.type for v in graph.inputs)


def require_fixed(graph: Graph, what: str) -> None:
    """BadInput if the graph has open dimensions; `what` needs one size."""
    symbols = symbols_of(graph)
    if symbols:
        ranges = ", ".join(f"{n}={s}" for n, s in symbols.items())
        one = option("dims", {n: s.high for n, s in symbols.items()})
        raise BadInput(f"{what} needs fixed shapes; the model has {ranges}; give one size: {one}")


def sizes_of(inputs: Mapping[str, Type], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The extents of the open dimensions for these shapes of the inputs.

    BadInput if an extent is outside of its range, or two inputs contradict each other.
    """
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for (name, t), shape in zip(inputs.items(), shapes, strict=True):
        for planned, extent in zip(t.shape, shape, strict=True):
            if not isinstance(planned, SymInt):
                continue
            symbol = range_of(planned)
            if extent not in symbol:
                raise BadInput(
                    f"input '{name}' has {symbol.name}={extent}; the model was compiled for "
                    f"{symbol.name}={symbol}"
                )
            if sizes.setdefault(symbol.name, extent) != extent:
                raise BadInput(
                    f"input '{name}' has {symbol.name}={extent}, input '{origin[symbol.name]}' has "
                    f"{symbol.name}={sizes[symbol.name]}; they must be equal"
                )
            origin.setdefault(symbol.name, name)
    return sizes


def at_sizes(t: Type, sizes: Mapping[str, int]) -> Type:
    """A type with fixed extents: open dimensions have these sizes, or the largest."""
    shape = tuple(
        sizes.get(range_of(d).name, bound(d)) if isinstance(d, SymInt) else d for d in t.shape
    )
    return t.but(shape=shape)


def at_size(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A copy of the graph with fixed shapes: its open dimensions have these extents."""
    new: dict[Value, Value] = {}

    def type_at(t: Type) -> Type:
        return t.but(shape=fixed(t.shape, sizes))

    def of(v: Value | None) -> Value | None:
        if v is None:
            return None
        if v not in new:
            new[v] = Value(type_at(v.type), v.name, v.data)
        return new[v]

    inputs = [of(v) for v in graph.inputs]
    for node in graph.nodes():
        attrs: dict[str, Any] = {
            k: at_size(a, sizes) if isinstance(a, Graph) else fixed(a, sizes)
            for k, a in node.attrs.items()
        }
        types = [type_at(v.type) for v in node.outputs]
        result = Node(node.op, [of(v) for v in node.inputs], attrs, types, node.origin)
        for v, w in zip(node.outputs, result.outputs, strict=True):
            w.name, new[v] = v.name, w
    outputs = [of(v) for v in graph.outputs]
    names, about = graph.output_names, graph.metadata
    return Graph(inputs, outputs, names, graph.name, about, graph.state)  # type: ignore[arg-type]
