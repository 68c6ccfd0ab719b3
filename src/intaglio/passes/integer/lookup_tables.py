"""Elementwise functions of one quantised tensor as lookup tables, computed at compile time."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.quantized import MAX_ENTRIES
from intaglio.ops.registry import REGISTRY
from intaglio.passes.integer.operands import BITS8, source, x, ys, yz
from intaglio.rewrite import P, no, rule

MAX_OPS = 32  # ops that one table may replace
ELEMENTWISE = tuple(name for name, o in REGISTRY.items() if o.elementwise)
(t, u) = P["t! u!"]


def every_byte(dtype: str) -> Array:
    """All 256 values of an 8-bit type, in the order of their bit patterns."""
    return np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(dtype))


def every_word() -> Array:
    """All values of i16, in ascending order."""
    return np.arange(-(1 << 15), 1 << 15).astype(np.int16)


class _Function:
    """The elementwise ops between one 8-bit tensor and the value that they make of it."""

    kinds: tuple[str, ...] = BITS8

    def __init__(self, v: Value):
        self.nodes: dict[Node, None] = {}  # producers first
        self.pending = 0  # nodes whose operands are being collected
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
        if not (self._is_function(node) or self._is_real(node)):
            return False
        if len(self.nodes) + self.pending >= MAX_OPS:  # also bounds the recursion
            return False
        self.pending += 1
        if not all(u is None or self._collect(u) for u in node.inputs):
            return False
        self.pending -= 1
        self.nodes[node] = None
        return True

    def _is_function(self, node: Node) -> bool:
        return REGISTRY[node.op].elementwise and len(node.outputs) == 1

    def _is_real(self, node: Node) -> bool:
        """Does the node dequantise with one scale?"""
        return source(node.outputs[0], self.kinds) is not None and node.inputs[1].type.size == 1  # type: ignore[union-attr]

    def every(self, dtype: str) -> Array:
        """All possible values of the quantised operand."""
        return every_byte(dtype)

    def table(self, last: Node | None = None) -> Array:
        """The results for every possible operand; `last` is an optional final quantize node."""
        assert self.bytes is not None
        results: dict[Value, Array] = {self.bytes: self.every(self.bytes.dtype)}
        nodes = list(self.nodes) if last is None else [*self.nodes, last]
        with np.errstate(all="ignore"):
            for node in nodes:
                arrays = [_operand(v, results) for v in node.inputs]
                out = np.asarray(REGISTRY[node.op].body(*arrays, **node.attrs))
                results[node.outputs[0]] = out.reshape(-1)
        return results[nodes[-1].outputs[0]]


class _WideFunction(_Function):
    """The same for an i16 operand, which a layer stores in finer steps for its activation."""

    kinds = ("i16",)

    def every(self, dtype: str) -> Array:
        return every_word()


def _operand(v: Value | None, made: dict[Value, Array]) -> Array | None:
    if v is None or v in made:
        return None if v is None else made[v]
    assert v.data is not None
    return v.data.reshape(()) if v.type.size == 1 else v.data


def _looked_up(x: Value, table: Array) -> Value:
    """A lookup of `x` in `table`; `x` itself if the table is the identity."""
    if dtypes.name_of(table.dtype) == x.dtype and np.array_equal(table, every_byte(x.dtype)):
        return x
    result: Value = ops.lookup(x, constant(np.ascontiguousarray(table)))
    return result


@rule(P.quantize_linear(x, ys, yz))
def int8_lookup_table(x: Value, ys: Value, node: Node) -> Any:
    """Replace dequantize, elementwise ops and quantize of one 8-bit tensor by a table."""
    if node.attrs["dtype"] not in BITS8 or ys.type.size != 1:
        return None
    found = _Function(x)
    return _looked_up(found.bytes, found.table(node)) if found.ok and found.bytes else None


@rule(P.quantize_linear(x, ys, yz))
def int16_lookup_table(x: Value, ys: Value, node: Node) -> Any:
    """Replace dequantize, elementwise ops and quantize to 8 bits of one i16 tensor by a table of
    the range where it varies.
    """
    if node.attrs["dtype"] not in BITS8 or ys.type.size != 1:
        return None
    found = _WideFunction(x)
    if not found.ok or found.bytes is None:
        return None
    table = found.table(node)
    changes = np.flatnonzero(np.diff(table.astype(np.int16)))
    first, last = (changes[0], changes[-1] + 1) if len(changes) else (0, 0)
    if last - first >= MAX_ENTRIES:
        return no(f"it varies over {last - first} values; a table has {MAX_ENTRIES} entries")
    entries = constant(np.ascontiguousarray(table[first : last + 1]))
    return ops.lookup_wide(found.bytes, entries, base=int(every_word()[first]))


@rule(P.lookup(P.lookup(x, t).shared(), u))
def compose_lookup_tables(x: Value, t: Value, u: Value) -> Any:
    """Merge two consecutive lookup tables."""
    assert t.data is not None
    assert u.data is not None
    return _looked_up(x, u.data[t.data.view(np.uint8)]) if t.dtype in BITS8 else None


@rule(P.any(*ELEMENTWISE))
def float_lookup_table(node: Node) -> Any:
    """Replace dequantize and elementwise ops of one 8-bit tensor by a table of floats."""
    out = node.outputs[0]
    found = _Function(out) if dtypes.is_float(out.dtype) else None
    if found is None or not found.ok or found.bytes is None:
        return None
    user = next(iter(out.uses))
    if len(out.uses) == 1 and user.op in ELEMENTWISE and _Function(user.outputs[0]).ok:
        return None  # the reader joins the same table
    return _looked_up(found.bytes, found.table())


TABLES = [int8_lookup_table, int16_lookup_table, compose_lookup_tables]
