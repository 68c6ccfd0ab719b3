"""The registry of ONNX importers, and OnnxNode, the view of a node that importers get.

An ONNX op that we have one to one needs no importer; `Op.names["onnx"]` names it. Any other op has
a function in the module of its family:

    @importer("Squeeze", since=13)
    def squeeze(n: OnnxNode) -> Value: ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from intaglio.errors import BadInput, Unsupported, option
from intaglio.frontends.custom_ops import make_nodes
from intaglio.ir import Array, Graph, Type, Value
from intaglio.ops.registry import Op, named

if TYPE_CHECKING:
    from intaglio.frontends.onnx.scope import Scope

Import = Callable[["OnnxNode"], Value | Sequence[Value | None]]
_IMPORTERS: dict[tuple[str, str], list[tuple[int, Import]]] = {}


class NeedsValue(Unsupported):
    """A tensor must be constant and is not; `names` are the model's inputs that it depends on."""

    def __init__(self, message: str, names: Sequence[str]):
        super().__init__(message)
        self.names = tuple(names)


def importer(*op_types: str, since: int = 1, domain: str = "") -> Callable[[Import], Import]:
    """Register the decorated function as the importer of these ONNX ops from opset `since` on."""

    def register(function: Import) -> Import:
        for op_type in op_types:
            versions = _IMPORTERS.setdefault((domain, op_type), [])
            if any(v == since for v, _ in versions):
                raise ValueError(f"two importers for {op_type} since {since}")
            versions.append((since, function))
            versions.sort(key=lambda v: v[0])
        return function

    return register


def find_importer(domain: str, op_type: str, opset: int) -> Import | None:
    """The importer with the largest `since` up to the model's opset, else that of a 1:1 op."""
    fitting = [f for since, f in _IMPORTERS.get((domain, op_type), ()) if since <= opset]
    if fitting:
        return fitting[-1]
    one_to_one = _same_ops().get(op_type) if domain == "" else None
    return functools.partial(_import_same, one_to_one) if one_to_one else None


def known_ops() -> set[tuple[str, str]]:
    """(domain, op type) of all supported ops."""
    return {*_IMPORTERS, *(("", name) for name in _same_ops())}


@functools.cache
def _same_ops() -> dict[str, Op]:
    return named("onnx")


def _import_same(op: Op, n: OnnxNode) -> Any:
    attrs: dict[str, Any] = {}
    for name, value in n.attrs.items():
        if name not in op.attr_names:
            n.unsupported(f"attribute '{name}' is not supported")
        default = op.signature.parameters[name].default
        attrs[name] = bool(value) if isinstance(default, bool) else value
    return op(*n.inputs, **attrs)


def custom_importer(op: Op) -> Import:
    """The importer of a custom operator."""
    return lambda n: make_nodes(op, n.inputs, n.attrs)


