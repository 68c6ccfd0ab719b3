"""Move the scale of a tensor's channels into the weights on either side of it.

A layer's output is divided by a factor per channel, and the weights that read it are multiplied by
the same factor. The model computes the same, but the channels of the tensor get similar magnitudes,
which suit one scale. `equalize` does this between convolutions, `smooth` after norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array, Graph, Node, Value, constant

HOMOGENEOUS = ("relu", "leaky_relu", "max_pool")  # f(s x) = s f(x) for s > 0, channel by channel


@dataclass(frozen=True)
class Link:
    """A tensor whose channels can be scaled: its producer, its readers, its channel axis."""

    tensor: Value
    maker: Node
    readers: tuple[Node, ...]
    axis: int

    @property
    def channels(self) -> int:
        return self.tensor.shape[self.axis]


def maker_takes(node: Node, axis: int) -> bool:
    """Can this node's constants absorb a factor per output channel?"""
    w = node.inputs[1] if len(node.inputs) > 1 else None
    if w is None or w.data is None:
        return False
    if node.op in ("layer_norm", "rms_norm"):
        return axis == node.outputs[0].type.rank - 1 and w.shape == node.outputs[0].shape[-1:]
    if node.op == "conv":
        return axis == 1
    return False


def reader_takes(node: Node, tensor: Value, axis: int) -> bool:
    """Can this node's weights absorb a factor per channel of the tensor?"""
    w = node.inputs[1] if len(node.inputs) > 1 else None
    if w is None or w.data is None or node.inputs[0] is not tensor or tensor in node.inputs[1:]:
        return False
    if node.op == "conv":
        return axis == 1
    return node.op == "matmul" and w.type.rank == 2 and axis == tensor.type.rank - 1


def input_sizes(link: Link) -> Array:
    """The largest weight magnitude for each channel, over all readers."""
    sizes = [_by_input(n, np.abs(_data(n.inputs[1])), link.channels) for n in link.readers]
    return np.asarray(np.max(sizes, 0))


def _by_input(node: Node, w: Array, channels: int) -> Array:
    """The largest weight of one reader for each channel."""
    if node.op == "matmul":
        return np.asarray(w.max(1))
    groups = int(node.attrs["groups"])
    each = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    return np.asarray(each.max((1, 3)).reshape(channels))


def rescale(graph: Graph, link: Link, factors: Array) -> None:
    """Divide the tensor's channels by `factors`, and multiply the weights that read them."""
    f = factors.astype(np.float32)
    maker = link.maker
    inverse = (1 / f).astype(np.float32)
    if maker.op == "conv":
        w = _data(maker.inputs[1])
        _set(maker, 1, w * inverse.reshape(-1, *[1] * (w.ndim - 1)))
        if len(maker.inputs) > 2 and maker.inputs[2] is not None:
            _set(maker, 2, _data(maker.inputs[2]) * inverse)
    else:
        for i in range(1, len(maker.inputs)):
            if maker.inputs[i] is not None:
                _set(maker, i, _data(maker.inputs[i]) * inverse)
    for n in link.readers:
        w = _data(n.inputs[1])
        if n.op == "matmul":
            _set(n, 1, w * f[:, None])
            continue
        groups = int(n.attrs["groups"])
        own = np.repeat(f.reshape(groups, 1, -1), w.shape[0] // groups, 1).reshape(w.shape[:2])
        _set(n, 1, w * own.reshape(*w.shape[:2], *[1] * (w.ndim - 2)))


def _data(v: Value | None) -> Array:
    assert v is not None
    assert v.data is not None
    return v.data


def _set(node: Node, at: int, data: Array) -> None:
    """Replace a constant input of this node alone; other readers keep the old one."""
    old, new = node.inputs[at], constant(data.astype(np.float32))
    assert old is not None
    new.name = old.name if len(old.uses) == 1 else f"{old.name}_of_{node.outputs[0].name}"
    Graph.set_input(node, at, new)


def factors_of(activations: Array, weights: Array, alpha: float) -> Array:
    """Divisors of the channels: activations ** alpha / weights ** (1 - alpha), normalised."""
    a, w = np.maximum(activations, 1e-6 * activations.max()), np.maximum(weights, 1e-30)
    if not activations.max() > 0:
        return np.ones_like(a)
    f = a**alpha / w ** (1 - alpha)
    f /= np.exp(np.log(f).mean())  # only the ratios matter
    dead = (activations <= 0) | (weights <= 0)
    return np.where(dead, 1.0, np.clip(f, 2.0**-12, 2.0**12))


def links(graph: Graph, makers: Sequence[str]) -> list[Link]:
    """Every tensor whose channels can be scaled, produced by one of the ops `makers`, in order."""
    found = []
    for node in graph.nodes():
        if node.op not in makers:
            continue
        axis = 1 if node.op == "conv" else node.outputs[0].type.rank - 1
        if not maker_takes(node, axis):
            continue
        tensor = node.outputs[0]
        while len(tensor.uses) == 1 and (n := next(iter(tensor.uses))).op in HOMOGENEOUS:
            if n.op == "max_pool" and axis != 1:
                break
            tensor = n.outputs[0]
        readers = tuple(tensor.uses)
        if readers and all(reader_takes(n, tensor, axis) for n in readers):
            found.append(Link(tensor, node, readers, axis))
    return found
