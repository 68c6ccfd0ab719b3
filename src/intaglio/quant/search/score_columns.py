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
    results: dict[str, tuple[int, tuple[int, ...]] | None] = {}
    every = _spans(graph)
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        spans = every.get(v, NONE)
        if spans == ALL:
            results[name] = None
        elif spans:
            indices = [i for _, first, end in spans for i in range(first, end)]
            results[name] = (spans[0][0], tuple(indices))
    return results


def _spans(graph: Graph) -> dict[Value, Spans]:
    """The elements of every value that are scores."""
    found: dict[Value, Spans] = {}
    for node in graph.nodes():
        read = [x for x in node.inputs if x is not None]
        spans = _of_node(node, read, [found.get(x, NONE) for x in read])
        found.update(dict.fromkeys(node.outputs, spans))
    return found


def _of_node(n: Node, read: Sequence[Value], each: Sequence[Spans]) -> Spans:
    """The elements of a node's results that are scores, given those of its operands."""
    if n.op in SCORES:
        return ALL
    if n.op in SAME_PLACES:
        return each[0]
    rank = n.outputs[0].type.rank if n.outputs else 0
    if n.op == "mul" and all(x.data is None and x.type.rank == rank for x in read):
        return each[0] if len(set(each)) == 1 else NONE
    if n.op == "concat":
        return _of_concat(n, read, each)
    if n.op in ("transpose", "reshape", "slice"):
        return each[0] if each[0] in (ALL, NONE) else _moved(n, read[0], each[0])
    return NONE


def _of_concat(n: Node, read: Sequence[Value], each: Sequence[Spans]) -> Spans:
    axis = n.attrs["axis"] % n.outputs[0].type.rank
    start, result = 0, list[Span]()
    if len(set(each)) == 1 and (each[0] == ALL or all(s[0] != axis for s in each[0])):
        return each[0]
    for x, spans in zip(read, each, strict=True):
        end = start + x.shape[axis]
        if spans == ALL:
            result.append((axis, start, end))
        elif any(s[0] != axis for s in spans):
            return NONE  # scores along two axes at once
        else:
            result += [(axis, start + first, start + last) for _, first, last in spans]
        start = end
    return tuple(result)


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
