"""Results of u8 as i8: the TPU rounds sums to i8 only.

Every number of such a map is 128 smaller, and so is its zero point. Inputs stay as they are.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir import Graph, Value, constant
from intaglio.npu.chips.shifted_maps import copies, shifted
from intaglio.npu.ops import lut

BYTES = 256


def as_signed(graph: Graph) -> Graph:
    """The same network without results of u8; the zero points of its outputs are 128 smaller."""
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
    return shifted(graph, made, "i8") if made else graph
