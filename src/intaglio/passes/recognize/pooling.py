"""Reductions over whole images, however they are taken apart."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.permute import axis_groups
from intaglio.rewrite import P, no, rule

x, y, c = P["x y c!"]
REDUCE = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")


@rule(P.op(REDUCE, P.op(REDUCE, x) @ "inner"))
def reduce_of_reduce(x: Value, inner: Node, node: Node) -> Any:
    """the mean over one axis, then over another, is the mean over both; sums and so on alike"""
    first, then = inner.attrs["axes"], node.attrs["axes"]
    if inner.op != node.op or x.type.dynamic:
        return None
    if inner.attrs["keepdims"] != node.attrs["keepdims"]:
        return no("one of the two keeps its axes, the other does not")
    left = [a for a in range(x.type.rank) if node.attrs["keepdims"] or a not in first]
    axes = tuple(sorted({*first, *(left[a] for a in then)}))
    return REGISTRY[node.op](x, axes=axes, keepdims=node.attrs["keepdims"])


@rule(P.op(REDUCE, P.reshape(x) @ "flat"))
def reduce_of_flattened(x: Value, flat: Node, node: Node) -> Any:
    """a reduction over axes that a reshape has joined is one over the axes themselves"""
    out, axes = flat.outputs[0], set(node.attrs["axes"])
    if x.type.dynamic or not x.type.size:
        return None
    gone: list[int] = []
    for ins, outs in axis_groups(x.shape, out.shape):
        if axes.isdisjoint(outs):
            continue
        if not axes.issuperset(outs):
            return no(f"only a part of the axes {ins} of {x.type} is reduced")
        gone += ins
    if not gone:
        return None
    made, shape = REGISTRY[node.op](x, axes=tuple(gone), keepdims=False), node.outputs[0].shape
    return made if made.shape == shape else ops.reshape(made, shape=shape)


@rule(P.reshape(P.op(REDUCE, x) @ "inner"))
def reshape_of_reduce(x: Value, inner: Node, node: Node) -> Any:
    """a reduction drops or keeps its axes by itself"""
    keep = not inner.attrs["keepdims"]
    made = REGISTRY[inner.op].infer(x, axes=inner.attrs["axes"], keepdims=keep)
    if made.shape != node.outputs[0].shape or x.type.dynamic:  # type: ignore[union-attr]
        return None
    return REGISTRY[inner.op](x, axes=inner.attrs["axes"], keepdims=keep)


@rule(P.op(("avg_pool", "max_pool"), x))
def pool_of_everything(x: Value, node: Node) -> Any:
    """a window as large as the image"""
    a = node.attrs
    if x.type.dynamic or a["kernel"] != x.shape[2:] or any(a["pad"]) or a.get("with_indices"):
        return None
    if any(d != 1 for d in a["dilation"]):
        return None
    axes = tuple(range(2, x.type.rank))
    reduce = ops.reduce_mean if node.op == "avg_pool" else ops.reduce_max
    return reduce(x, axes=axes, keepdims=True)


POOLING = [reduce_of_reduce, reduce_of_flattened, reshape_of_reduce, pool_of_everything]
