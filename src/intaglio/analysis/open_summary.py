"""The contents of an ONNX model with open dimensions, which `intaglio inspect` prints."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from intaglio import dtypes
from intaglio.analysis import summary
from intaglio.errors import IntaglioError
from intaglio.frontends.onnx import metadata_of
from intaglio.frontends.onnx.input_binding import Shape, open_shape
from intaglio.frontends.onnx.open_dims import OpenSizes, find_sizes
from intaglio.frontends.onnx.tensors import ELEMENTS
from intaglio.ir import Graph
from intaglio.open_dimensions import Source

USUAL_PICTURE, USUAL_LENGTH = 224, 128  # extents for which work is counted
NAMELESS = "?"


def of_open(source: Source) -> tuple[dict[str, Any], Graph | None]:
    """The facts of `summary.of_graph`, with names in the place of open extents, and the graph.

    Work is counted at one size, which `facts["open"]` has. If the model cannot be imported at two
    sizes, the facts are those of the file, and there is no graph.
    """
    try:
        sizes = find_sizes(source.model, source.options)
    except IntaglioError:
        return _of_file(source), None
    extents, graph = _at_usual_size(source, sizes)
    facts = summary.of_graph(graph)
    graphs = [source.at(sizes, [e[k] for e in sizes.extents]) for k in (0, 1)]
    names = {e: d.name or NAMELESS for d, e in zip(sizes.dims, sizes.extents, strict=True)}
    declared = {o.name: open_shape(o) for o in source.model.proto.graph.output}
    others = [{**_shapes(g, "inputs"), **_shapes(g, "outputs")} for g in graphs]
    for title in ("inputs", "outputs"):
        for name, t in facts[title].items():
            shapes = [o[name] for o in others]
            t["shape"] = _named(t["shape"], shapes, names, declared.get(name))
    facts["open"] = {str(d): e for d, e in zip(sizes.dims, extents, strict=True)}
    return facts, graph


def _at_usual_size(source: Source, sizes: OpenSizes) -> tuple[list[int], Graph]:
    """The graph for one picture of 224x224 or 128 steps, or at the smallest size that works."""
    usual = []
    for d in sizes.dims:
        rank = len(sizes.declared[d.places[0][0]])
        extent = USUAL_PICTURE if rank == 4 else USUAL_LENGTH
        usual.append(1 if d.batch else math.ceil(extent / sizes.multiple) * sizes.multiple)
    try:
        return usual, source.at(sizes, usual)
    except IntaglioError:
        smallest = next(iter(sizes.checks(source.model, source.options)))
        return smallest, source.at(sizes, smallest)


def _shapes(graph: Graph, title: str) -> dict[str, tuple[int, ...]]:
    if title == "inputs":
        return {v.name: v.shape for v in graph.inputs}
    return {n: v.shape for n, v in zip(graph.output_names, graph.outputs, strict=True)}


def _named(
    shape: list[int],
    others: list[tuple[int, ...]],
    names: dict[tuple[int, int], str],
    declared: Shape | None,
) -> list[int | str]:
    """The shape with the symbol, or the name in the file, of every extent that differs."""
    made: list[int | str] = []
    for i, (d, a, b) in enumerate(zip(shape, *others, strict=True)):
        own = declared[i] if declared and len(declared) == len(shape) else ""
        name = names.get((a, b)) or (own if isinstance(own, str) and own else NAMELESS)
        made.append(d if d == a == b else name)
    return made


# ---- models that cannot be imported --------------------------------------------------------------
def _of_file(source: Source) -> dict[str, Any]:
    graph = source.model.proto.graph
    stored = {t.name for t in graph.initializer}
    ops = Counter(n.op_type for n in graph.node)
    sizes = [(math.prod(t.dims), _itemsize(t.data_type)) for t in graph.initializer]
    return {
        "name": graph.name,
        "metadata": metadata_of(source.model.proto),
        "inputs": {i.name: _port(i) for i in graph.input if i.name not in stored},
        "outputs": {o.name: _port(o) for o in graph.output},
        "state": {},
        "ops": {op: {"count": n, "macs": 0} for op, n in ops.most_common()},
        "nodes": len(graph.node),
        "parameters": sum(count for count, _ in sizes),
        "parameter_bytes": sum(count * size for count, size in sizes),
        "macs": None,
        "open": {},
    }


def _itemsize(code: int) -> float:
    return dtypes.itemsize(ELEMENTS[code][0]) if code in ELEMENTS else 0


def _port(info: Any) -> dict[str, Any]:
    code = info.type.tensor_type.elem_type
    shape = [NAMELESS if d == "" else d for d in open_shape(info) or ()]
    return {"dtype": ELEMENTS[code][0] if code in ELEMENTS else "?", "shape": shape}
