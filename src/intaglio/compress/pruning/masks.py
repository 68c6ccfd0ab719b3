"""Zero the channels of chosen classes, so that the lossless pass removes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from intaglio.compress.pruning.groups import Channels, Group
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.passes.prune import Pruned, prune_channels
from intaglio.passes.prune.channel_mixing import CONVOLUTIONS
from intaglio.rewrite import Trace


def _skip(*_: object) -> None:
    """A trace that keeps nothing."""


def rows_of(node: Node, w: Array) -> Array:
    """The weights of a product as a view whose first axis is its output channels."""
    if node.op in ("conv", "deform_conv"):
        return w
    if node.op == "conv_transpose":
        groups = node.attrs["groups"]
        split = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        return split.swapaxes(1, 2).reshape(-1, split.shape[1], *w.shape[2:])
    return w if node.attrs.get("trans_b") else w.T


def zero_channels(axes: Mapping[Value, int], classes: Iterable[tuple[Group, int]]) -> None:
    """Set weights, biases and shifts of these classes to 0, in place: the masked model.

    `axes` are the channel axes of the tensors, as `find_coupling` returns them.
    """
    gone: dict[Value, list[Array]] = {}
    for group, i in classes:
        for v, at in group.classes[i].items():
            gone.setdefault(v, []).append(at)
    for v, parts in gone.items():
        if v.producer is not None:
            _zero(v.producer, v, axes[v], np.concatenate(parts))


def _zero(node: Node, out: Value, axis: int, at: Array) -> None:
    if node.op in (*CONVOLUTIONS, "matmul", "gemm"):
        _zero_product(node, at)
    elif node.op == "batch_norm":
        for i in (1, 2):
            _set(node, i, _zeroed(node.inputs[i], 0, at))
    elif REGISTRY[node.op].elementwise and node.op in ("add", "sub"):
        for i, v in enumerate(node.inputs):
            own = axis - (out.type.rank - v.type.rank) if v is not None else -1
            if v is not None and v.data is not None and own >= 0:
                if v.shape[own] == out.shape[axis]:
                    _set(node, i, _zeroed(v, own, at))
                elif v.data.any():
                    wide = [*v.shape]
                    wide[own] = out.shape[axis]
                    copy = Value(v.type.but(shape=tuple(wide)), v.name)
                    copy.data = np.broadcast_to(v.data, wide)
                    _set(node, i, _zeroed(copy, own, at))


def _zero_product(node: Node, at: Array) -> None:
    w = node.inputs[1]
    assert w is not None
    assert w.data is not None
    data = w.data.copy()
    if node.op == "conv_transpose":
        many = w.shape[1]
        few = w.shape[0] // node.attrs["groups"]
        for c in at:
            g, j = divmod(int(c), many)
            data[g * few : (g + 1) * few, j] = 0
    else:
        rows_of(node, data)[at] = 0
    _set(node, 1, constant(data, w.name))
    place = CONVOLUTIONS.get(node.op, 2)
    bias = node.inputs[place] if len(node.inputs) > place else None
    if bias is not None and bias.data is not None and bias.type.rank:
        _set(node, place, _zeroed(bias, bias.type.rank - 1, at))


def _zeroed(v: Value | None, axis: int, at: Array) -> Value | None:
    if v is None or v.data is None:
        return v
    data = v.data.copy()
    if v.shape[axis] == 1 and len(at) and int(at.max()) > 0:
        return v
    np.moveaxis(data, axis, 0)[at] = 0
    return constant(data, v.name)


def _set(node: Node, i: int, v: Value | None) -> None:
    if v is not node.inputs[i]:
        Graph.set_input(node, i, v)


def cut(graph: Graph) -> Pruned | None:
    """Remove channels that are zero everywhere, in place."""
    trace: Trace = _skip
    return prune_channels(graph, trace)


__all__ = ["Channels", "cut", "rows_of", "zero_channels"]
