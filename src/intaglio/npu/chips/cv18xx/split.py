"""Wide maps whose mean does not fit in local memory: the convolution before it, in parts.

A mean reads every row of its map. If all channels together are too large, the convolution that
makes the map and the mean are computed for some of the channels after the other.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.ops import concat
from intaglio.targets.chip import Chip

SHARE = 0.6  # of local memory that a map and its mean may take


def split_wide_means(graph: Graph, chip: Chip) -> None:
    """Split convolutions whose results are read by a mean that needs too much memory."""
    for node in list(graph.nodes()):
        x = node.inputs[0]
        if node.op != "npu.depthwise" or x is None or x.producer is None:
            continue
        maker, parts = x.producer, _parts(node, x, chip)
        alone = maker.op == "npu.conv" and set(x.uses) == {node}
        if parts > 1 and alone:
            graph.replace(node.outputs[0], _split(maker, node, parts, chip.c2["i8"]))


def _parts(node: Node, x: Value, chip: Chip) -> int:
    """How many parts the channels of a mean need; 1 for windows of a part of the map."""
    if node.outputs[0].shape[2:] != (1, 1):
        return 1
    lanes = chip.c2["i8"]
    rows = -(-x.shape[2] * x.shape[3] * lanes // chip.align) * chip.align
    need = -(-x.shape[1] // lanes) * (rows + chip.align)
    return int(-(-need // (chip.sram * SHARE)))


def _split(conv: Node, mean: Node, parts: int, lanes: int) -> Value:
    """The mean of a convolution's result, `parts` times some of the channels."""
    channels = conv.outputs[0].shape[1]
    step = -(-channels // parts // lanes) * lanes
    made = []
    for first in range(0, channels, step):
        some = slice(first, first + step)
        y = _channels(conv, some, conv.inputs[0])
        made.append(_channels(mean, some, y))
    result = concat.node(*made, origin=mean.origin).outputs[0]
    result.name = mean.outputs[0].name
    return result


def _channels(node: Node, some: slice, x: Value | None) -> Value:
    """Some output channels of a product."""
    constants = []
    for v in node.inputs[1:4]:
        assert v is not None
        assert v.data is not None
        constants.append(constant(np.ascontiguousarray(v.data[some])))
    old = node.outputs[0].type
    count = len(range(old.shape[1])[some])
    shape = (old.shape[0], count, *old.shape[2:])
    given = [x, *constants, *node.inputs[4:]]
    return Node(node.op, given, node.attrs, [type(old)(old.dtype, shape)], node.origin).outputs[0]
