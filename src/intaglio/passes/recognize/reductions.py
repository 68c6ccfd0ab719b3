"""Recognise reductions over several axes and global pooling."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.canonical.data_movement import joined_reductions
from intaglio.passes.permuted_ops import axis_groups
from intaglio.rewrite import P, no, rule

x, y, c = P["x y c!"]
SUMS = ("reduce_sum", "reduce_mean", "reduce_prod")  # canonical/ merges extrema
REDUCE = (*SUMS, "reduce_max", "reduce_min")


@rule(P.op(SUMS, P.op(SUMS, x) @ "inner"))
def reduce_of_reduce(x: Value, inner: Node, node: Node) -> Any:
    """Merge a mean over one axis with a mean over another; sums and products alike."""
    return joined_reductions(x, inner, node) if inner.op == node.op else None


@rule(P.op(REDUCE, P.reshape(x) @ "flat"))
def reduce_of_reshape(x: Value, flat: Node, node: Node) -> Any:
    """Reduce over the original axes instead of axes that a reshape has merged."""
    out, axes = flat.outputs[0], set(node.attrs["axes"])
    if x.type.dynamic or not x.type.size:
        return None
    gone: list[int] = []
    for ins, outs in axis_groups(x.shape, out.shape):
        if axes.isdisjoint(outs):
            continue
        if not axes.issuperset(outs):
            return no(f"only some of the axes {ins} of {x.type} are reduced")
        gone += ins
    if not gone:
        return None
    result, shape = REGISTRY[node.op](x, axes=tuple(gone), keepdims=False), node.outputs[0].shape
    return result if result.shape == shape else ops.reshape(result, shape=shape)


@rule(P.op(("avg_pool", "max_pool"), x))
def global_pool(x: Value, node: Node) -> Any:
    """Write a pooling with a window as large as the image as a reduction."""
    a = node.attrs
    if x.type.dynamic or a["kernel"] != x.shape[2:] or any(a["pad"]) or a.get("with_indices"):
        return None
    if any(d != 1 for d in a["dilation"]):
        return None
    axes = tuple(range(2, x.type.rank))
    reduce = ops.reduce_mean if node.op == "avg_pool" else ops.reduce_max
    return reduce(x, axes=axes, keepdims=True)


POOLING = [reduce_of_reduce, reduce_of_reshape, global_pool]
