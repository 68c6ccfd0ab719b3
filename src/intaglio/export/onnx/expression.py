"""The ONNX forms of a node: expressions of ONNX nodes, of which the shortest is chosen.

An op that ONNX has one to one needs no code here; `Op.names["onnx"]` names it. Any other op has a
function in the module of its family:

    @writes("where")
    def where(n: Node) -> Onnx:
        a, b, cond = n.inputs
        return make("Where", cond, a, b)

Opsets are not listed here: the schemas of the onnx package tell which opset has an operator,
attribute or element type. If forms differ between opsets, the function returns all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import numpy_helper

from intaglio import dtypes
from intaglio.frontends.onnx.schema import accepts, find_schema
from intaglio.ir import Array, Graph, Node, Value
from intaglio.ops.registry import REGISTRY

OLDEST, NEWEST = 17, 28  # opsets that can be written
COMMON = 24  # newest opset of common runtimes; a newer one is chosen only if needed


@dataclass(frozen=True, eq=False)
class Onnx:
    """A planned ONNX node. Operands are Values, arrays (stored in the file), Onnx, or None."""

    op_type: str
    inputs: tuple[Operand, ...]
    attrs: dict[str, Any]
    domain: str = ""
    first: int = 0  # first and last opset of this form, where schemas cannot tell
    last: int = NEWEST
    silent: frozenset[str] = frozenset()  # attributes that are dropped in opsets without them
    places: tuple[int, ...] = ()  # indices of its outputs that our outputs map to

    def between(self, first: int, last: int = NEWEST) -> Onnx:
        """This form, restricted to opsets `first` to `last`."""
        return replace(self, first=first, last=last)

    def walk(self) -> Iterator[Onnx]:
        """This node and all Onnx nodes below it, each once."""
        seen: dict[Onnx, None] = {self: None}
        stack = [self]
        while stack:
            for x in stack.pop().inputs:
                if isinstance(x, Onnx) and x not in seen:
                    seen[x] = None
                    stack.append(x)
        yield from seen


Operand = Value | Array | Onnx | None
Forms = Onnx | tuple[Onnx, ...]


@dataclass(frozen=True, eq=False)
class Body:
    """A graph attribute; the last inputs of the graph are the captured outer values."""

    graph: Graph
    captures: tuple[Value | None, ...]


def make(op_type: str, *inputs: Any, domain: str = "", **attrs: Any) -> Onnx:
    """An ONNX node. Attributes that are None and trailing absent operands are dropped.

    Lists of Python ints among the operands become i64 vectors.
    """
    kept = len(inputs)
    while kept and inputs[kept - 1] is None:
        kept -= 1
    operands = tuple(
        np.array(x, np.int64) if isinstance(x, list | tuple) else x for x in inputs[:kept]
    )
    return Onnx(op_type, operands, {k: a for k, a in attrs.items() if a is not None}, domain)


Write = Callable[[Node], Forms]
_WRITERS: dict[str, Write] = {}


def writes(*names: str) -> Callable[[Write], Write]:
    """Register the decorated function as the ONNX form of these ops."""

    def register(function: Write) -> Write:
        for name in names:
            if name in _WRITERS:
                raise ValueError(f"two writers for {name}")
            _WRITERS[name] = function
        return function

    return register


def forms(node: Node) -> tuple[Onnx, ...]:
    """All ONNX forms of `node`, the best first; empty if there is none."""
    op = REGISTRY[node.op]
    if node.op in _WRITERS:
        result = _WRITERS[node.op](node)
    elif "onnx" in op.names:
        result = _same(node)
    else:
        return ()
    return (result,) if isinstance(result, Onnx) else result


def _same(node: Node) -> Onnx:
    """A 1:1 op. Our defaults are those of ONNX, so default attributes may be dropped."""
    op = REGISTRY[node.op]
    if op.custom:
        domain, _, op_type = op.names["onnx"].rpartition("::")
        attrs = {k: _custom_attribute(a) for k, a in node.attrs.items() if a != ()}
        return make(op_type, *node.inputs, domain=domain, **attrs)
    defaults = {name: op.signature.parameters[name].default for name in op.attr_names}
    silent = frozenset(k for k, a in node.attrs.items() if a == defaults[k])
    return replace(make(op.names["onnx"], *node.inputs, **node.attrs), silent=silent)


def _custom_attribute(value: Any) -> Any:
    """An attribute of a custom operator; nested lists are tensors in ONNX."""
    if isinstance(value, tuple) and any(isinstance(v, tuple) for v in value):
        a = np.array(value)
        return numpy_helper.from_array(a.astype(np.float32) if a.dtype == np.float64 else a)
    return value


def choose(node: Node, opset: int) -> Onnx | None:
    """The form with the fewest nodes that this opset has, the first of equals; None if none."""
    fitting = [f for f in forms(node) if fits(f, node, opset)]
    return min(fitting, key=size, default=None)


def size(form: Onnx) -> int:
    return sum(1 for _ in form.walk())


def fits(form: Onnx, node: Node, opset: int) -> bool:
    """Whether this opset has all nodes of `form` for the element types of `node`."""
    results = tuple(v.dtype for v in node.outputs)
    return all(
        n.first <= opset <= n.last
        and _has(
            n.op_type,
            n.domain,
            opset,
            frozenset(n.attrs) - n.silent,
            tuple(_dtype(x) for x in n.inputs),
            results if n is form else (),
        )
        for n in form.walk()
    )


def _dtype(x: Operand) -> str:
    """The element type of an operand; "" if it is absent or an intermediate node."""
    if x is None or isinstance(x, Onnx):
        return ""
    return x.dtype if isinstance(x, Value) else dtypes.name_of(x.dtype)


@functools.cache
def _has(
    op_type: str,
    domain: str,
    opset: int,
    attrs: frozenset[str],
    reads: tuple[str, ...],
    makes: tuple[str, ...],
) -> bool:
    if domain:
        return True  # onnx has no schemas of other domains
    schema = find_schema(op_type, opset, domain)
    if schema is None or schema.deprecated or not attrs <= set(schema.attributes):
        return False
    if len(reads) > schema.max_input:
        return False
    return all(accepts(schema.inputs, i, d) for i, d in enumerate(reads)) and all(
        accepts(schema.outputs, i, d) for i, d in enumerate(makes)
    )


def best_opset(nodes: Sequence[Node]) -> int:
    """The opset with the fewest ONNX nodes: up to COMMON if possible, the oldest of equals."""
    kinds: dict[Any, tuple[Node, int]] = {}
    for n in nodes:
        key = _kind(n)
        kinds[key] = (n, kinds[key][1] + 1 if key in kinds else 1)

    def cost(opset: int) -> tuple[int, bool, int]:
        missing = total = 0
        for n, count in kinds.values():
            form = choose(n, opset)
            missing += count * (form is None)
            total += count * size(form) if form else 0
        return missing, opset > COMMON, total

    return min(range(OLDEST, NEWEST + 1), key=cost)


def _kind(n: Node) -> Any:
    """A key of nodes that the same opsets support: op, element types, attributes."""
    attrs = tuple((k, "" if isinstance(a, Graph) else repr(a)) for k, a in n.attrs.items())
    types = tuple(None if v is None else (v.type, v.data is None) for v in n.inputs)
    return n.op, attrs, types, tuple(v.dtype for v in n.outputs)
