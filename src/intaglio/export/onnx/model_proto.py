"""Builds the ModelProto: names, tensors, nodes and sub-graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

import intaglio
from intaglio import dtypes
from intaglio.export.onnx.expression import Body, Onnx, Operand, choose
from intaglio.frontends.onnx.dynamic_shapes import estimates
from intaglio.frontends.onnx.schema import find_schema
from intaglio.frontends.onnx.tensors import element_code, to_bytes
from intaglio.ir import Array, Graph, Node, Type, Value
from intaglio.ops.control import UNBOUNDED

DEDUPLICATE_UP_TO = 1 << 16  # bytes of a constant that is compared with equal ones
PROTO_FIELDS = ("domain", "model_version", "description", "opset")  # metadata with a proto field


@dataclass
class Tensors:
    """The constants of a model, each stored once, by name."""

    names: _Names
    arrays: dict[str, Array] = field(default_factory=dict)
    _known: dict[Any, str] = field(default_factory=dict)

    def add(self, array: Array, name: str) -> str:
        """Store an array; returns its name. Equal small arrays share one."""
        key: Any = id(array)
        if array.nbytes <= DEDUPLICATE_UP_TO:
            key = (dtypes.name_of(array.dtype), array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = unique = self.names.new(name or "constant")
            self.arrays[unique] = array
        return self._known[key]

    @property
    def bytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values())


class _Names:
    """Names in use. ONNX needs them to be unique in a model and all of its sub-graphs."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self.last: dict[str, int] = {}

    def new(self, wish: str) -> str:
        name = wish
        while name in self.taken:
            self.last[wish] = self.last.get(wish, 0) + 1
            name = f"{wish}_{self.last[wish]}"
        self.taken.add(name)
        return name


def assemble(graph: Graph, opset: int, ir_version: int | None) -> tuple[Any, Tensors, list[str]]:
    """The model without its constants, the constants, and the origin of each node.

    All nodes need a form in this opset.
    """
    inputs = [v.name for v in graph.inputs]
    names = _Names([*inputs, *graph.output_names])
    tensors = Tensors(names)
    writer = _Writer(opset, names, tensors)
    writer.known = dict(zip(graph.inputs, inputs, strict=True))
    proto = writer.graph(graph, [_info(n, v.type) for n, v in zip(inputs, graph.inputs)], True)  # noqa: B905
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, 1) for domain in sorted(writer.domains)]
    oldest = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    model = helper.make_model(
        proto,
        opset_imports=opsets,
        ir_version=ir_version or max(oldest, 8),
        producer_name="intaglio",
        producer_version=intaglio.__version__,
        domain=graph.metadata.get("domain", ""),
        model_version=int(graph.metadata.get("model_version") or 0),
        doc_string=graph.metadata.get("description", ""),
    )
    helper.set_model_props(
        model, {k: v for k, v in graph.metadata.items() if k not in PROTO_FIELDS}
    )
    return model, tensors, writer.sources


def _info(name: str, t: Type, bounds: bool = False) -> Any:
    """Name and type. Run-time extents are left open, or with `bounds` set to their upper bound."""
    dims = [None if i in t.dynamic and not bounds else d for i, d in enumerate(t.shape)]
    return helper.make_tensor_value_info(name, element_code(t.dtype), dims)


