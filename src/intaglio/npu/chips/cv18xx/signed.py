"""Results of u8 as i8: the TPU rounds sums to i8 only.

Every number of such a map is 128 smaller, and so is its zero point. Inputs stay as they are, but
for the second operand of a product of two inputs of u8, which a table changes.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir import Graph, Value, constant
from intaglio.npu.chips.shifted_maps import copies, shifted
from intaglio.npu.ops import lut, matmul

BYTES = 256


def as_signed(graph: Graph, keep_outputs: bool = False) -> Graph:
    """The same network without results of u8; the zero points of its outputs are 128 smaller.

    With `keep_outputs`, tables make u8 of the outputs.
    """
    _one_signed_operand(graph)
    moved: dict[Value, Value] = {}
    for node in list(graph.nodes()):
        for i, v in enumerate(node.inputs):
            if v is None or v.dtype != "u8" or v not in graph.inputs or not copies(node):
                continue
            if v not in moved:  # a move has operands and a result of one type
                table = constant(np.arange(BYTES, dtype=np.uint8))
                moved[v] = lut.node(v, table, base=0, origin=node.origin).outputs[0]
            graph.set_input(node, i, moved[v])
    made = {v for n in graph.nodes() for v in n.outputs if v.dtype == "u8"}
    if not made:
        return graph
    types = [v.dtype for v in graph.outputs]
    result = shifted(graph, made, "i8")
    for i, v in enumerate(result.outputs):
        if keep_outputs and types[i] != v.dtype:
            table = constant(np.arange(BYTES, dtype=np.uint8))
            result.outputs[i] = lut.node(v, table, base=-(BYTES // 2)).outputs[0]
    return Graph(result.inputs, result.outputs, result.output_names, result.name)


def _one_signed_operand(graph: Graph) -> None:
    """Products of matrices read at least one map of i8, as their result is one."""
    table = np.arange(-(BYTES // 2), BYTES // 2).astype(np.int8)
    moved: dict[Value, Value] = {}
    for node in [n for n in graph.nodes() if n.op == "npu.matmul"]:
        a, b = node.inputs[:2]
        if b is None or any(v not in graph.inputs or v.dtype != "u8" for v in (a, b)):
            continue
        if b not in moved:
            moved[b] = lut.node(b, constant(table), base=0, origin=node.origin).outputs[0]
        attrs = {**node.attrs, "b_zero": node.attrs["b_zero"] - BYTES // 2}
        made = matmul.node(a, moved[b], origin=node.origin, **attrs).outputs[0]
        made.name = node.outputs[0].name
        graph.replace(node.outputs[0], made)
