"""SLICE with a begin or size known only at run time, and the lists that loops write with it.

The TensorFlow converter turns a TensorList into one stacked tensor. Writing item i is a
concatenation of rows [0, i), the item, and rows [i + 1, end); the result has as many rows as the
list, so it becomes a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio import ops
from intaglio.ir import Value, constant

Entry = int | Value  # of a vector: known, or a vector of one number


def entries(v: Value) -> list[Entry]:
    """The numbers of a vector; one that is computed alone is traced to its own Value."""
    if v.data is not None:
        return [int(d) for d in v.data.reshape(-1)]
    node = v.producer
    if node is not None and node.op == "concat" and v.type.rank == 1:
        return [e for x in node.inputs if x is not None for e in entries(x)]
    if v.type.size == 1:
        return [ops.cast(ops.reshape(v, shape=(1,)), dtype="i64")]
    return [ops.cast(ops.part(v, i, i + 1, axis=0), dtype="i64") for i in range(v.shape[0])]


def slice_at_run_time(x: Value, begin: Value, size: Value) -> Value:
    """x[begin : begin + size]; -1 is the rest. An axis of unknown size gets a run-time extent."""
    open_axes: list[tuple[int, Value, Value]] = []
    for axis, (b, s) in enumerate(zip(entries(begin), entries(size), strict=True)):
        extent = x.shape[axis]
        if b == 0 and s in (-1, extent):
            continue
        if isinstance(b, int) and isinstance(s, int):
            x = ops.part(x, b, extent if s < 0 else b + s, axis=axis)
        elif isinstance(s, int) and s >= 0:
            x = ops.gather(x, ops.add(_vector(b), constant(np.arange(s))), axis=axis)
        else:
            stop = _vector(extent) if isinstance(s, int) else s if b == 0 else ops.add(b, s)
            open_axes.append((axis, _vector(b), stop))
    if not open_axes:
        return x
    axes = tuple(axis for axis, _, _ in open_axes)
    starts, stops = (
        ops.concat(*(part[k] for part in open_axes), axis=0) if len(axes) > 1 else open_axes[0][k]
        for k in (1, 2)
    )
    steps = constant(np.ones(len(axes), np.int64))
    result: Value = ops.slice_to(x, starts, stops, steps, axes=axes, bound=x.shape)
    return result


def _vector(e: Entry) -> Value:
    return e if isinstance(e, Value) else constant(np.array([e], np.int64))


def written_list(parts: Sequence[Value], axis: int) -> Value | None:
    """The list after one item of it is replaced; None if the concatenation is not that."""
    if len(parts) != 3 or axis not in (0, -parts[0].type.rank) or parts[1].shape[0] != 1:
        return None
    before, after = (p.producer for p in (parts[0], parts[2]))
    if before is None or after is None or not before.op == after.op == "slice_to":
        return None
    rows, place, next_ = before.inputs[0], before.inputs[2], after.inputs[1]
    if rows is None or place is None or next_ is None or after.inputs[0] is not rows:
        return None
    whole = _is_constant(before.inputs[1], 0) and _is_constant(after.inputs[2], rows.shape[0])
    if not whole or not before.attrs["axes"] == after.attrs["axes"] == (0,):
        return None
    if not _is_next(place, next_) or parts[1].shape[1:] != rows.shape[1:]:
        return None
    result: Value = ops.scatter_nd(rows, ops.reshape(place, shape=(1, 1)), parts[1])
    return result


def _is_constant(v: Value | None, number: int) -> bool:
    return v is not None and v.data is not None and v.data.reshape(-1).tolist() == [number]


def _is_next(a: Value, b: Value) -> bool:
    """Whether b is computed as a + 1."""
    node = _source(b).producer
    if node is None or node.op != "add":
        return False
    pairs = (node.inputs, node.inputs[::-1])
    return any(x is not None and _source(x) is _source(a) and _is_constant(y, 1) for x, y in pairs)


def _source(v: Value) -> Value:
    """`v` before reshapes and casts."""
    while v.producer is not None and v.producer.op in ("reshape", "cast"):
        before = v.producer.inputs[0]
        assert before is not None
        v = before
    return v
