"""Other values for the constants of a graph, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.arguments import by_name, described
from intaglio.errors import BadInput, did_you_mean
from intaglio.ir import Graph, Value

SHOWN = 6  # names in a message


def replace_constants(graph: Graph, arrays: Mapping[str, Any]) -> None:
    """Give the graph's constants of these names other values of the same type, in place."""
    by_name("weights", arrays, "names of constants to arrays", {"conv1.weight": ...})
    known: dict[str, list[Value]] = {}
    for v in _constants(graph):
        known.setdefault(v.name, []).append(v)
    for name, given in arrays.items():
        if name not in known:
            some = f"; it has {', '.join(sorted(known)[:SHOWN])}" if known else ""
            hint = did_you_mean(name, known) or some
            raise BadInput(f"model has no constant '{name}'{hint}")
        for v in known[name]:
            v.data = _as_typed(v, given)


def _as_typed(v: Value, given: Any) -> Any:
    """The array with the element type of the constant; BadInput unless it fits."""
    array, kind = np.asarray(given), dtypes.numpy_of(v.type.dtype)
    if array.shape != tuple(v.type.shape) or not np.can_cast(array.dtype, kind, "same_kind"):
        raise BadInput(f"constant '{v.name}' is {v.type}, got {described(array)}; give one like it")
    return np.ascontiguousarray(array, kind).reshape(array.shape)


def _constants(graph: Graph) -> Iterator[Value]:
    for v in graph.values():
        if v.data is not None and v.name:
            yield v
    for node in graph.nodes():
        for body in node.bodies():
            yield from _constants(body)
