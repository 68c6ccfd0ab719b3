"""Finds operators that cannot be imported, before the first run gives the shapes to compile for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from intaglio.frontends import custom_ops
from intaglio.frontends.onnx import OnnxModel, import_families
from intaglio.frontends.onnx.importer import known_ops
from intaglio.frontends.onnx.topological_order import sorted_nodes, sub_graphs
from intaglio.frontends.onnx.unsupported_ops import (
    READS_SEQUENCES,
    family_of,
    near_op,
    why_unsupported,
)
from intaglio.ort.errors import InvalidGraph, unsupported

CHECKED_DOMAINS = ("", "ai.onnx", "com.microsoft")  # operators of others may be registered later


def check_operators(model: OnnxModel, outputs: list[str]) -> None:
    """InvalidGraph for an operator that ONNX lacks, NotImplemented for one that Intaglio lacks."""
    import onnx

    import_families()
    custom_ops.prepare()
    proto, known = model.proto, known_ops()
    graph = proto.graph
    functions = {(_plain(f.domain), f.name) for f in proto.functions}
    opsets = {_plain(o.domain): o.version for o in proto.opset_import}
    given = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    given |= {s.values.name for s in graph.sparse_initializer}
    nodes = [n for _, n in sorted_nodes(graph.node, outputs, given.__contains__, _never)]
    for n in _with_bodies(nodes):
        domain = _plain(n.domain)
        what = (domain, n.op_type)
        if n.domain not in CHECKED_DOMAINS or what in known or what in functions:
            continue
        if custom_ops.search("onnx", f"{domain}::{n.op_type}") is not None:
            continue
        if n.op_type in READS_SEQUENCES or n.op_type.startswith("Sequence"):
            continue  # supported for known lengths
        words = f"onnx: node '{n.name or n.op_type}': {n.op_type}"
        if domain == "" and not onnx.defs.has(n.op_type):
            raise InvalidGraph(f"{words} is no operator of ONNX{near_op(*what)}")
        if family_of(n.op_type) or not _has_body(n.op_type, opsets.get(domain, 1), domain):
            raise unsupported(f"{words} is not supported: {why_unsupported(*what)}")


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _never(name: str) -> bool:
    return False


def _with_bodies(nodes: Iterable[Any]) -> Iterator[Any]:
    for n in nodes:
        yield n
        for graph in sub_graphs(n):
            yield from _with_bodies(graph.node)


def _has_body(op_type: str, opset: int, domain: str) -> bool:
    """Whether ONNX defines the operator as a function of others, which is expanded then."""
    import onnx

    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
