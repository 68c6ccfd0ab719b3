"""Count multiply-accumulates, without the taps on zero padding."""

from __future__ import annotations

import math

from intaglio.ir import Graph, Node
from intaglio.ops.complexity import macs


def count(graph: Graph) -> int:
    """Multiply-accumulates of a graph as it is loaded."""
    return sum(_conv(n) if n.op == "conv" else macs(n) for n in graph.nodes())


def _conv(node: Node) -> int:
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None
    assert w is not None
    rank, out = len(w.shape) - 2, node.outputs[0].shape
    taps = [
        _taps(x.shape[2 + i], w.shape[2 + i], out[2 + i], *(node.attrs[a][i] for a in AXIS))
        for i in range(rank)
    ]
    return math.prod(out[:2]) * w.shape[1] * math.prod(taps)


AXIS = ("stride", "pad", "dilation")


def _taps(size: int, kernel: int, windows: int, stride: int, pad: int, dilation: int) -> int:
    """Along one axis, how many taps of all windows lie on the tensor."""
    first = range(-pad, -pad + windows * stride, stride)
    return sum(0 <= start + k * dilation < size for start in first for k in range(kernel))
