"""ONNX importer."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, IntaglioError
from intaglio.extras import install_command
from intaglio.frontends.onnx import large_weights, tensors
from intaglio.frontends.onnx.functions import refuse_expansion
from intaglio.frontends.onnx.input_binding import (
    bind_dims,
    bind_inputs,
    bound_array,
    check_options,
    chosen_inputs,
)
from intaglio.frontends.onnx.open_shapes import OpenShapes, Seen
from intaglio.frontends.onnx.scope import Model, Scope, declared_type
from intaglio.frontends.onnx.topological_order import reads, sorted_nodes
from intaglio.frontends.options import NO_OPTIONS, ImportOptions
from intaglio.frontends.string_outputs import without_strings
from intaglio.ir import Graph, Type, Value, constant

OLDEST_OPSET, NEWEST_OPSET = 7, 28  # of the default domain, that the importers support
STRINGS = 8  # element type of the schema
MAX_VERSION = (1 << 31) - 1  # of an opset of another domain; a larger one is damage


@functools.cache
def import_families() -> None:
    """Import all modules of this package; importers register themselves."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


@dataclass(frozen=True)
class OnnxModel:
    """A parsed model: the message, large weights that were kept out of it, and its folder."""

    proto: Any
    raws: large_weights.RawWeights
    folder: Path | None


def parse_onnx(model: Any) -> OnnxModel:
    """An ONNX file, its bytes, or a ModelProto; it can be loaded several times."""
    return model if isinstance(model, OnnxModel) else OnnxModel(*_parse(model))


def load_onnx(
    model: Any,
    options: ImportOptions = NO_OPTIONS,
    seen: dict[str, Seen] | None = None,
    opened: OpenShapes | None = None,
) -> Graph:
    """A Graph from an ONNX file, its bytes, a ModelProto, or a parsed model.

    `seen` collects the types of every node; `opened`, made of two such collections, leaves the
    dimensions that differ between them open.
    """
    parsed = parse_onnx(model)
    try:
        return _load(parsed, options, seen, opened)
    except IntaglioError as e:
        e.args = (_one_line(str(e)), *e.args[1:])
        raise
    except Exception as e:  # protobuf is lenient: damage shows up only here
        words = _one_line(f"{type(e).__name__}: {e}")
        raise BadFile(f"onnx: the model is malformed ({words}); the file is damaged") from e


def _one_line(words: str) -> str:
    """A message made printable and at most 1000 characters long: names may hold anything."""
    shown = "".join(c if c.isprintable() else " " if c in "\r\n" else repr(c)[1:-1] for c in words)
    return shown if len(shown) <= 1000 else shown[:996] + " ..."


def _load(
    model: OnnxModel,
    options: ImportOptions,
    seen: dict[str, Seen] | None = None,
    opened: OpenShapes | None = None,
) -> Graph:
    import_families()
    proto, raws = model.proto, model.raws
    graph = proto.graph
    if not graph.output:
        raise BadFile("onnx: the graph has no outputs; the file is truncated or damaged")
    _check_names(graph)
    check_options(options, graph)
    functions = {(_domain(f.domain), f.name, f.overload): f for f in proto.functions}
    if functions and not options.allow_large:
        refuse_expansion(graph.node, functions)
    scope = Scope(Model(model.folder, functions, raws, seen=seen), _opsets(proto))
    scope.model.fold.open = opened
    scope.declare(graph)
    strings = {o.name for o in graph.output if o.type.tensor_type.elem_type == STRINGS}
    given = [o.name for o in graph.output]
    names = list(options.outputs or without_strings(given, strings.__contains__, "onnx"))
    infos, new = chosen_inputs(graph, options, lambda name: _type_of(name, model, options))
    if options.inputs is None:  # initialisers listed as inputs are constants by default
        infos = [i for i in infos if i.name not in scope.stored or i.name in options.values]
    needed = _names_needed(
        graph, names, {i.name for i in infos} | {v.name for v in new}, scope, options
    )
    if options.inputs is None:
        infos = [i for i in infos if i.name in needed or not _may_be_left_out(i, options)]
    scope.model.dims, changed = bind_dims(infos, options)
    scope.model.trust_declared = not changed
    made = bind_inputs(infos, options, scope.model.dims) + new
    for v in made:
        scope.stored.pop(v.name, None)
        scope.values[v.name] = v
    for name in set(options.values) - {v.name for v in made}:
        scope.values[name] = _constant(name, scope, options)
    results = scope.run(graph.node, names)
    _warn_of(scope.model.mismatches)
    kept = [v for v in made if v.data is None]
    if options.inputs is not None:
        order = list(options.inputs)
        kept.sort(key=lambda v: order.index(v.name))
    return Graph(kept, results, names, graph.name, metadata_of(proto))


