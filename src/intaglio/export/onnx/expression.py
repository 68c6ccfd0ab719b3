"""How one of our nodes is said in ONNX: an expression of ONNX nodes, or several to choose from.

An op that ONNX has by another name needs nothing here: `Op.names["onnx"]` says so. The others get
a function in the module of their family:

    @writes("where")
    def where(n: Node) -> Onnx:
        a, b, cond = n.inputs
        return make("Where", cond, a, b)

Which opset has an operator, attribute or element type is never written down: the standard's own
schemas are asked. Where forms differ between opsets the function returns all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.frontends.onnx.schema import accepts, find_schema
from intaglio.ir import Array, Graph, Node, Value
from intaglio.ops.registry import REGISTRY

OLDEST, NEWEST = 17, 28  # opsets that are written
COMMON = 24  # the newest one that runtimes have; a newer one is chosen only where it is needed


@dataclass(frozen=True, eq=False)
class Onnx:
    """An ONNX node to be. Operands are Values, arrays (stored in the file), Onnx, or None."""

    op_type: str
    inputs: tuple[Operand, ...]
    attrs: dict[str, Any]
    domain: str = ""
    first: int = 0  # the opsets between which a form means this, where no schema can tell
    last: int = NEWEST
    silent: frozenset[str] = frozenset()  # attributes that an opset may lack: it means the same
    places: tuple[int, ...] = ()  # which of its outputs our outputs are, if not the first ones

    def between(self, first: int, last: int = NEWEST) -> Onnx:
        """The same, to be used from opset `first` to `last` only."""
        return replace(self, first=first, last=last)

    def walk(self) -> Iterator[Onnx]:
        """This node and those that it reads, each once."""
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
    """An attribute that is a graph; its last inputs are `captures` of the graph outside."""

    graph: Graph
    captures: tuple[Value | None, ...]


def make(op_type: str, *inputs: Any, domain: str = "", **attrs: Any) -> Onnx:
    """An ONNX node; attributes that are None and operands that are absent at the end are dropped.

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
    """Register the function below as the ONNX form of these ops."""

    def register(function: Write) -> Write:
        for name in names:
            if name in _WRITERS:
                raise ValueError(f"two writers for {name}")
            _WRITERS[name] = function
        return function

    return register


def forms(node: Node) -> tuple[Onnx, ...]:
    """Every way to say `node` in ONNX, the best first; empty if there is none."""
    op = REGISTRY[node.op]
    if node.op in _WRITERS:
        made = _WRITERS[node.op](node)
    elif "onnx" in op.names:
        made = _same(node)
    else:
        return ()
    return (made,) if isinstance(made, Onnx) else made


def _same(node: Node) -> Onnx:
    """A 1:1 op. Our defaults are the standard's: an opset without the attribute means them."""
    op = REGISTRY[node.op]
    defaults = {name: op.signature.parameters[name].default for name in op.attr_names}
    silent = frozenset(k for k, a in node.attrs.items() if a == defaults[k])
    return replace(make(op.names["onnx"], *node.inputs, **node.attrs), silent=silent)


def choose(node: Node, opset: int) -> Onnx | None:
    """The shortest form that this opset has, the first of equals; None if it has none."""
    fitting = [f for f in forms(node) if fits(f, node, opset)]
    return min(fitting, key=size, default=None)


def size(form: Onnx) -> int:
    return sum(1 for _ in form.walk())


def fits(form: Onnx, node: Node, opset: int) -> bool:
    """Does this opset have all of `form`, for the element types that `node` has?"""
    made = tuple(v.dtype for v in node.outputs)
    return all(
        n.first <= opset <= n.last
        and _has(
            n.op_type,
            n.domain,
            opset,
            frozenset(n.attrs) - n.silent,
            tuple(_dtype(x) for x in n.inputs),
            made if n is form else (),
        )
        for n in form.walk()
    )


def _dtype(x: Operand) -> str:
    """The element type of an operand; "" where it is absent or made on the way."""
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
        return True  # onnx has schemas of the standard's own operators only
    schema = find_schema(op_type, opset, domain)
    if schema is None or schema.deprecated or not attrs <= set(schema.attributes):
        return False
    if len(reads) > schema.max_input:
        return False
    return all(accepts(schema.inputs, i, d) for i, d in enumerate(reads)) and all(
        accepts(schema.outputs, i, d) for i, d in enumerate(makes)
    )


def best_opset(nodes: Sequence[Node]) -> int:
    """The opset that takes the fewest ONNX nodes, a common one if possible; the oldest of those."""
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
    """What nodes of the same kind have in common: whatever could decide which opsets have them."""
    attrs = tuple((k, "" if isinstance(a, Graph) else repr(a)) for k, a in n.attrs.items())
    types = tuple(None if v is None else (v.type, v.data is None) for v in n.inputs)
    return n.op, attrs, types, tuple(v.dtype for v in n.outputs)
