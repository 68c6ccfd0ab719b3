"""Store maps whose zero point is -128 as unsigned bytes: then their zero point is 0.

The chip rounds to bytes with zero point 0 by one command; other zero points take two, and more
memory. Results of ReLU have zero point -128 in i8. As u8, every number of the map is 128 larger,
and so are the zero points and bounds of all ops that make or read it: real values stay the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.npu.ops.relayout import RELAYOUTS
from intaglio.npu.weight_packing import TABLE_INPUT
from intaglio.ops.registry import REGISTRY

OFFSET = 128
MOVES = ("npu.concat", "npu.slice", "npu.resize", *RELAYOUTS)
# attributes that hold the zero point of an input, by op and the input's index
ZEROS = {
    ("npu.conv", 0): "x_zero",
    ("npu.depthwise", 0): "x_zero",
    ("npu.conv", 4): "r_zero",
    ("npu.depthwise", 4): "r_zero",
    ("npu.pool", 0): "x_zero",
    ("npu.eltwise", 0): "a_zero",
    ("npu.eltwise", 1): "b_zero",
    ("npu.matmul", 0): "a_zero",
    ("npu.matmul", 1): "b_zero",
    ("npu.lut", 0): "base",
    ("npu.dequantize", 0): "x_zero",
}


def as_unsigned(graph: Graph) -> Graph:
    """The same network with u8 maps where that makes zero points 0; ports keep their type."""
    flipped = _chosen(graph)
    new: dict[Value, Value] = {v: Value(v.type, v.name) for v in graph.inputs}
    for node in graph.nodes():
        given = [None if v is None else new.get(v, v) for v in node.inputs]
        attrs, table = _attributes(node, flipped)
        if table is not None:
            given[TABLE_INPUT[node.op.removeprefix("npu.")]] = constant(table)
        made = REGISTRY[node.op].node(*given, origin=node.origin, **attrs)
        new |= dict(zip(node.outputs, made.outputs, strict=True))
        for old, now in zip(node.outputs, made.outputs, strict=True):
            now.name = old.name
    inputs, outputs = ([new[v] for v in ports] for ports in (graph.inputs, graph.outputs))
    return Graph(inputs, outputs, list(graph.output_names), graph.name)


def _copies(node: Node) -> bool:
    """Whether a node's result has the numbers of its operands."""
    return node.op in MOVES or (node.op == "npu.pool" and node.attrs["kind"] == "max")


def _chosen(graph: Graph) -> set[Value]:
    """The maps to store as u8: sets that share their numbers, where more zeros become 0."""
    leader: dict[Value, Value] = {}

    def find(v: Value) -> Value:
        while leader.setdefault(v, v) is not v:
            v = leader[v]
        return v

    nodes = list(graph.nodes())
    for node in nodes:
        if _copies(node):
            for v in node.inputs:
                if v is not None:
                    leader[find(v)] = find(node.outputs[0])
    gain: dict[Value, int] = {}
    for node in nodes:
        out = node.outputs[0]
        if "y_zero" in node.attrs and not _copies(node) and _table(node) is None:
            change = {-OFFSET: 1, 0: -1}.get(node.attrs["y_zero"], 0)
            gain[find(out)] = gain.get(find(out), 0) + change
    ports = {find(v) for v in (*graph.inputs, *graph.outputs)}
    values = {v for n in nodes for v in n.outputs}
    mixed = {find(v) for v in values if v.dtype != "i8"}
    fixed = {find(n.outputs[0]) for n in nodes if n.op == "npu.constant"}
    kept = ports | mixed | fixed
    return {v for v in values if find(v) not in kept and gain.get(find(v), 0) > 0}


def _table(node: Node) -> Array | None:
    index = TABLE_INPUT.get(node.op.removeprefix("npu."))
    table = node.inputs[index] if index is not None else None
    return None if table is None else table.data


def _attributes(node: Node, flipped: set[Value]) -> tuple[dict[str, Any], Array | None]:
    """The attributes of a node, and its table if that changes."""
    attrs, table = dict(node.attrs), None
    for i, v in enumerate(node.inputs):
        name = ZEROS.get((node.op, i))
        if v in flipped and name is not None:
            attrs[name] += OFFSET
    if node.outputs[0] not in flipped:
        return attrs, table
    entries = _table(node)
    if entries is not None:
        table = (entries.astype(np.int32) + OFFSET).astype(np.uint8)
        if "dtype" in attrs:
            attrs["dtype"] = "u8"
        return attrs, table
    if "dtype" in attrs:
        attrs["dtype"] = "u8"
    for name in ("y_zero", "low", "high"):
        if name in attrs and not (name == "y_zero" and _copies(node)):
            attrs[name] += OFFSET
    return attrs, table
