"""Scopes: the names of one graph, sub-graph or function body during the import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput, IntaglioError, Unsupported
from intaglio.frontends import custom_ops
from intaglio.frontends.onnx import tensors
from intaglio.frontends.onnx.constant_folding import Folder
from intaglio.frontends.onnx.functions import MAX_DEPTH, Function, find_function, without_absent
from intaglio.frontends.onnx.importer import OnnxNode, custom_importer, find_importer
from intaglio.frontends.onnx.open_shapes import OpenShapes, Seen, seen_node
from intaglio.frontends.onnx.schema import check_schema
from intaglio.frontends.onnx.topological_order import names_read, sorted_nodes
from intaglio.frontends.onnx.unsupported_ops import READS_SEQUENCES, REASONS, unsupported
from intaglio.ir import Graph, Type, Value, constant


@dataclass
class Model:
    """State that all scopes of one import share."""

    folder: Path | None = None  # of external data
    functions: Mapping[tuple[str, str, str], Any] = field(default_factory=dict)
    raws: Mapping[str, memoryview] = field(
        default_factory=dict
    )  # large weights of the main graph, by name
    dims: dict[str, int] = field(default_factory=dict)  # extents of the symbolic dimensions
    trust_declared: bool = True  # False once the user changed a static shape
    mismatches: list[str] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)
    fold: Folder = field(default_factory=Folder)
    seen: dict[str, Seen] | None = None  # every node, for a later import with open dimensions

    @property
    def open(self) -> OpenShapes | None:
        """What is known of open dimensions; None if all are fixed."""
        return self.fold.open


class Scope:
    """The names of one graph with their Values; imports its nodes."""

    def __init__(
        self,
        model: Model,
        opsets: Mapping[str, int],
        parent: Scope | None = None,
        prefix: str = "",
        attributes: Mapping[str, Any] | None = None,
        caller: Scope | None = None,
    ):
        self.model, self.opsets, self.prefix = model, opsets, prefix
        self.parent = parent  # scope whose names a sub-graph can read
        self.caller = caller  # scope that called this function; its names cannot be read
        self.references = attributes or {}  # values of a function's attribute references
        self.values: dict[str, Value] = {}
        self.stored: dict[str, Any] = {}  # initialisers that are not decoded yet
        self.sequences: dict[
            str, tuple[Value, ...]
        ] = {}  # known lengths; they exist only during the import
        self.types: dict[str, Any] = {}  # declared TypeProtos
        self.read: set[str] = set()
        self.captures: dict[Value, Value] | None = (
            None  # captures, outer -> inner; None: outer names are used directly
        )
        above = parent or caller
        self.depth: int = above.depth + 1 if above else 0
        if self.depth > MAX_DEPTH:
            raise BadInput(
                f"onnx: functions and sub-graphs nest more than {MAX_DEPTH} deep at '{prefix}'; "
                "a function must not call itself"
            )

    # ---- names ---------------------------------------------------------------------------------
    def lookup(self, name: str) -> Value | None:
        """The Value called `name`, of this or an outer scope; a body captures outer values."""
        if name in self.stored:
            self.values[name] = self._decode(self.stored.pop(name), self.prefix + name)
        if name in self.values:
            return self.values[name]
        if name in self.sequences:
            raise Unsupported(
                f"onnx: '{name}' is a sequence that must exist at run time: "
                f"{REASONS['sequences'][0]}; re-export the model with tensors in its place"
            )
        outer = self.parent.lookup(name) if self.parent else None
        if outer is None or self.captures is None:
            return outer
        inner = self.captures.get(outer)
        if inner is None:
            inner = Value(outer.type, outer.name, outer.data)
            if inner.data is None:
                self.captures[outer] = inner
        self.values[name] = inner
        return inner

    def is_local(self, name: str) -> bool:
        return name in self.values or name in self.stored or name in self.sequences

    def sequence(self, name: str) -> tuple[Value, ...] | None:
        """The tensors of the sequence called `name`, of this or an outer scope."""
        if name in self.sequences or self.parent is None or self.captures is not None:
            return self.sequences.get(name)
        return self.parent.sequence(name)

    def is_known(self, name: str) -> bool:
        """Whether `lookup` would succeed; does not capture."""
        return self.is_local(name) or (self.parent is not None and self.parent.is_known(name))

    def _decode(self, stored: Any, name: str) -> Value:
        if hasattr(stored, "indices"):
            return constant(tensors.sparse_to_array(stored, self.model.folder), name)
        raw = self.model.raws.get(stored.name) if self.depth == 0 else None
        return constant(tensors.to_array(stored, self.model.folder, raw=raw), name)

    def is_read(self, name: str) -> bool:
        return bool(name) and name in self.read

    def declared(self, name: str) -> Type | None:
        """The declared type of `name`, if every dimension is known."""
        proto = self.types.get(name)
        if proto is None or not self.model.trust_declared:
            return None
        return declared_type(proto, self.model.dims)

    def root_inputs(self, value: Value) -> Iterable[str]:
        """Names of the model's inputs that `value` depends on."""
        seen, stack = {value}, [value]
        while stack:
            v = stack.pop()
            if v.producer is None and v.data is None:
                outer = self._outer(v)
                if outer is not None and self.parent is not None:
                    yield from self.parent.root_inputs(outer)
                elif self.caller is not None:
                    yield from self.caller.root_inputs(v)
                elif self.parent is not None and self.captures is None:
                    yield from self.parent.root_inputs(v)
                elif self.parent is None:
                    yield v.name
            for x in v.producer.inputs if v.producer else ():
                if x is not None and x not in seen:
                    seen.add(x)
                    stack.append(x)

    def _outer(self, inner: Value) -> Value | None:
        return next((o for o, i in (self.captures or {}).items() if i is inner), None)

    # ---- attributes ----------------------------------------------------------------------------
    def domain_of(self, proto: Any) -> str:
        return "" if proto.domain in ("", "ai.onnx") else proto.domain

    def attributes_of(self, proto: Any) -> dict[str, Any]:
        """Attributes by name, with references to a function's parameters resolved."""
        out = {}
        for a in proto.attribute:
            if not a.ref_attr_name:
                out[a.name] = a
            elif a.ref_attr_name in self.references:
                out[a.name] = self.references[a.ref_attr_name]
        return out

    def attribute(self, a: Any) -> Any:
        """An AttributeProto as a Python object."""
        match a.type:
            case 1:
                return a.f
            case 2:
                return a.i
            case 3:
                return a.s.decode("utf-8", "replace")
            case 4:
                return tensors.to_array(a.t, self.model.folder, f"attribute '{a.name}'")
            case 5:
                return a.g
            case 6:
                return tuple(a.floats)
            case 7:
                return tuple(a.ints)
            case 8:
                return tuple(s.decode("utf-8", "replace") for s in a.strings)
            case 9:
                return tuple(tensors.to_array(t, self.model.folder) for t in a.tensors)
            case 11:
                return tensors.sparse_to_array(a.sparse_tensor, self.model.folder)
            case 0 if a.HasField("f") or a.HasField("i") or a.HasField("s"):  # before IR version 2
                return a.f if a.HasField("f") else a.i if a.HasField("i") else a.s.decode()
            case 0:
                return tuple(a.ints) or tuple(a.floats)
        return a

    # ---- nodes ---------------------------------------------------------------------------------
    def run(self, nodes: Sequence[Any], outputs: Sequence[str]) -> list[Value]:
        """Import the nodes that `outputs` need; returns the Values of `outputs`."""
        self.read |= names_read(nodes) | set(outputs)
        outer = self.parent.is_known if self.parent else lambda name: False
        for index, proto in sorted_nodes(nodes, outputs, self.is_local, outer):
            origin = self.prefix + (proto.name or f"{proto.op_type}_{index}")
            while origin in self.model.origins:  # origins must be unique, node names need not
                origin += f"_{index}"
            self.model.origins.add(origin)
            self._import(proto, origin)
        return [self._value(name, "the graph's output list") for name in outputs]

    def _value(self, name: str, reader: str) -> Value:
        v = self.lookup(name)
        if v is None:
            raise BadInput(
                f"onnx: {reader} read '{name}', which no node computes; the file is damaged"
            )
        return v

    def _import(self, proto: Any, origin: str) -> None:
        takes_sequence = proto.op_type in READS_SEQUENCES
        inputs = [
            None
            if not name or (takes_sequence and self.sequence(name) is not None)
            else self._value(name, f"node '{origin}'")
            for name in proto.input
        ]
        domain = self.domain_of(proto)
        n = OnnxNode(proto, self, inputs, origin, self.opsets.get(domain, 1))
        seen = self.model.seen
        if seen is not None:
            seen[origin] = seen_node(n, self.model.fold.force)
        try:
            results = self._results(n)
            self._bind(n, results)
            if seen is not None:
                seen[origin].add_results(results)
        except IntaglioError as e:
            if str(e).startswith("onnx: "):
                raise
            e.args = (f"onnx: node '{origin}' ({proto.op_type}): {e}", *e.args[1:])
            raise
        except MemoryError as e:
            what = f"onnx: node '{origin}' ({proto.op_type}): not enough memory to fold it"
            raise BadInput(f"{what}: {e}") from e
        except RecursionError:
            raise BadInput(f"onnx: node '{origin}' ({proto.op_type}) nests too deeply") from None
        except Exception as e:  # a malformed node is an input error, not a crash
            what = f"onnx: node '{origin}' ({proto.op_type}) is malformed"
            words = " ".join(f"{type(e).__name__}: {e}".split())
            raise BadInput(f"{what}: {words}") from e

    def _results(self, n: OnnxNode) -> Sequence[Value | None]:
        called = f"{n.domain}::{n.op_type}"
        if (own := custom_ops.registered("onnx", called)) is not None:
            return self._imported(n, custom_importer(own))
        function = self.model.functions.get((n.domain, n.op_type, getattr(n.proto, "overload", "")))
        if function is not None:
            return self.call(Function.of_model(function), n)
        check_schema(n)
        found = find_importer(n.domain, n.op_type, n.opset)
        if found is not None:
            return self._imported(n, found)
        body = find_function(n)
        if body is not None:
            return self.call(body, n)
        if (own := custom_ops.search("onnx", called)) is not None:
            return self._imported(n, custom_importer(own))
        raise unsupported(n)

    def _imported(self, n: OnnxNode, found: Callable[[OnnxNode], Any]) -> Sequence[Value | None]:
        """The results of an importer; with open dimensions, the node itself if it fixes one."""
        opened = self.model.open
        if opened is not None and opened.must_keep(n):
            return opened.keep(n)
        try:
            got = found(n)
        except IntaglioError:
            if opened is None:
                raise
            return opened.keep(n)
        results = [got] if isinstance(got, Value) else got
        if opened is not None and not opened.same_types(n, results):
            return opened.keep(n)
        return results

    def _bind(self, n: OnnxNode, results: Sequence[Value | None]) -> None:
        """Name the node's results, set their origin, and fold constants."""
        self.model.fold.settle(results, n.origin)
        for name, v in zip(n.proto.output, results, strict=False):
            if v is None or not name:
                continue
            tensors.check_size(v.shape, v.dtype, f"tensor '{name}'")
            v.name = v.name or self.prefix + name
            self.values[name] = v
            self._compare(name, v.type)
        for i, name in enumerate(n.proto.output):
            if self.is_read(name) and not self.is_local(name):
                n.unsupported(
                    f"its output {i} ('{name}') is not supported; remove its reader or re-export "
                    "the model"
                )

    def _compare(self, name: str, got: Type) -> None:
        want = self.declared(name)
        if want is None or want == got:
            return
        if want.dtype != got.dtype:
            raise BadInput(
                f"'{name}' has element type {got.dtype}, but the model declares {want.dtype}"
            )
        if not got.dynamic and want.shape != got.shape:
            self.model.mismatches.append(f"'{name}' is declared {want}, inferred {got}")

    # ---- functions and sub-graphs --------------------------------------------------------------
    def call(self, function: Function, n: OnnxNode) -> list[Value | None]:
        """The results of a function's body on the operands of `n`."""
        body = Scope(
            self.model,
            {**self.opsets, **function.opsets},
            None,
            n.origin + "/",
            {**function.defaults, **n.protos},
            caller=self,
        )
        for name, v in zip(function.inputs, n.inputs, strict=False):
            if v is not None:
                body.values[name] = v
        absent = set(function.inputs) - set(body.values)
        wanted = [name if n.wants(i) else "" for i, name in enumerate(function.outputs)]
        nodes = without_absent(function.nodes, absent)
        body.run(nodes, [name for name in wanted if name])
        return [body.values[name] if name else None for name in wanted]

    def open(self, graph: Any, values: Sequence[Value], origin: str, capture: bool) -> Scope:
        """A scope for a sub-graph, with `values` as its inputs."""
        body = Scope(self.model, self.opsets, self, origin + "/", self.references)
        body.captures = {} if capture else None
        if len(graph.input) != len(values):
            raise BadInput(
                f"the body has {len(graph.input)} inputs, but the node gives {len(values)}"
            )
        body.declare(graph)
        for info, v in zip(graph.input, values, strict=True):
            body.stored.pop(info.name, None)
            body.values[info.name] = v
        return body

    def declare(self, graph: Any) -> None:
        """Register the initialisers and declared types of `graph`."""
        self.stored.update((t.name, t) for t in graph.initializer)
        self.stored.update((s.values.name, s) for s in graph.sparse_initializer)
        for info in (*graph.value_info, *graph.output):
            self.types[info.name] = info.type

    def inline(self, graph: Any, values: Sequence[Value], origin: str) -> list[Value]:
        """The outputs of a sub-graph, inlined into this scope's graph."""
        body = self.open(graph, values, origin, capture=False)
        return body.run(graph.node, [o.name for o in graph.output])

    def bodies(
        self, graphs: Sequence[tuple[Any, Sequence[Type]]], origin: str
    ) -> tuple[list[Graph], list[Value]]:
        """Sub-graphs as separate Graphs; a value that any of them captures is an input of all."""
        made: list[tuple[Graph, dict[Value, Value]]] = []
        outer: dict[Value, None] = {}
        for proto, types in graphs:
            inputs = [Value(t, info.name) for t, info in zip(types, proto.input, strict=False)]
            body = self.open(proto, inputs, origin, capture=True)
            outputs = body.run(proto.node, [o.name for o in proto.output])
            names = [o.name for o in proto.output]
            captures = body.captures or {}
            made.append((Graph(inputs, outputs, names, proto.name), captures))
            outer.update(dict.fromkeys(captures))
        for graph, captures in made:
            graph.inputs += [captures.get(v) or Value(v.type, v.name) for v in outer]
        return [graph for graph, _ in made], list(outer)


def declared_type(proto: Any, dims: Mapping[str, int]) -> Type | None:
    """A TypeProto as our Type; None if it is incomplete."""
    if not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    t = proto.tensor_type
    if t.elem_type not in tensors.ELEMENTS:
        return None
    shape = []
    for d in t.shape.dim:
        extent = d.dim_value if d.HasField("dim_value") else dims.get(d.dim_param, -1)
        if extent < 0:
            return None
        shape.append(extent)
    return Type(tensors.ELEMENTS[t.elem_type][0], tuple(shape))
