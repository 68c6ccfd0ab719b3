"""Queries, keys and values that one product makes become three products.

Their channels lie behind each other, so that a head is no run of channels. Apart, heads can be
pruned like other channels.
"""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Node, Value, constant

PARTS = ("q", "k", "v")
ORDER = (2, 0, 3, 1, 4)  # [batch, tokens, 3, heads, width] to [3, batch, heads, tokens, width]


def split_projections(graph: Graph) -> int:
    """Split products of queries, keys and values in place; the number of those that were split."""
    count = 0
    for node in list(graph.nodes()):
        if node.op == "transpose" and tuple(node.attrs["perm"]) == ORDER:
            count += _split(graph, node)
    if count:
        graph.tidy()
    return count


def _split(graph: Graph, turned: Node) -> int:
    reshaped = turned.inputs[0].producer if turned.inputs[0] is not None else None
    if reshaped is None or reshaped.op != "reshape" or len(reshaped.outputs[0].uses) != 1:
        return 0
    batch, tokens, parts, heads, width = reshaped.outputs[0].shape
    found = _product(reshaped.inputs[0])
    readers = [_part(n) for n in turned.outputs[0].uses]
    if parts != len(PARTS) or found is None or any(r is None for r in readers):
        return 0
    product, bias = found
    x, w = product.inputs[:2]
    if w is None or w.data is None or w.shape[-1] != parts * heads * width or x is None:
        return 0
    made: dict[int, Value] = {}
    size = heads * width
    for reader in readers:
        assert reader is not None
        part, value = reader
        if part not in made:
            some = slice(part * size, (part + 1) * size)
            origin = f"{product.origin or product.outputs[0].name}/{PARTS[part]}"
            own = constant(np.ascontiguousarray(w.data[:, some]), f"{w.name}_{PARTS[part]}")
            y: Value = ops.matmul(x, own, origin=origin)
            if bias is not None and bias.data is not None:
                y = ops.add(y, constant(bias.data.reshape(-1)[some].copy()))
            y = ops.reshape(y, shape=(batch, tokens, heads, width))
            made[part] = ops.transpose(y, perm=(0, 2, 1, 3))
        graph.replace(value, made[part])
    return 1


def _product(v: Value | None) -> tuple[Node, Value | None] | None:
    """The matmul that makes a tensor, and the bias that is added to it."""
    node, bias = None if v is None else v.producer, None
    if node is not None and node.op == "add":
        sides = [s for s in node.inputs if s is not None]
        constants = [s for s in sides if s.data is not None]
        others = [s for s in sides if s.data is None]
        if len(constants) != 1 or constants[0].type.size != node.outputs[0].shape[-1]:
            return None
        bias, node = constants[0], others[0].producer
    if node is None or node.op != "matmul" or node.inputs[1] is None:
        return None
    alone = len(node.outputs[0].uses) == 1
    return (node, bias) if alone and node.inputs[1].type.rank == 2 else None


def _part(n: Node) -> tuple[int, Value] | None:
    """Which part of three a reader takes, and its tensor [batch, heads, tokens, width]."""
    source, out = n.inputs[0], n.outputs[0] if n.outputs else None
    if source is None or out is None:
        return None
    if n.op == "gather" and n.attrs["axis"] == 0:
        at = n.inputs[1]
        if at is None or at.data is None or at.type.rank or not 0 <= int(at.data) < len(PARTS):
            return None
        return int(at.data), out
    whole = n.op == "slice" and tuple(out.shape[1:]) == tuple(source.shape[1:])
    if not whole or out.shape[0] != 1 or len(out.uses) != 1:
        return None
    after = next(iter(out.uses))
    if after.op != "reshape" or tuple(after.outputs[0].shape) != tuple(out.shape[1:]):
        return None
    return int(n.attrs["start"][0]), after.outputs[0]
