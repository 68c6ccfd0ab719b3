"""Functions: those of the model, and the bodies by which ONNX defines some of its ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.frontends.limits import MAX_INLINED_NODES, REMEDY
from intaglio.frontends.onnx.schema import find_schema
from intaglio.frontends.onnx.tensors import ELEMENTS
from intaglio.symint import SymInt

if TYPE_CHECKING:
    from intaglio.frontends.onnx.importer import OnnxNode

MAX_DEPTH = 64  # of nested functions and sub-graphs
Key = tuple[str, str, str]  # domain, name and overload of a function
_CODES = {name: code for code, (name, _) in ELEMENTS.items()}


@dataclass
class Function:
    """A body of nodes with formal inputs, outputs and attributes."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence[Any]
    opsets: Mapping[str, int]
    defaults: Mapping[str, Any]  # AttributeProtos of optional attributes

    @staticmethod
    def of_model(proto: Any, defaults: Mapping[str, Any] | None = None) -> Function:
        """From a FunctionProto."""
        opsets = {_domain(o.domain): o.version for o in proto.opset_import}
        own = {a.name: a for a in proto.attribute_proto}
        return Function(
            list(proto.input),
            list(proto.output),
            list(proto.node),
            opsets,
            {**(defaults or {}), **own},
        )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def refuse_expansion(nodes: Sequence[Any], functions: Mapping[Key, Any]) -> None:
    """BadInput if the functions that `nodes` call expand to more than MAX_INLINED_NODES."""
    calls = {key: _calls(f.node) for key, f in functions.items()}
    size = dict.fromkeys(functions, 1)
    for _ in range(MAX_DEPTH):  # a function that calls itself is refused by its depth
        before = size
        size = {key: sum(before.get(k, 1) for k in called) for key, called in calls.items()}
        if size == before:
            break
    whole = sum(size.get(k, 0) for k in _calls(nodes))
    if whole > MAX_INLINED_NODES and size == before:
        raise BadInput(
            f"onnx: the model's functions expand to {whole} nodes; the limit is "
            f"{MAX_INLINED_NODES}; {REMEDY}"
        )


def _calls(nodes: Iterable[Any]) -> list[Key]:
    """The ops of the nodes and of the sub-graphs in their attributes."""
    found: list[Key] = []
    todo = list(nodes)
    while todo:
        n = todo.pop()
        found.append((_domain(n.domain), n.op_type, getattr(n, "overload", "")))
        for a in n.attribute:
            for body in (*([a.g] if a.HasField("g") else []), *a.graphs):
                todo.extend(body.node)
    return found


def find_function(n: OnnxNode) -> Function | None:
    """The function body by which the ONNX standard defines the op of `n`, if it has one."""
    import onnx

    schema = find_schema(n.op_type, n.opset, n.domain)
    if schema is None:
        return None
    proto = None
    if schema.has_function:
        proto = schema.function_body
    elif schema.has_context_dependent_function:
        proto = onnx.FunctionProto.FromString(
            schema.get_context_dependent_function(_resolved(n), _input_types(n))
        )
    if proto is None:
        return None
    defaults = {
        name: a.default_value for name, a in schema.attributes.items() if a.default_value.name
    }
    body = Function.of_model(proto, defaults)
    return Function(
        body.inputs or [i.name for i in schema.inputs],
        body.outputs or [o.name for o in schema.outputs],
        body.nodes,
        body.opsets or {"": n.opset},
        body.defaults,
    )


def _resolved(n: OnnxNode) -> bytes:
    """The node with attribute references replaced by their values."""
    proto = type(n.proto)()
    proto.CopyFrom(n.proto)
    del proto.attribute[:]
    for name, a in n.protos.items():
        proto.attribute.add().CopyFrom(a)
        proto.attribute[-1].name = name
    return bytes(proto.SerializeToString())


def _input_types(n: OnnxNode) -> list[bytes]:
    import onnx

    types = []
    for v in n.inputs:
        t = onnx.TypeProto()
        if v is not None:
            t.tensor_type.elem_type = _CODES[dtypes.TABLE[v.dtype].name]
            for d in v.shape:
                dim = t.tensor_type.shape.dim.add()
                if isinstance(d, SymInt):
                    dim.dim_param = str(d)
                else:
                    dim.dim_value = d
        types.append(t.SerializeToString())
    return types


def without_absent(nodes: Sequence[Any], absent: set[str]) -> list[Any]:
    """The nodes of a function body, without the inputs that the caller omitted."""
    if not absent:
        return list(nodes)
    out = []
    for proto in nodes:
        if absent.intersection(proto.input):
            copy = type(proto)()
            copy.CopyFrom(proto)
            copy.input[:] = ["" if name in absent else name for name in proto.input]
            proto = copy
        out.append(proto)
    return out