def _may_be_left_out(info: Any, options: ImportOptions) -> bool:
    """Whether an input that no output needs is left out of the graph."""
    return options.outputs is not None or info.type.tensor_type.elem_type == STRINGS


def _constant(name: str, scope: Scope, options: ImportOptions) -> Value:
    """The value that the user bound to an initialiser or an inner tensor, as a constant."""
    given = options.values[name]
    stored, declared = scope.stored.pop(name, None), scope.types.get(name)
    if stored is not None:
        dtype = tensors.element_type(stored.data_type, f"tensor '{name}'")
    elif declared is not None:
        dtype = tensors.element_type(declared.tensor_type.elem_type, f"tensor '{name}'")
    else:
        dtype = dtypes.name_of(np.asarray(given).dtype)
    return constant(bound_array(name, given, dtype, None), name)


def _names_needed(
    graph: Any, outputs: Sequence[str], given: set[str], scope: Scope, options: ImportOptions
) -> set[str]:
    """Names of all tensors that `outputs` depend on, down to the inputs in `given`."""
    dropped = {i.name for i in graph.input} - given - set(scope.stored) - set(options.values)

    def known(name: str) -> bool:
        if name in dropped:
            raise BadInput(
                f"onnx: {', '.join(outputs[:3])} still needs input '{name}'; add it to inputs, or "
                "choose inputs behind it"
            )
        return name in given or name in options.values or name in scope.stored

    nodes = sorted_nodes(graph.node, outputs, known, lambda name: False)
    return {name for _, n in nodes for name in reads(n)} | set(outputs)


def _type_of(name: str, model: OnnxModel, options: ImportOptions) -> Type | None:
    """The type of an inner tensor: declared, or inferred by importing the nodes before it."""
    proto = model.proto
    for t in proto.graph.initializer:
        if t.name == name:
            return Type(tensors.element_type(t.data_type, f"tensor '{name}'"), tuple(t.dims))
    infos = {i.name: i.type for i in (*proto.graph.value_info, *proto.graph.output)}
    declared = declared_type(infos[name], options.dims) if name in infos else None
    if declared is not None:
        return declared
    known = {n: s for n, s in options.shapes.items() if n != name}
    try:
        cut = replace(options, shapes=known, inputs=None, outputs=[name])
        part = _load(model, cut)
    except IntaglioError:
        return None
    return part.outputs[0].type.but(dynamic=())


