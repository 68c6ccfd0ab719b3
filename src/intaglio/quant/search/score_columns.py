"""Which columns of a model's outputs are scores: they end in a sigmoid or a softmax.

Outputs are followed backwards through concatenations, transposes, reshapes, slices and products of
two scores. A detector that concatenates boxes and scores has some columns of either kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from intaglio.ir import Graph, Node, Value

SCORES = ("sigmoid", "softmax", "hard_sigmoid")  # ops whose results are between 0 and 1
SAME_PLACES = ("clip", "cast", "identity")  # ops that keep every element where it was

Span = tuple[int, int, int]  # an axis, its first index, and the index after its last
Spans = tuple[Span, ...]  # of one axis, in order
ALL: Spans = ((-1, 0, 0),)  # every element
NONE: Spans = ()


def score_columns(graph: Graph) -> dict[str, tuple[int, tuple[int, ...]] | None]:
    """The outputs that hold scores: an axis and the indices along it, or None for all elements."""
    made: dict[str, tuple[int, tuple[int, ...]] | None] = {}
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        spans = _spans(v)
        if spans == ALL:
            made[name] = None
        elif spans:
            indices = [i for _, first, end in spans for i in range(first, end)]
            made[name] = (spans[0][0], tuple(indices))
    return made


def _spans(v: Value) -> Spans:
    """The elements of a value that are scores."""
    n = v.producer
    if n is None:
        return NONE
    if n.op in SCORES:
        return ALL
    read = [x for x in n.inputs if x is not None]
    if n.op in SAME_PLACES:
        return _spans(read[0])
    if n.op == "mul" and all(x.data is None and x.type.rank == v.type.rank for x in read):
        both = {_spans(x) for x in read}
        return both.pop() if len(both) == 1 else NONE
    if n.op == "concat":
        return _of_concat(n, read)
    if n.op in ("transpose", "reshape", "slice"):
        spans = _spans(read[0])
        return spans if spans in (ALL, NONE) else _moved(n, read[0], spans)
    return NONE


def _of_concat(n: Node, read: Sequence[Value]) -> Spans:
    axis = n.attrs["axis"] % n.outputs[0].type.rank
    each, start, made = [_spans(x) for x in read], 0, list[Span]()
    if len(set(each)) == 1 and (each[0] == ALL or all(s[0] != axis for s in each[0])):
        return each[0]
    for x, spans in zip(read, each, strict=True):
        end = start + x.shape[axis]
        if spans == ALL:
            made.append((axis, start, end))
        elif any(s[0] != axis for s in spans):
            return NONE  # scores along two axes at once
        else:
            made += [(axis, start + first, start + last) for _, first, last in spans]
        start = end
    return tuple(made)


def _moved(n: Node, x: Value, spans: Spans) -> Spans:
    """Spans of an operand as spans of what is moved out of it."""
    axis, to = spans[0][0], n.outputs[0].shape
    if n.op == "transpose":
        return tuple((n.attrs["perm"].index(axis), first, end) for _, first, end in spans)
    if n.op == "reshape":
        before = (math.prod(x.shape[:axis]), x.shape[axis])
        same = [b for b, size in enumerate(to) if (math.prod(to[:b]), size) == before]
        return tuple((same[0], first, end) for _, first, end in spans) if same else NONE
    ends = (n.attrs["start"][axis], n.attrs["stop"][axis], n.attrs["step"][axis])
    taken = list(range(x.shape[axis])[slice(*ends)])
    kept = [i for i, old in enumerate(taken) if any(f <= old < e for _, f, e in spans)]
    if len(kept) == len(taken):
        return ALL
    return tuple((axis, i, i + 1) for i in kept)
