"""Maps stored with another zero point: i8 as u8, or u8 as i8.

Every number of such a map is 128 larger or smaller, and so are the zero points and bounds of all
ops that make or read it: real values stay the same.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.npu.ops.relayout import RELAYOUTS
from intaglio.npu.weight_packing import TABLE_INPUT
from intaglio.ops.registry import REGISTRY

MOVES = ("npu.concat", "npu.slice", "npu.resize", "npu.depth_to_space", *RELAYOUTS)
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


def shifted(graph: Graph, chosen: Set[Value], dtype: str) -> Graph:
    """The same network with the chosen maps and constants stored as `dtype`."""
    offset = {"u8": 128, "i8": -128}[dtype]
    types = {v: replace(v.type, dtype=dtype) if v in chosen else v.type for v in graph.inputs}
    new: dict[Value, Value] = {v: Value(kind, v.name) for v, kind in types.items()}
    for v in chosen:
        if v.data is not None:
            made = (v.data.astype(np.int32) + offset).astype(dtypes.numpy_of(dtype))
            new[v] = constant(made)
    for node in graph.nodes():
        given = [None if v is None else new.get(v, v) for v in node.inputs]
        attrs, table = _attributes(node, chosen, offset, dtype)
        if table is not None:
            given[TABLE_INPUT[node.op.removeprefix("npu.")]] = constant(table)
        moved = REGISTRY[node.op].node(*given, origin=node.origin, **attrs)
        new |= dict(zip(node.outputs, moved.outputs, strict=True))
        for old, now in zip(node.outputs, moved.outputs, strict=True):
            now.name = old.name
    inputs, outputs = ([new[v] for v in ports] for ports in (graph.inputs, graph.outputs))
    return Graph(inputs, outputs, list(graph.output_names), graph.name)


def copies(node: Node) -> bool:
    """Whether a node's result has the numbers of its operands."""
    return node.op in MOVES or (node.op == "npu.pool" and node.attrs["kind"] == "max")


def table_of(node: Node) -> Array | None:
    """The lookup table of a node."""
    index = TABLE_INPUT.get(node.op.removeprefix("npu."))
    table = node.inputs[index] if index is not None else None
    return None if table is None else table.data


def _attributes(
    node: Node, chosen: Set[Value], offset: int, dtype: str
) -> tuple[dict[str, Any], Array | None]:
    """The attributes of a node, and its table if that changes."""
    attrs, table = dict(node.attrs), None
    for i, v in enumerate(node.inputs):
        name = ZEROS.get((node.op, i))
        if v in chosen and name is not None:
            attrs[name] += offset
    if node.outputs[0] not in chosen:
        return attrs, table
    if "dtype" in attrs:
        attrs["dtype"] = dtype
    entries = table_of(node)
    if entries is not None:
        table = (entries.astype(np.int32) + offset).astype(dtypes.numpy_of(dtype))
        return attrs, table
    for name in ("y_zero", "low", "high"):
        if name in attrs and not (name == "y_zero" and copies(node)):
            attrs[name] += offset
    return attrs, table
