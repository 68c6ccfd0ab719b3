"""Operands of one channel: lanes cannot read each other, so a convolution repeats the channel."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.ops import conv


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
            repeated[b, many] = _repeated(b, many, node)
        graph.set_input(node, 1, repeated[b, many])


def _repeated(x: Value, many: int, node: Node) -> Value:
    """Weights of 1: the same numbers in `many` channels."""
    low, high = dtypes.limits(x.dtype)
    made = conv.node(
        x,
        constant(np.ones((many, 1, 1, 1), np.int8)),
        constant(np.ones(many, np.float32)),
        constant(np.zeros(many, np.int32)),
        stride=(1, 1),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        x_zero=0,
        low=low,
        high=high,
        dtype=x.dtype,
        origin=node.origin,
    )
    return made.outputs[0]