def _parse(model: Any) -> tuple[Any, large_weights.RawWeights, Path | None]:
    """The ModelProto, the large weights that were kept out of it, and the folder of the file."""
    try:
        import onnx
    except ImportError:
        raise IntaglioError(
            f"ONNX models need the onnx package, which is missing; {install_command('onnx')}"
        ) from None
    if isinstance(model, onnx.ModelProto):
        return model, {}, None
    folder, what = None, "the bytes given"
    raws: large_weights.RawWeights = {}
    if isinstance(model, bytes | bytearray | memoryview):
        data = bytes(model)
        size = len(data)
    elif not isinstance(model, str | Path):
        raise BadInput(
            f"the model is of type {type(model).__name__}; give a path, bytes or an ONNX ModelProto"
        )
    else:
        path = Path(model)
        what = f"'{path}'"
        try:
            data, raws, size = large_weights.read(path)
        except OSError as e:
            raise BadFile(f"cannot read {what}: {(e.strerror or str(e)).lower()}") from None
        folder = path.parent
    if not data:
        raise BadFile(f"{what} is empty; an ONNX model is needed")
    if size >= 1 << 31:
        raise BadFile(
            f"{what} has {size >> 20} MiB; an ONNX file holds at most 2 GiB; "
            "save it with external data"
        )
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception as e:  # the error type depends on protobuf's version
        words = " ".join(str(e).split())
        raise BadFile(
            f"{what} is not an ONNX model, or is truncated or damaged ({words})"
        ) from None
    if not proto.HasField("graph"):
        raise BadFile(f"{what} is not an ONNX model, or is truncated: it has no graph")
    return proto, raws, folder


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(proto: Any) -> dict[str, int]:
    """Opset versions by domain. Before IR version 3, a model without one uses opset 1."""
    opsets = {_domain(o.domain): o.version for o in proto.opset_import}
    if not opsets and proto.ir_version >= 3:
        raise BadFile("onnx: the model imports no opset; the file is truncated or damaged")
    version = opsets.setdefault("", 1)
    _check_opsets(opsets, "the model")
    for f in proto.functions:
        _check_opsets({_domain(o.domain): o.version for o in f.opset_import}, f"'{f.name}'")
    if version < OLDEST_OPSET:
        warnings.warn(
            f"onnx: the model uses opset {version}, older than the oldest known "
            f"({OLDEST_OPSET}-{NEWEST_OPSET}): operators that changed may be imported wrongly; "
            "compare the outputs, or convert it with onnx.version_converter",
            stacklevel=5,
        )
    return opsets


def _check_opsets(opsets: Mapping[str, int], what: str) -> None:
    """BadInput for a version that no opset has, or that is newer than the importers."""
    for domain, version in opsets.items():
        newest = MAX_VERSION if domain else NEWEST_OPSET
        if 1 <= version <= newest:
            continue
        rule = f"opsets 1 to {newest} of '{domain or 'ai.onnx'}' can be read"
        way = "the file is damaged" if version < 1 or domain else f"re-export it with {newest}"
        raise BadInput(
            f"onnx: {what} imports opset {version} of '{domain or 'ai.onnx'}'; {rule}; {way}"
        )


def _check_names(graph: Any) -> None:
    """BadInput if two inputs, initialisers, outputs or results have the same name."""
    inputs = Counter(i.name for i in graph.input)
    stored = Counter(t.name for t in graph.initializer)
    stored.update(s.values.name for s in graph.sparse_initializer)
    outputs = Counter(o.name for o in graph.output)
    for what, names in {"inputs": inputs, "initialisers": stored, "outputs": outputs}.items():
        if twice := [name for name, count in names.items() if count > 1]:
            raise BadInput(f"onnx: two {what} are called '{twice[0]}'; names must be unique")
    for n in graph.node:
        for name in n.output:
            if name and (name in inputs or name in stored):
                raise BadInput(
                    f"onnx: {n.op_type} '{n.name}' makes '{name}', which is an input or "
                    "initialiser; names must be unique"
                )


def _warn_of(mismatches: Sequence[str]) -> None:
    if mismatches:
        more = f" and {len(mismatches) - 1} more" if len(mismatches) > 1 else ""
        warnings.warn(
            f"onnx: declared and inferred shapes differ, the inferred ones are used: "
            f"{mismatches[0]}{more}",
            stacklevel=4,
        )


def metadata_of(proto: Any) -> dict[str, str]:
    """Producer, domain, version, description, opsets and metadata of the model."""
    own = {
        "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        "domain": proto.domain,
        "model_version": str(proto.model_version or ""),
        "description": proto.doc_string or proto.graph.doc_string,
        "opset": ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in proto.opset_import),
    }
    return {k: v for k, v in own.items() if v} | {p.key: p.value for p in proto.metadata_props}
