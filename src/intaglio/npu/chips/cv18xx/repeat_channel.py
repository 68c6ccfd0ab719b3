"""Operands of one channel: lanes cannot read each other, so a convolution repeats the channel."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Graph, Value
from intaglio.npu.chips.cv18xx.phases import selected


def repeat_single_channels(graph: Graph) -> None:
    """Give the second operand of every sum and product as many channels as the first."""
    repeated: dict[tuple[Value, int], Value] = {}
    for node in list(graph.nodes()):
        if node.op != "npu.eltwise":
            continue
        a, b = node.inputs[:2]
        assert a is not None
        assert b is not None
        many = a.shape[1]
        if b.shape[1] == many:
            continue
        if (b, many) not in repeated:
            repeated[b, many] = selected(b, np.zeros(many, np.int64), node.origin)
        graph.set_input(node, 1, repeated[b, many])