def nodes_of(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of the bodies inside it."""
    for node in graph.nodes():
        yield node
        for body in node.bodies():
            yield from nodes_of(body)


class _Writer:
    """Writes one graph; each sub-graph has its own writer, which knows the outer names."""

    def __init__(self, opset: int, names: _Names, tensors: Tensors):
        self.opset, self.names, self.tensors = opset, names, tensors
        self.origins = _Names()
        self.known: dict[Value, str] = {}
        self.made: dict[Onnx, str] = {}
        self.domains: set[str] = set()  # beside ONNX's own
        self.nodes: list[Any] = []
        self.sources: list[str] = []  # the origin of each node
        self.infos: list[Any] = []

    def graph(self, graph: Graph, inputs: list[Any], main: bool = False) -> Any:
        """The GraphProto. Outputs of the main graph keep their names, but for states."""
        outputs = self._outputs(graph) if main else []
        if main:
            for v, name in zip(graph.outputs, outputs, strict=True):
                if v.producer is not None:
                    self.known.setdefault(v, name)
        for node in graph.nodes():
            self._node(node)
        infos: list[Any] = []
        for i, v in enumerate(graph.outputs):
            name = outputs[i] if main else ""
            if v.producer is None or self.known[v] != name:
                name = self._identity(v, name, [o.name for o in infos])
            infos.append(_info(name, v.type, v.producer is not None and _bounded(v.producer)))
        made = {o.name for o in infos}
        value_info = [i for i in self.infos if i.name not in made]
        return helper.make_graph(
            self.nodes, graph.name or "graph", inputs, infos, value_info=value_info
        )

    def _outputs(self, graph: Graph) -> list[str]:
        """The names of outputs. A next state has the name of its input, which ONNX refuses."""
        inputs = {v.name for v in graph.inputs}
        return [
            self.names.new(f"{name}_next") if name in inputs else name
            for name in graph.output_names
        ]

    def _identity(self, v: Value, name: str, used: list[str]) -> str:
        """An Identity for an output that is an input or constant, or has another name already."""
        if not name and v.producer is not None and self.known[v] not in used:
            return self.known[v]
        name = name or self.names.new(v.name or "output")
        self.sources.append(v.producer.origin if v.producer else "")
        self.nodes.append(helper.make_node("Identity", [self._operand(v, name)], [name]))
        return name

    def _node(self, node: Node) -> None:
        form = choose(node, self.opset)
        assert form is not None, f"{node} has no form in opset {self.opset}"
        schema = None if form.domain else find_schema(form.op_type, self.opset, "")
        outs = []
        for i, v in enumerate(node.outputs):
            place = form.places[i] if form.places else i
            optional = i > 0 if schema is None else _may_miss(schema, place)
            if optional and not v.uses:
                outs.append("")
                continue
            wish = v.name or f"{node.origin or node.op}_out{i or ''}"
            self.known.setdefault(v, "")
            self.known[v] = self.known[v] or self.names.new(wish)
            outs.append(self.known[v])
            self.infos.append(_info(self.known[v], v.type, _bounded(node)))
        if form.places:
            placed = dict(zip(form.places, outs, strict=True))
            outs = [placed.get(i, "") for i in range(max(form.places) + 1)]
        while not outs[-1]:
            outs.pop()
        self._emit(form, outs, node.origin, node.origin)

    def _emit(self, form: Onnx, outs: list[str], origin: str, name: str = "") -> None:
        hint = next(o for o in outs if o)
        inputs = [self._operand(x, hint, origin) for x in form.inputs]
        name = self.origins.new(name or f"{hint}/{form.op_type}")
        made = helper.make_node(form.op_type, inputs, outs, name, domain=form.domain or None)
        self.domains |= {form.domain} - {""}
        schema = None if form.domain else find_schema(form.op_type, self.opset, "")
        for name, a in form.attrs.items():
            if name not in form.silent or (schema and name in schema.attributes):
                made.attribute.append(self._attribute(name, a, schema))
        self.nodes.append(made)
        self.sources.append(origin)

    def _operand(self, x: Operand, hint: str, origin: str = "") -> str:
        if x is None:
            return ""
        if isinstance(x, Onnx):
            if x not in self.made:
                self.made[x] = self.names.new(f"{hint}_{x.op_type.lower()}")
                self._emit(x, [self.made[x]], origin)
            return self.made[x]
        if not isinstance(x, Value):
            return self.tensors.add(np.asarray(x), f"{hint}_constant")
        if x.data is not None:
            return self.tensors.add(x.data, x.name or f"{hint}_constant")
        return self.known[x]

    # ---- attributes ----------------------------------------------------------------------------
    def _attribute(self, name: str, value: Any, schema: Any) -> Any:
        """An attribute of the type that the schema declares."""
        if isinstance(value, Body):
            return helper.make_attribute(name, self._body(value))
        if isinstance(value, onnx.AttributeProto):
            return value
        if schema is None:
            return helper.make_attribute(name, int(value) if isinstance(value, bool) else value)
        kind = int(schema.attributes[name].type.value)
        convert: Any = {1: float, 2: int, 6: _floats, 7: _ints}.get(kind, lambda a: a)
        return helper.make_attribute(name, convert(value), attr_type=kind)

    def _body(self, body: Body) -> Any:
        inner = _Writer(self.opset, self.names, self.tensors)
        fed = len(body.graph.inputs) - len(body.captures)
        infos = []
        for v in body.graph.inputs[:fed]:
            inner.known[v] = self.names.new(v.name or "input")
            infos.append(_info(inner.known[v], v.type))
        for v, outer in zip(body.graph.inputs[fed:], body.captures, strict=True):
            inner.known[v] = self._operand(outer, v.name)
        proto = inner.graph(body.graph, infos)
        self.domains |= inner.domains
        return proto


def _floats(value: Any) -> list[float]:
    return [float(a) for a in value]


def _ints(value: Any) -> list[int]:
    return [int(a) for a in value]


def _may_miss(schema: Any, i: int) -> bool:
    option = schema.outputs[i].option if i < len(schema.outputs) else None
    return bool(option is not None and option == type(option).Optional)


def _bounded(node: Node) -> bool:
    """Whether the file must declare upper bounds of the results: readers cannot infer them."""
    if node.op in ("reshape_to", "expand_to"):
        return estimates(node.inputs[1]) is None  # type: ignore[arg-type]
    if node.op == "range":
        return any(estimates(v) is None for v in node.inputs)  # type: ignore[arg-type]
    if node.op == "slice_to":
        return bool(node.attrs["bound"] != node.inputs[0].shape)  # type: ignore[union-attr]
    if node.op == "loop" and node.attrs["bound"] < UNBOUNDED:
        return node.inputs[0] is None or estimates(node.inputs[0]) is None
    return False


# ---- constants as tensors ------------------------------------------------------------------------
def tensor(name: str, array: Array) -> Any:
    """A TensorProto without its elements."""
    code = element_code(dtypes.name_of(array.dtype))
    return onnx.TensorProto(name=name, data_type=code, dims=array.shape)


def outside(
    model: Any, tensors: Tensors, location: str, inline_bytes: int, alignment: int
) -> Iterator[bytes]:
    """Make the model refer to tensors in the file `location`; yields the bytes of that file."""
    chunks, offset = [], 0
    for name, array in tensors.arrays.items():
        made = model.graph.initializer.add()
        made.CopyFrom(tensor(name, array))
        if array.nbytes < inline_bytes:
            made.raw_data = to_bytes(array)
            continue
        start = -(-offset // alignment) * alignment
        length = _stored_bytes(array)
        where = {"location": location, "offset": str(start), "length": str(length)}
        made.data_location = onnx.TensorProto.EXTERNAL
        for key, value in where.items():
            made.external_data.add(key=key, value=value)
        chunks.append((start - offset, array))
        offset = start + length

    def data() -> Iterator[bytes]:
        for gap, array in chunks:
            yield b"\0" * gap
            yield to_bytes(array)

    return data()


def _stored_bytes(array: Array) -> int:
    row = dtypes.TABLE[dtypes.name_of(array.dtype)]
    return -(-array.size * row.bits // 8) if row.bits in (2, 4) else array.nbytes


def inline(model: Any, tensors: Tensors) -> None:
    """Store the constants in the model itself."""
    for name, array in tensors.arrays.items():
        made = tensor(name, array)
        made.raw_data = to_bytes(array)
        model.graph.initializer.append(made)