class OnnxNode:
    """One node of the model: operands as Values, attributes as Python objects."""

    def __init__(
        self, proto: Any, scope: Scope, inputs: Sequence[Value | None], origin: str, opset: int
    ):
        self.proto, self.scope, self.origin, self.opset = proto, scope, origin, opset
        self.op_type: str = proto.op_type
        self.name: str = proto.name
        self.domain: str = scope.domain_of(proto)
        kept = len(inputs)
        while kept and inputs[kept - 1] is None:
            kept -= 1
        self.inputs = list(inputs[:kept])  # trailing absent ones are dropped
        self.protos: dict[str, Any] = scope.attributes_of(proto)

    @functools.cached_property
    def attrs(self) -> dict[str, Any]:
        """All attributes of the node as Python objects; lists are tuples."""
        return {name: self.scope.attribute(a) for name, a in self.protos.items()}

    def attr(self, name: str, default: Any = None) -> Any:
        """int, float, str, tuple of those, numpy array (tensors), or the onnx message (graphs)."""
        return self.attrs.get(name, default)

    def input(self, i: int) -> Value | None:
        """Operand `i`; None if it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def required(self, i: int) -> Value:
        """Operand `i`; BadInput if it is absent."""
        v = self.input(i)
        if v is None:
            raise BadInput(f"operand {i} is missing; {self.op_type} needs it")
        return v

    def sequence(self, i: int) -> tuple[Value, ...] | None:
        """The tensors of operand `i` if it is a sequence."""
        name = self.proto.input[i] if i < len(self.proto.input) else ""
        return self.scope.sequence(name) if name else None

    def make_sequence(self, values: Sequence[Value]) -> list[None]:
        """Make the node's output the sequence of `values`; the importer returns the result."""
        self.scope.model.fold.settle(values, self.origin)
        self.scope.sequences[self.proto.output[0]] = tuple(values)
        return [None]

    @property
    def n_outputs(self) -> int:
        return len(self.proto.output)

    def wants(self, i: int) -> bool:
        """Whether output `i` is named and something reads it."""
        return i < self.n_outputs and self.scope.is_read(self.proto.output[i])

    def is_const(self, i: int) -> bool:
        """Whether operand `i` is present and constant."""
        return self._array(i) is not None

    def _array(self, i: int) -> Array | None:
        """The array of operand `i`; None if it is absent or not constant."""
        v, model = self.input(i), self.scope.model
        data = model.fold.force(v)
        if data is None and v is not None:
            data = model.fold.symbolic.known.get(v)
        if data is None and v is not None and model.open is not None:
            data = model.open.constant(self, i, v)
        return data

    def const(self, i: int, default: Any = None) -> Any:
        """The array of constant operand `i`; `default` if the operand is absent."""
        v = self.input(i)
        if v is None:
            return default
        data = self._array(i)
        if data is None:
            self.needs_value(v, f"operand {i} ('{v.name}')")
        return data

    def needs_value(self, v: Value, what: str) -> NoReturn:
        """Raise NeedsValue: `v` decides a shape, and its value is known only at run time."""
        names = list(dict.fromkeys(self.scope.root_inputs(v)))
        values = option("values", dict.fromkeys(names, ...))
        way = f"bind it with {values}" if names else "re-export it as a constant"
        if len(names) > 1:
            way = f"it is computed from {', '.join(names)}: bind those with {values}"
        raise NeedsValue(
            f"onnx: node '{self.origin}' ({self.op_type}): {what} decides a shape, so it must be "
            f"constant; {way}",
            names,
        )

    def declared(self, i: int) -> Type | None:
        """The type that the model declares for output `i`, if it is complete."""
        return self.scope.declared(self.proto.output[i]) if i < self.n_outputs else None

    def unsupported(self, why: str) -> NoReturn:
        """Raise Unsupported, naming this node."""
        raise Unsupported(f"onnx: node '{self.origin}' ({self.op_type}): {why}")

    # ---- bodies of control flow ----------------------------------------------------------------
    def graphs(self, types: Mapping[str, Sequence[Type]]) -> tuple[list[Graph], list[Value]]:
        """The sub-graphs in the attributes named by `types`, imported for inputs of these types.

        Also returns the captured outer values of all of them. These are the last inputs of every
        graph, in this order, even of graphs that do not read them.
        """
        return self.scope.bodies([(self._graph(a), t) for a, t in types.items()], self.origin)

    def graph(self, name: str, types: Sequence[Type] = ()) -> tuple[Graph, list[Value]]:
        """The sub-graph in attribute `name`, and its captured outer values."""
        (graph,), captures = self.graphs({name: types})
        return graph, captures

    def inline(self, name: str, values: Sequence[Value] = ()) -> list[Value]:
        """The outputs of the sub-graph in attribute `name`, inlined with `values` as its inputs."""
        return self.scope.inline(self._graph(name), values, self.origin)

    def _graph(self, name: str) -> Any:
        if name not in self.protos:
            raise BadInput(f"attribute '{name}' is missing; {self.op_type} needs that graph")
        return self.protos[name].g


def scalar(array: Array) -> Any:
    """The only element of `array`, as a Python number."""
    if array.size != 1:
        raise BadInput(f"a constant has shape {array.shape}; a scalar is needed")
    return np.asarray(array).reshape(()).item()
