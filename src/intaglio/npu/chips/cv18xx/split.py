"""Layers whose channels together do not fit in local memory: some channels after the other.

A mean reads every row of its map. If all channels together are too large, the convolution that
makes the map and the mean are computed in parts. Pools, depthwise convolutions, sums, products and
tables need one row of their result, and the rows that it is made of.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.ops import concat, slice_
from intaglio.targets.chip import Chip

SHARE = 0.6  # of local memory that a map and its mean may take
ROW_SHARE = 0.8  # the same of the operands of one row of a result; the rest is for constants
BY_CHANNEL = ("npu.pool", "npu.depthwise", "npu.eltwise", "npu.lut")
WINDOWS = ("npu.pool", "npu.depthwise")
PLANES = {"add": 1, "mul": 4}  # of temporary results, of the size of the result


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


# ---- layers that compute each channel alone ------------------------------------------------------
def split_wide_layers(graph: Graph, chip: Chip) -> None:
    """Split layers of which not even one row fits in local memory."""
    lanes = chip.c2["i8"]
    for node in list(graph.nodes()):
        y = node.outputs[0]
        if node.op not in BY_CHANNEL or (node.op == "npu.depthwise" and node.inputs[4] is not None):
            continue
        parts = -(-row_bytes(node, chip, y.shape[1]) // int(chip.sram * ROW_SHARE))
        step = -(-y.shape[1] // parts // lanes) * lanes
        if parts < 2 or step >= y.shape[1]:
            continue
        firsts = range(0, y.shape[1], step)
        made = [_some(node, k, min(step, y.shape[1] - k)) for k in firsts]
        result = concat.node(*made, origin=node.origin).outputs[0]
        result.name = y.name
        graph.replace(y, result)


def row_bytes(node: Node, chip: Chip, channels: int) -> int:
    """The local memory that one row of so many channels of a result takes, with its operands."""
    y, a = node.outputs[0], node.attrs
    need = _bytes(y, 1, channels, chip) * (1 + PLANES.get(a.get("kind", ""), 0))
    for x in node.inputs[: 2 if node.op == "npu.eltwise" else 1]:
        assert x is not None
        rows = 1
        if node.op in WINDOWS:
            kernel = a["kernel"] if "kernel" in a else node.inputs[1].shape[2:]  # type: ignore[union-attr]
            rows = min(x.shape[2], (kernel[0] - 1) * a["dilation"][0] + 1)
        need += _bytes(x, rows, min(channels, x.shape[1]), chip)
    return need


def _bytes(v: Value, rows: int, channels: int, chip: Chip) -> int:
    lanes = chip.c2["i8"]
    plane = -(-rows * v.shape[3] * lanes // chip.align) * chip.align
    return -(-channels // lanes) * plane


def _some(node: Node, first: int, count: int) -> Value:
    """Some channels of a layer's result."""
    old = node.outputs[0].type

    def part(v: Value | None) -> Value | None:
        if v is None or v.data is not None or v.shape[1] != old.shape[1]:
            return v
        return slice_.node(v, first=first, count=count, origin=node.origin).outputs[0]

    maps = 2 if node.op == "npu.eltwise" else 1
    given = [part(v) for v in node.inputs[:maps]]
    if node.op == "npu.depthwise":
        return _channels(node, slice(first, first + count), given[0])
    made = type(old)(old.dtype, (old.shape[0], count, *old.shape[2:]))
    return Node(node.op, [*given, *node.inputs[maps:]], node.attrs, [made], node.origin).outputs[0]
