"""ONNX models."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intaglio.errors import BadFile, BadInput, IntaglioError
from intaglio.frontends.onnx.bind import bind_inputs
from intaglio.frontends.onnx.scope import Model, Scope
from intaglio.ir import Graph

KNOWN_OPSET = 24


@functools.cache
def _import_families() -> None:
    """Import every module beside this one: the importers register themselves."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def load_onnx(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """A Graph from an ONNX file, its bytes, or a ModelProto.

    `shapes` and `dims` bind dimensions that the model leaves open; `values` makes inputs constant;
    `inputs` and `outputs` choose other tensors, by name, to start and end at.
    """
    proto, folder = _parse(model)
    _import_families()
    opsets = _opsets(proto)
    functions = {(_domain(f.domain), f.name, f.overload): f for f in proto.functions}
    scope = Scope(Model(folder, functions), opsets)
    graph = proto.graph
    given = bind_inputs(scope, graph, dict(shapes or {}), dict(dims or {}), dict(values or {}))
    scope.declare(graph)
    names = list(outputs or [o.name for o in graph.output])
    results = scope.run(graph.node, names)
    return Graph(given, results, names, graph.name, _metadata(proto))


def _parse(model: Any) -> tuple[Any, Path | None]:
    try:
        import onnx
    except ImportError:
        raise IntaglioError(
            "onnx models need the onnx package: pip install intaglio[onnx]"
        ) from None
    if isinstance(model, onnx.ModelProto):
        return model, None
    folder = None
    if isinstance(model, bytes | bytearray | memoryview):
        data = bytes(model)
    else:
        path = Path(model)
        try:
            data = path.read_bytes()
        except OSError as e:
            raise BadFile(f"cannot read '{path}': {e.strerror}") from None
        folder = path.parent
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception as e:
        raise BadFile(f"not an ONNX model, or a damaged one: {e}") from None
    if not proto.HasField("graph"):
        raise BadFile("not an ONNX model, or a damaged one: it has no graph")
    return proto, folder


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(proto: Any) -> dict[str, int]:
    opsets = {_domain(o.domain): o.version for o in proto.opset_import}
    if not opsets and proto.ir_version >= 3:
        raise BadInput("onnx: the model imports no opset; the file is damaged")
    return opsets or {"": 1}


def _metadata(proto: Any) -> dict[str, str]:
    return {p.key: p.value for p in proto.metadata_props}
