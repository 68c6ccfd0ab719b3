"""Layers as matrix products (im2col): the weight matrix, and rows of the layer's input.

A convolution multiplies its weights with windows of its input. Rounding and bias correction work on
such rows; a few thousand, drawn at random, are as good as all.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir import Array, Node


def groups_of(node: Node) -> int:
    """The number of groups of a convolution; 1 for other products."""
    return int(node.attrs["groups"]) if node.op in ("conv", "conv_transpose") else 1


def matrix(node: Node, w: Array | None = None) -> Array:
    """The weights as [groups, outputs of a group, inputs of a group]."""
    if w is None:
        w = node.inputs[1].data  # type: ignore[union-attr]  # a product with constant weights
    assert w is not None
    groups = groups_of(node)
    if node.op == "conv":
        return w.reshape(groups, w.shape[0] // groups, -1)
    if node.op == "conv_transpose":  # outputs are all taps around one input position
        return w.reshape(groups, w.shape[0] // groups, -1).transpose(0, 2, 1)
    turned = node.op == "gemm" and node.attrs["trans_b"]
    return (w if turned else w.T)[None]


def from_matrix(node: Node, m: Array) -> Array:
    """The inverse of `matrix`: the weights in the node's own shape."""
    shape = node.inputs[1].shape  # type: ignore[union-attr]
    if node.op == "conv":
        return m.reshape(shape)
    if node.op == "conv_transpose":
        return np.ascontiguousarray(m.transpose(0, 2, 1)).reshape(shape)
    turned = node.op == "gemm" and node.attrs["trans_b"]
    return np.ascontiguousarray(m[0] if turned else m[0].T)


def last(x: Array, node: Node) -> Array:
    """A layer's input with its channels moved last."""
    return np.moveaxis(x, 1, -1) if node.op in ("conv", "conv_transpose") else x


def _windows(node: Node, x: Array) -> Array:
    """[batch, positions..., channels, kernel...] of a convolution's input, channels last."""
    a, w = node.attrs, node.inputs[1]
    kernel = w.shape[2:]  # type: ignore[union-attr]
    n = len(kernel)
    around = [(a["pad"][i], a["pad"][n + i]) for i in range(n)]
    x = np.pad(x, [(0, 0), *around, (0, 0)])
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, a["dilation"], strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(1, n + 1)))
    places = tuple(slice(None, None, s) for s in a["stride"])
    taps = tuple(slice(None, None, d) for d in a["dilation"])
    return view[(slice(None), *places, slice(None), *taps)]


def rows(node: Node, x: Array, count: int, rng: np.random.Generator) -> Array:
    """[groups, rows, inputs]: at most `count` rows of the input (channels last), drawn by `rng`."""
    groups = groups_of(node)
    if node.op == "conv":
        view = _windows(node, x)
        n = view.ndim // 2  # batch and positions; then channels and the kernel
        places = view.shape[:n]
        some = view[np.unravel_index(_draw(math.prod(places), count, rng), places)]
    else:
        flat = x.reshape(-1, x.shape[-1])
        some = flat[_draw(len(flat), count, rng)]
    return some.reshape(len(some), groups, -1).transpose(1, 0, 2)


def _draw(total: int, count: int, rng: np.random.Generator) -> Array:
    if count >= total:
        return np.arange(total)
    return np.sort(rng.choice(total, count, replace=False))


def mean_row(node: Node, x: Array) -> Array:
    """[groups, inputs]: the mean of all rows of the input (channels last), borders included."""
    if node.op == "conv":
        view = _windows(node, x)
        axes = tuple(range(view.ndim // 2))
        mean = np.stack([view[..., *t].mean(axes) for t in np.ndindex(view.shape[len(axes) + 1 :])])
        return np.reshape(mean.T, (groups_of(node), -1))
    mean = x.reshape(-1, x.shape[-1]).mean(0)
    return np.reshape(mean, (groups_of(node), -1))
