"""Store maps whose zero point is -128 as unsigned bytes: then their zero point is 0.

The chip rounds to bytes with zero point 0 by one command; other zero points take two, and more
memory. Results of ReLU have zero point -128 in i8.
"""

from __future__ import annotations

from intaglio.ir import Graph, Value
from intaglio.npu.chips.shifted_maps import copies, shifted, table_of

OFFSET = 128


def as_unsigned(graph: Graph) -> Graph:
    """The same network with u8 maps where that makes zero points 0; ports keep their type."""
    return shifted(graph, _chosen(graph), "u8")


def _chosen(graph: Graph) -> set[Value]:
    """The maps to store as u8: sets that share their numbers, where more zeros become 0."""
    leader: dict[Value, Value] = {}

    def find(v: Value) -> Value:
        while leader.setdefault(v, v) is not v:
            v = leader[v]
        return v

    nodes = list(graph.nodes())
    for node in nodes:
        if copies(node):
            for v in node.inputs:
                if v is not None:
                    leader[find(v)] = find(node.outputs[0])
    gain: dict[Value, int] = {}
    for node in nodes:
        out = node.outputs[0]
        if "y_zero" in node.attrs and not copies(node) and table_of(node) is None:
            change = {-OFFSET: 1, 0: -1}.get(node.attrs["y_zero"], 0)
            gain[find(out)] = gain.get(find(out), 0) + change
    ports = {find(v) for v in (*graph.inputs, *graph.outputs)}
    values = {v for n in nodes for v in n.outputs}
    mixed = {find(v) for v in values if v.dtype != "i8"}
    fixed = {find(n.outputs[0]) for n in nodes if n.op == "npu.constant"}
    kept = ports | mixed | fixed
    return {v for v in values if find(v) not in kept and gain.get(find(v), 0) > 0}
