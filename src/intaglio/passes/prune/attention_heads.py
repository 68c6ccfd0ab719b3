"""Heads of attention are channels: each is computed from its own queries, keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.ir import Node, Value
from intaglio.passes.prune.channel_flow import Axes, Flow, Kept, Known, Link

OPERANDS = 3  # queries, keys and values


class Heads(Flow):
    """Head i of the result depends on head i of queries, keys and values only."""

    def __init__(self, node: Node):
        super().__init__(node)
        self.axis = 1
        self.links = [Link(i) for i in range(OPERANDS)]
        self.stops = {i: why for i, why in self.stops.items() if i >= OPERANDS}

    def known(self, operands: Sequence[Known | None]) -> Known:
        values = operands[2]
        if values is None or not values.zero.any():
            return super().known(operands)
        return Known(values.zero, np.zeros(self.count, self.dtype))

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        return self.remake(inputs)


def heads(node: Node, axes: Axes) -> Flow:
    """The flow of an attention whose heads are separate; a blocking one of any other."""
    count = node.outputs[0].shape[1]
    operands = node.inputs[:OPERANDS]
    mask = node.inputs[OPERANDS] if len(node.inputs) > OPERANDS else None
    apart = all(v is not None and axes.get(v) == 1 and v.shape[1] == count for v in operands)
    by_head = mask is not None and mask.type.rank == 4 and mask.shape[1] != 1
    return Heads(node) if apart and not by_head and count > 1 else Flow(node)
