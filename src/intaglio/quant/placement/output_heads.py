"""Which tensors serve nothing but some parts of the outputs: a detector's last layers for scores.

Outputs are followed backwards by columns: where boxes and scores were concatenated, each goes its
own way, through slices, transpositions and what is computed element by element.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from intaglio.ir import Graph, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.quant.search.output_error import Columns

Span = tuple[int, int, int]  # an axis, and the first and last index along it, the latter excluded
NOTHING: Span = (0, 0, 0)


def serve_only(
    graph: Graph, parts: Mapping[str, Sequence[Columns]], chosen: Collection[str]
) -> set[str]:
    """Names of the tensors that only those parts of the outputs depend on that are `chosen`."""
    mine, others = set[Value](), set[Value]()
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        for p in parts.get(name, ()):
            span = None if p.axis is None else (p.axis, min(p.indices), max(p.indices) + 1)
            (mine if f"{name}{p}" in chosen else others).update(_behind(v, span))
    return {v.name for v in mine - others}


def _behind(v: Value, span: Span | None) -> set[Value]:
    """All that these columns (None: the whole) are computed from."""
    todo, known = [(v, span)], {(v, span)}
    while todo:
        v, span = todo.pop()
        if v.producer is None:
            continue
        for i, x in enumerate(v.producer.inputs):
            if x is None or x.data is not None:
                continue
            before = (x, _before(v.producer, i, x, span) if span else _part(v.producer, x))
            if before[1] != NOTHING and before not in known:
                known.add(before)
                todo.append(before)
    return {v for v, _ in known}


def _part(node: Node, x: Value) -> Span | None:
    """What a slice takes of its operand, where all of the slice is meant."""
    if node.op == "slice":
        ends = zip(node.attrs["start"], node.attrs["stop"], node.attrs["step"], strict=True)
        for axis, (n, end) in enumerate(zip(x.shape, ends, strict=True)):
            taken = range(n)[slice(*end)]
            if taken.step > 0 and 0 < len(taken) < n:
                return (axis, taken[0], taken[-1] + 1)
    return None


def _before(node: Node, i: int, x: Value, span: Span) -> Span | None:
    """What of an operand the columns of the result are made of; None: it may be all of it."""
    axis, first, end = span
    made, a = node.outputs[0].shape, node.attrs
    if node.op == "concat":
        if a["axis"] % len(made) != axis:
            return span
        start = sum(v.shape[axis] for v in node.inputs[:i] if v is not None)
        first, end = max(first - start, 0), min(end - start, x.shape[axis])
        return (axis, first, end) if first < end else NOTHING
    if node.op == "slice":
        taken = range(x.shape[axis])[slice(a["start"][axis], a["stop"][axis], a["step"][axis])]
        return (axis, taken[first], taken[end - 1] + 1) if taken.step > 0 else None
    if node.op == "transpose":
        return (a["perm"][axis], first, end)
    if node.op == "reshape":
        sizes = (math.prod(made[:axis]), made[axis])
        same = [b for b, n in enumerate(x.shape) if (math.prod(x.shape[:b]), n) == sizes]
        return (same[0], first, end) if same else None
    if node.op == "softmax":
        return None if a["axis"] % len(made) == axis else span
    at = axis - len(made) + len(x.shape)
    if REGISTRY[node.op].elementwise and at >= 0 and x.shape[at] == made[axis]:
        return (at, first, end)
    return None
