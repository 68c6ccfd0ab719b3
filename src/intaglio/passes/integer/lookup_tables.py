"""Functions of one quantised tensor: 256 results, computed now by the numpy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.quantized import ENTRIES
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.operands import BITS8, source, x, ys, yz
from intaglio.rewrite import P, no, rule

LARGEST = 32  # ops that one table may stand for
ELEMENTWISE = tuple(name for name, o in REGISTRY.items() if o.elementwise)
(t, u) = P["t! u!"]


def every_byte(dtype: str) -> Array:
    """All numbers that a byte can hold, in the order of their bits."""
    return np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(dtype))


def every_word() -> Array:
    """All numbers of i16, from the lowest up."""
    return np.arange(-(1 << 15), 1 << 15).astype(np.int16)


class _Function:
    """What lies between bytes and a tensor that is made of them alone, element by element."""

    kinds: tuple[str, ...] = BITS8

    def __init__(self, v: Value):
        self.nodes: dict[Node, None] = {}  # producers first
        self.bytes: Value | None = None
        self.ok = self._collect(v) and self.bytes is not None and self.bytes.shape == v.shape

    def _collect(self, v: Value) -> bool:
        node = v.producer
        if v.data is not None:
            return v.type.size == 1
        if v.dtype in self.kinds and (node is None or node.op != "clip"):
            self.bytes = self.bytes or v
            return self.bytes is v
        if node is None or node in self.nodes:
            return node is not None
        if len(self.nodes) >= LARGEST or not (self._is_function(node) or self._is_real(node)):
            return False
        if not all(u is None or self._collect(u) for u in node.inputs):
            return False
        self.nodes[node] = None
        return True

    def _is_function(self, node: Node) -> bool:
        return REGISTRY[node.op].elementwise and len(node.outputs) == 1

    def _is_real(self, node: Node) -> bool:
        """Does the node dequantize with one scale?"""
        return source(node.outputs[0], self.kinds) is not None and node.inputs[1].type.size == 1  # type: ignore[union-attr]

    def every(self, dtype: str) -> Array:
        """All numbers that are looked up."""
        return every_byte(dtype)

    def table(self, last: Node | None = None) -> Array:
        """The results for every byte; `last` is one more node, which quantizes them."""
        assert self.bytes is not None
        made: dict[Value, Array] = {self.bytes: self.every(self.bytes.dtype)}
        nodes = list(self.nodes) if last is None else [*self.nodes, last]
        with np.errstate(all="ignore"):
            for node in nodes:
                arrays = [_operand(v, made) for v in node.inputs]
                out = np.asarray(REGISTRY[node.op].body(*arrays, **node.attrs))
                made[node.outputs[0]] = out.reshape(-1)
        return made[nodes[-1].outputs[0]]


class _WideFunction(_Function):
    """The same of i16: what a product stores in finer steps for a function of it."""

    kinds = ("i16",)

    def every(self, dtype: str) -> Array:
        return every_word()


def _operand(v: Value | None, made: dict[Value, Array]) -> Array | None:
    if v is None or v in made:
        return None if v is None else made[v]
    assert v.data is not None
    return v.data.reshape(()) if v.type.size == 1 else v.data


def _looked_up(x: Value, table: Array) -> Value:
    """`x` itself where the table changes nothing."""
    if dtypes.name_of(table.dtype) == x.dtype and np.array_equal(table, every_byte(x.dtype)):
        return x
    made: Value = ops.lookup(x, constant(np.ascontiguousarray(table)))
    return made


@rule(P.quantize_linear(x, ys, yz))
def table_of_bytes(x: Value, ys: Value, node: Node) -> Any:
    """a function of one quantised tensor, rounded again, is a table; other scales are one too"""
    if node.attrs["dtype"] not in BITS8 or ys.type.size != 1:
        return None
    found = _Function(x)
    return _looked_up(found.bytes, found.table(node)) if found.ok and found.bytes else None


@rule(P.quantize_linear(x, ys, yz))
def table_of_words(x: Value, ys: Value, node: Node) -> Any:
    """a function of one tensor of 16 bits, rounded to bytes, is a table of where it changes"""
    if node.attrs["dtype"] not in BITS8 or ys.type.size != 1:
        return None
    found = _WideFunction(x)
    if not found.ok or found.bytes is None:
        return None
    table = found.table(node)
    changes = np.flatnonzero(np.diff(table.astype(np.int16)))
    first, last = (changes[0], changes[-1] + 1) if len(changes) else (0, 0)
    if last - first >= ENTRIES:
        return no(f"it changes over {last - first} numbers, a table has {ENTRIES}")
    entries = constant(np.ascontiguousarray(table[first : last + 1]))
    return ops.lookup_wide(found.bytes, entries, base=int(every_word()[first]))


@rule(P.lookup(P.lookup(x, t).shared(), u))
def table_of_table(x: Value, t: Value, u: Value) -> Any:
    """a table of what a table gives"""
    assert t.data is not None
    assert u.data is not None
    return _looked_up(x, u.data[t.data.view(np.uint8)]) if t.dtype in BITS8 else None


@rule(P.any(*ELEMENTWISE))
def table_of_floats(node: Node) -> Any:
    """a function of one quantised tensor with a real result is a table"""
    out = node.outputs[0]
    found = _Function(out) if dtypes.is_float(out.dtype) else None
    if found is None or not found.ok or found.bytes is None:
        return None
    user = next(iter(out.uses))
    if len(out.uses) == 1 and user.op in ELEMENTWISE and _Function(user.outputs[0]).ok:
        return None  # which is a table as a whole
    return _looked_up(found.bytes, found.table())


TABLES = [table_of_bytes, table_of_words, table_of_table]
