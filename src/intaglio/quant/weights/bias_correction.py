"""Bias correction: subtract the mean error that rounded weights cause from the bias.

A layer's inputs rarely have mean 0, so weight errors shift the mean of each output. The shift
follows from the mean of every input channel.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.quant.weights import im2col

PIECE = 1 << 16  # weight errors at a time: they stay in the cache


def channel_axis(node: Node) -> int:
    """The channel axis of a product's input and output."""
    return 1 if node.op in ("conv", "conv_transpose") else node.outputs[0].type.rank - 1


def correction_from_means(node: Node, stored: Array, means: Array) -> Array:
    """What to add to the bias of each output, for weights that became `stored`.

    `means` are those of the input's channels. Padding at the border is ignored.
    """
    exact, rounded = im2col.matrix(node), im2col.matrix(node, stored)
    groups, outputs, deep = exact.shape
    each = means.reshape(groups, -1)
    spread = np.repeat(each, deep // each.shape[1], axis=1)
    shift = np.empty((groups, outputs))
    some = max(PIECE // (groups * deep), 1)
    for i in range(0, outputs, some):
        off = rounded[:, i : i + some].astype(np.float64) - exact[:, i : i + some]
        shift[:, i : i + some] = np.einsum("gok,gk->go", off, spread)
    if node.op == "conv_transpose":  # each output uses one tap per stride
        kernel = math.prod(node.inputs[1].shape[2:])  # type: ignore[union-attr]
        shift = shift.reshape(-1, kernel).sum(1) / math.prod(node.attrs["stride"])
    return -np.asarray(shift).ravel()


def bias_of(node: Node) -> tuple[Node, int] | None:
    """The node and input index of a product's bias; None if it cannot have one."""
    if node.op in ("conv", "conv_transpose"):
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        return None if bias is not None and bias.data is None else (node, 2)
    if node.op == "gemm":
        return (node, 2) if _fits(node.inputs[2] if len(node.inputs) > 2 else None, node) else None
    reader = next(iter(node.outputs[0].uses), None)
    if reader is None or reader.op != "add" or len(node.outputs[0].uses) != 1:
        return None
    at = 1 if reader.inputs[0] is node.outputs[0] else 0
    bias = reader.inputs[at]
    return (reader, at) if bias is not None and _fits(bias, node) else None


def _fits(bias: Value | None, node: Node) -> bool:
    """Is the bias absent, or one constant for each output?"""
    if bias is None:
        return True
    return bias.data is not None and bias.type.size == node.outputs[0].shape[-1] == bias.shape[-1]


def shift_bias(node: Node, by: Array) -> bool:
    """Add to a product's bias, in place; False if it cannot have one."""
    place = bias_of(node)
    if place is None:
        return False
    holder, at = place
    old = holder.inputs[at] if len(holder.inputs) > at else None
    new = constant(by.astype(np.float32))
    if old is not None:
        assert old.data is not None
        new = constant((old.data + by.reshape(old.shape)).astype(np.float32), old.name)
    set_bias(holder, at, new)
    return True


def set_bias(holder: Node, at: int, new: Value) -> None:
    """Set the bias at the place that `bias_of` found."""
    Graph.set_input(holder, at, new)
