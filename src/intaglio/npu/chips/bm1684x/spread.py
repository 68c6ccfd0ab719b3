"""Convolutions of inputs with few channels: the rows of their windows become channels.

The chip multiplies 32 or 64 channels at once, so a picture with 3 leaves most of it idle. With the
rows of a window of 7 x 7 as channels, 21 are at work, and the window has 1 x 7 taps.
"""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.ir import Graph, Node, constant
from intaglio.npu.chips.bm1684x.timing import PIXELS, RATES
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.ops.convolutions import conv
from intaglio.npu.ops.relayout import spread_rows

WORTH = 1.5  # cycles that are saved for each that the copies take


def spread_inputs(graph: Graph, chip: Variant) -> None:
    """Spread the inputs of a graph's first convolutions where that saves time."""
    for node in list(graph.nodes()):
        if node.op == "npu.conv" and node.inputs[0] in graph.inputs and _pays(node, chip):
            _spread(graph, node)


def _pays(node: Node, chip: Variant) -> bool:
    x, w, y = node.inputs[0], node.inputs[1], node.outputs[0]
    assert x is not None
    assert w is not None
    (n, c, _, wide), (_, _, kh, kw) = x.shape, w.shape
    if x.dtype not in ("i8", "u8") or w.data is None or node.attrs["dilation"][0] != 1 or kh == 1:
        return False
    at_once, rates = chip.inputs_at_once, RATES[chip.name]
    before, after = kh * kw * -(-c // at_once), kw * -(-c * kh // at_once)
    steps = n * chip.blocks(y.shape[1]) * -(-y.shape[2] * y.shape[3] // PIXELS)
    saved = steps * (before - after) / rates.tiu
    moved = n * c * kh * y.shape[2] * wide
    copies = moved / rates.within + moved / rates.read + 2 * kh * rates.start
    return saved > WORTH * copies / rates.dma


def _spread(graph: Graph, node: Node) -> None:
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None
    assert w is not None
    assert w.data is not None
    attrs = dict(node.attrs)
    top, left, _, right = attrs["pad"]
    kernel, rows = w.shape[2], node.outputs[0].shape[2]
    edge = np.full((1, 1, 1, x.shape[3]), attrs["x_zero"], dtypes.numpy_of(x.dtype))
    sizes = {"kernel": kernel, "stride": attrs["stride"][0], "pad": top, "rows": rows}
    wide = spread_rows(x, constant(edge), **sizes)
    outs, channels, _, columns = w.shape
    flat = np.ascontiguousarray(w.data.reshape(outs, channels * kernel, 1, columns))
    attrs |= {"stride": (1, attrs["stride"][1]), "pad": (0, left, 0, right)}
    made = conv(wide, constant(flat), *node.inputs[2:], **attrs)
    made.name = node.outputs[0].name
    graph.replace(node.outputs[0], made)
