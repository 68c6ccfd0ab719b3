"""Splits layers by channels until all maps fit into the KPU's RAM.

An expansion and the depthwise convolution after it make as many channels at a time as fit. The
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
    for second in near:
        first = _expansion(second)
        if second is None or first is None:
            continue
        for count in PARTS:
            if first.outputs[0].shape[1] % count:
                continue
            copy = graph.copy()
            at = list(graph.nodes()).index(second)
            _split(copy, list(copy.nodes())[at], count)
            separate(copy)
            try:
                arrange(copy)
            except TooLarge as problem:
                if problem.node.origin in (first.origin, second.origin):
                    continue
            _split(graph, second, count)
            separate(graph)
            return True
    return False


def _expansion(node: Node | None) -> Node | None:
    """The convolution whose result only this depthwise layer reads."""
    if node is None or node.op != ON_KPU or not node.attrs["depthwise"]:
        return None
    x = node.inputs[0]
    first = None if x is None else x.producer
    if first is None or first.op != ON_KPU or len(first.outputs[0].uses) != 1:
        return None
    return first


def _split(graph: Graph, second: Node, count: int) -> None:
    first = _expansion(second)
    assert first is not None
    share = first.outputs[0].shape[1] // count
    made = []
    for i in range(count):
        chosen = slice(i * share, (i + 1) * share)
        x = first.inputs[0]
        for node in (first, second):
            x = _part(node, x, chosen)
        made.append(x)
    joined = neutral.concat(*made, axis=1)
    graph.replace(second.outputs[0], joined)
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
