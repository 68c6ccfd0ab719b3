"""Splits layers by channels until all maps fit into the KPU's RAM.

An expansion and the depthwise convolutions after it make as many channels at a time as fit. The
results lie side by side, so the layer that reads them does not notice.
"""

from __future__ import annotations

from intaglio import ops as neutral
from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.chips.k210 import ops
from intaglio.npu.chips.k210.arrange import ON_KPU, Arrangement, TooLarge, arrange, separate

PARTS = (2, 3, 4, 6, 8, 12, 16, 32)


def fitted(graph: Graph) -> Arrangement:
    """The arrangement of a graph, whose layers are split where that is necessary."""
    separate(graph)
    while True:
        try:
            return arrange(graph)
        except TooLarge as problem:
            if not _split_around(graph, problem.node):
                raise


def _split_around(graph: Graph, node: Node) -> bool:
    """Split the depthwise layer at or beside a step that is too large; False: there is none."""
    near = [node, *(v.producer for v in node.inputs if v is not None)]
    near += [r for v in node.outputs for r in v.uses]
    for one in near:
        chain = _chain(one)
        if not chain:
            continue
        last = chain[-1]
        for count in PARTS:
            if last.outputs[0].shape[1] % count:
                continue
            copy = graph.copy()
            at = list(graph.nodes()).index(last)
            _split(copy, list(copy.nodes())[at], count)
            separate(copy)
            try:
                arrange(copy)
            except TooLarge as problem:
                if problem.node.origin in {n.origin for n in chain}:
                    continue
            _split(graph, last, count)
            separate(graph)
            return True
    return False


def _chain(node: Node | None) -> list[Node]:
    """An expansion and the depthwise layers after it, which alone read it; empty: there is none."""
    if node is None or not _is_depthwise(node):
        return []
    found = [node]
    while (after := _only_reader(found[-1])) is not None and _is_depthwise(after):
        found.append(after)
    while _is_depthwise(found[0]):
        x = found[0].inputs[0]
        before = None if x is None else x.producer
        if before is None or before.op != ON_KPU or _only_reader(before) is None:
            return []
        found.insert(0, before)
    return found


def _is_depthwise(node: Node) -> bool:
    return node.op == ON_KPU and bool(node.attrs["depthwise"])


def _only_reader(node: Node) -> Node | None:
    readers = list(node.outputs[0].uses)
    return readers[0] if len(readers) == 1 else None


def _split(graph: Graph, last: Node, count: int) -> None:
    """Compute the chain that ends in `last` in parts of its channels."""
    chain = _chain(last)
    share = last.outputs[0].shape[1] // count
    made = []
    for i in range(count):
        chosen = slice(i * share, (i + 1) * share)
        x = chain[0].inputs[0]
        for node in chain:
            x = _part(node, x, chosen)
        made.append(x)
    joined = neutral.concat(*made, axis=1)
    graph.replace(last.outputs[0], joined)
    graph.tidy()


def _part(node: Node, x: Value | None, chosen: slice) -> Value:
    """Some output channels of a layer."""
    _, w, norm, curve = node.inputs
    assert w is not None
    assert norm is not None
    assert w.data is not None
    assert norm.data is not None
    given = constant(w.data[chosen]), constant(norm.data[:, chosen]), curve
    return ops.conv.node(x, *given, **node.attrs, origin=node.origin).outputs[0]
