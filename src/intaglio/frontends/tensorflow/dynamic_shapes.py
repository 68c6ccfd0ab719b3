"""Run-time extents: bounds of expressions over them, and padding to a fixed number of rows."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Value, constant
from intaglio.ops.registry import evaluate_node

MAX_ELEMENTS, MAX_OPERATIONS = 4096, 100  # of an expression over extents
MAX_TRIED = 1024  # extents that are all tried, for an exact result
SAMPLED = 65  # extents that are tried for a bound, which the runtime checks


def estimate(value: Value, less: int) -> Array | None:
    """`value` with every run-time extent `less` below its bound; None if other data decides it."""
    known: dict[Value, Array | None] = {}

    def compute(v: Value, deep: int) -> Array | None:
        if v.data is not None:
            return v.data
        if v in known:
            return known[v]
        node = v.producer
        known[v] = None
        if node is None or deep > MAX_OPERATIONS or v.type.size > MAX_ELEMENTS:
            return None
        if node.op == "shape_of" and node.inputs[0] is not None:
            t = node.inputs[0].type
            shape = [max(d - less, 0) if i in t.dynamic else d for i, d in enumerate(t.shape)]
            known[v] = np.array(shape, np.int64)
            return known[v]
        arrays = [None if x is None else compute(x, deep + 1) for x in node.inputs]
        if any(a is None and x is not None for a, x in zip(arrays, node.inputs, strict=True)):
            return None
        if any(x is not None and x.type.dynamic for x in (*node.inputs, v)):
            return None
        known.update(zip(node.outputs, evaluate_node(node, arrays), strict=True))
        return known[v]

    return compute(value, 0)


def min_with_extent(value: Value, x: Value) -> int | None:
    """C if a count is min(C, first extent of x); None otherwise."""
    bound = x.shape[0]
    if value.data is not None:
        return int(value.data.reshape(-1)[0]) if value.data.size == 1 else None
    if value.type.size != 1 or 0 not in x.type.dynamic:
        return None
    seen = {}
    for less in {0, 1, bound // 2, max(bound - 1, 0)}:
        found = estimate(value, less)
        if found is None:
            return None
        seen[max(bound - less, 0)] = int(found.reshape(-1)[0])
    most = seen[bound]
    return most if all(k == min(most, n) for n, k in seen.items()) else None


def constant_condition(flag: Value) -> bool | None:
    """The value of a condition that is equal for all values of a run-time extent; else None."""
    sources = sources_of(flag)
    if len(sources) != 1 or flag.type.size != 1:
        return None
    t = sources.pop().type
    if len(t.dynamic) != 1 or t.shape[t.dynamic[0]] > MAX_TRIED:
        return None
    found = {_truth(estimate(flag, less)) for less in range(t.shape[t.dynamic[0]] + 1)}
    return found.pop() if len(found) == 1 else None


def _truth(held: Array | None) -> bool | None:
    return None if held is None else bool(held.reshape(-1)[0])


def sources_of(value: Value) -> set[Value]:
    """The tensors whose extents `value` depends on."""
    sources: set[Value] = set()
    stack, seen = [value], {value}
    while stack:
        node = stack.pop().producer
        if node is None:
            continue
        if node.op == "shape_of" and node.inputs[0] is not None:
            sources.add(node.inputs[0])
            continue
        fresh = {x for x in node.inputs if x is not None} - seen
        seen |= fresh
        stack += fresh
    return sources


def upper_bounds(value: Value) -> Array | None:
    """Upper bounds of numbers computed from extents; None if other data decides them."""
    longest = max((max(v.shape) for v in sources_of(value)), default=0)
    points = np.unique(np.linspace(0, longest, SAMPLED).astype(int)).tolist()
    found = [estimate(value, less) for less in points]
    kept = [a for a in found if a is not None]
    return np.maximum.reduce(kept) if kept and len(kept) == len(found) else None


def padded_concat(x: Value, more: Value) -> Value | None:
    """x padded with equal rows to a fixed number of rows; None if this concat is not that."""
    node = more.producer
    if node is None or node.op != "expand_to" or x.type.dynamic != (0,) or x.shape[0] > MAX_TRIED:
        return None
    fill, shape = node.inputs[0], node.inputs[1]
    if fill is None or fill.data is None or shape is None or sources_of(shape) != {x}:
        return None
    totals = set()
    for less in range(x.shape[0] + 1):
        rows = estimate(shape, less)
        totals.add(None if rows is None else x.shape[0] - less + int(rows[0]))
    total = totals.pop()
    return (
        None if totals or total is None else padded_rows(x, total, float(fill.data.reshape(-1)[0]))
    )


def row_count(x: Value) -> Value:
    """The number of rows as a tensor."""
    result: Value = ops.reshape(ops.part(ops.shape_of(x), 0, 1, axis=0), shape=())
    return result


def padded_rows(x: Value, rows: int, fill: float) -> Value:
    """x padded to exactly `rows` rows with a constant."""
    start = np.full((rows, *x.shape[1:]), fill, np.float32)
    whole = constant(start, dtype=x.dtype)
    if 0 not in x.type.dynamic:
        result: Value = ops.concat(x, constant(start[x.shape[0] :], dtype=x.dtype), axis=0)
        return result
    zero, one = constant(0, dtype="i64"), constant(1, dtype="i64")
    places = ops.range_(zero, row_count(x), one, bound=(x.shape[0],))
    result = ops.scatter_nd(whole, ops.reshape(places, shape=(-1, 1)), x)
    return result
