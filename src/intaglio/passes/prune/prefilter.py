"""A quick check for dead channels, so that graphs without any are not analysed.

A false positive costs the time of an analysis; a false negative loses its savings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Graph, Node, Value
from intaglio.passes.prune.channel_flow import Mask

PRODUCTS = ("conv", "conv_transpose", "deform_conv", "matmul", "gemm")


def any_dead(graph: Graph) -> bool:
    """Can any channel be constant or unread?"""
    read: dict[tuple[Value, int], Mask] = {}  # by slices and gathers along one axis
    for node in graph.nodes():
        if _makes_constants(node):
            return True
        if node.op in ("slice", "gather"):
            _note(node, read)
    return any(
        not mask.all() and all(n.op in ("slice", "gather") for n in v.uses)
        for (v, _), mask in read.items()
    )


def _makes_constants(node: Node) -> bool:
    """Are there zeros among weights or factors, or constants next to other channels?"""
    if node.op in PRODUCTS:
        w = node.inputs[1]
        return w is not None and w.data is not None and _has_dead(w.data, node.attrs)
    if node.op in ("mul", "batch_norm"):
        factors = node.inputs[:2]
        return any(v is not None and v.data is not None and not v.data.all() for v in factors)
    if node.op == "pad":
        sides = [max(p) for p in zip(node.attrs["before"], node.attrs["after"], strict=True)]
        return any(sides[1:2] if len(sides) > 3 else sides)
    return node.op == "concat" and any(v is not None and v.data is not None for v in node.inputs)


def _has_dead(w: Array, attrs: dict[str, Any]) -> bool:
    """Is an input or output channel of the weights all zero?"""
    groups = attrs.get("groups", 1)
    if w.ndim < 2 or not w.size:
        return False
    split = w.reshape(groups, -1, w.shape[1], int(np.prod(w.shape[2:])))
    for view in (split, split.swapaxes(1, 2)):
        zero = np.nonzero(view[:, :, 0, 0] == 0)  # a quick test that nearly always suffices
        if len(zero[0]) and not view[zero].any((1, 2)).all():
            return True
    return False


def _note(node: Node, read: dict[tuple[Value, int], Mask]) -> None:
    x, out = node.inputs[0], node.outputs[0]
    if x is None or x.producer is None:
        return
    at: Any = slice(None)
    if node.op == "gather":
        indices, axis = node.inputs[1], node.attrs["axis"] % x.type.rank
        if indices is not None and indices.data is not None:
            n = x.shape[axis]
            at = indices.data[(indices.data >= -n) & (indices.data < n)]
    else:
        cut = [a for a, (n, d) in enumerate(zip(x.shape, out.shape, strict=True)) if n != d]
        if len(cut) != 1:
            return
        axis = cut[0]
        at = slice(*(node.attrs[k][axis] for k in ("start", "stop", "step")))
    if axis == 1 or x.type.rank < 4:
        mask = read.setdefault((x, axis), np.zeros(x.shape[axis], bool))
        mask[at] = True
