"""Bias correction: what rounding adds to every output of a layer on average is taken off its bias.

Inputs of layers are rarely 0 on average, so that an error of the weights shifts each output; the
shift is known from the mean of every input channel (`by_means`), or can be measured on samples,
layer after layer (`by_measuring`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.quant import columns
from intaglio.quant.observe import Observation, Progress, observe
from intaglio.quant.place import PRODUCTS, layer

STAGES = 8


def channel_axis(node: Node) -> int:
    """The axis of a product's input, and of its output, along which channels lie."""
    return 1 if node.op in ("conv", "conv_transpose") else node.outputs[0].type.rank - 1


def by_means(node: Node, stored: Array, means: Array) -> Array:
    """What to add to each output of a product whose weights became `stored`.

    `means` are those of its input's channels. Windows that reach beyond the border count as whole.
    """
    m = columns.matrix(node)
    off = columns.matrix(node, stored).astype(np.float64) - m
    groups = columns.groups_of(node)
    each = means.reshape(groups, -1)
    taps = m.shape[2] // each.shape[1]
    shift = np.einsum("gok,gk->go", off, np.repeat(each, taps, axis=1))
    if node.op == "conv_transpose":  # an output meets one tap in every stride
        kernel = math.prod(node.inputs[1].shape[2:])  # type: ignore[union-attr]
        shift = shift.reshape(-1, kernel).sum(1) / math.prod(node.attrs["stride"])
    return -np.asarray(shift).ravel()


def bias_of(node: Node) -> tuple[Node, int] | None:
    """The node and operand that hold a product's bias; None where there is no place for one."""
    if node.op in ("conv", "conv_transpose"):
        return node, 2
    if node.op == "gemm":
        return (node, 2) if _fits(node.inputs[2] if len(node.inputs) > 2 else None, node) else None
    reader = next(iter(node.outputs[0].uses), None)
    if reader is None or reader.op != "add" or len(node.outputs[0].uses) != 1:
        return None
    at = 1 if reader.inputs[0] is node.outputs[0] else 0
    bias = reader.inputs[at]
    return (reader, at) if bias is not None and _fits(bias, node) else None


def _fits(bias: Value | None, node: Node) -> bool:
    """Has it one constant for each output (or nothing at all)?"""
    if bias is None:
        return True
    return bias.data is not None and bias.type.size == node.outputs[0].shape[-1] == bias.shape[-1]


def shift_bias(node: Node, by: Array) -> bool:
    """Add to a product's bias, in place; False where it has no place for one."""
    place = bias_of(node)
    if place is None:
        return False
    holder, at = place
    while len(holder.inputs) <= at:
        holder.inputs.append(None)
    old = holder.inputs[at]
    new = constant(by.astype(np.float32))
    if old is not None:
        assert old.data is not None
        new = constant((old.data + by.reshape(old.shape)).astype(np.float32), old.name)
        if old not in [v for i, v in enumerate(holder.inputs) if i != at]:
            old.uses.pop(holder, None)
    holder.inputs[at] = new
    new.uses[holder] = None
    return True


def by_measuring(
    float_graph: Graph,
    quantized: Graph,
    samples: Sequence[Mapping[str, Array]],
    *,
    stages: int = STAGES,
    progress: Progress | None = None,
) -> int:
    """Shift the biases of `quantized`, in place, until its layers' means are the float graph's.

    Layers are taken in order and in `stages`, so that what is corrected early is measured late. How
    many biases were shifted is returned.
    """
    floats = {layer(n): n for n in float_graph.nodes() if n.op in PRODUCTS}
    nodes = [n for n in quantized.nodes() if n.op in PRODUCTS and _name(n) in floats]
    nodes = [n for n in nodes if bias_of(n) is not None]
    if not nodes:
        return 0
    exact = _means(float_graph, [floats[_name(n)] for n in nodes], samples)
    size = -(-len(nodes) // stages)
    for i in range(0, len(nodes), size):
        if progress:
            progress("correcting biases", i // size + 1, -(-len(nodes) // size))
        some = nodes[i : i + size]
        found = _means(quantized, some, samples)
        for n in some:
            own = exact[_name(n)] - found[_name(n)]
            shift_bias(n, own - _passed_on(n, some, floats, exact, found))
    return len(nodes)


def _passed_on(
    node: Node,
    stage: Sequence[Node],
    floats: Mapping[str, Node],
    exact: Mapping[str, Array],
    found: Mapping[str, Array],
) -> Array | float:
    """The share of a shift that a layer of the same stage passes on, and that goes with its own."""
    made = node.inputs[0].producer if node.inputs[0] is not None else None
    while made is not None and made not in stage and len(made.inputs) and made.op != "add":
        made = made.inputs[0].producer if made.inputs[0] is not None else None
    if made is None or made not in stage or columns.groups_of(node) not in (1,):
        return 0.0
    m = columns.matrix(floats[_name(node)])
    ahead = exact[_name(made)] - found[_name(made)]
    if node.op == "conv_transpose" or m.shape[2] % len(ahead):
        return 0.0
    taps = m.shape[2] // len(ahead)
    return np.asarray(m[0].reshape(len(m[0]), -1, taps).sum(2) @ ahead) / 2  # half is rectified


def _name(node: Node) -> str:
    return layer(node).removesuffix("_exact")


def _means(
    graph: Graph, nodes: Sequence[Node], samples: Sequence[Mapping[str, Array]]
) -> dict[str, Array]:
    """The mean of every output channel of products."""
    values = {n.outputs[0]: channel_axis(n) for n in nodes}
    seen = observe(graph, list(values), samples, channels=values)
    return {_name(n): _mean(seen[n.outputs[0]]) for n in nodes}


def _mean(o: Observation) -> Array:
    assert o.channels is not None
    return o.channels.mean
