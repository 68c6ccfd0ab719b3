"""What changes nothing: nodes that give back what they were given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, no, rule

x, y, z, c = P["x y z c!"]


@rule(P.reshape(x))
def reshape_to_itself(x: Value, node: Node) -> Any:
    """reshape to the shape that the tensor has"""
    return x if x.type == node.outputs[0].type else None


@rule(P.expand(x))
def expand_to_itself(x: Value, node: Node) -> Any:
    """expand to the shape that the tensor has"""
    return x if x.type == node.outputs[0].type else None


@rule(P.cast(x))
def cast_to_itself(x: Value, node: Node) -> Any:
    """cast to the element type that the tensor has"""
    if x.dtype != node.attrs["dtype"]:
        return None
    if x.dtype == "f8e5m2" and node.attrs["saturate"]:
        return no("a saturating cast makes infinities finite")
    return x


@rule(P.transpose(x))
def transpose_of_unit_axes(x: Value, node: Node) -> Any:
    """a transpose that keeps the order of all axes longer than one moves no element"""
    perm = node.attrs["perm"]
    moved = [p for p in perm if x.shape[p] != 1 or p in x.type.dynamic]
    if moved != sorted(moved):
        return None
    if perm == tuple(range(len(perm))):
        return x
    out = node.outputs[0].type
    if len(out.dynamic) > 1:
        return no(f"{out} has more than one run-time extent, a reshape can follow only one")
    return ops.reshape(
        x, shape=tuple(-1 if k in out.dynamic else d for k, d in enumerate(out.shape))
    )


@rule(P.slice(x))
def slice_of_everything(x: Value, node: Node) -> Any:
    """a slice that takes every element in order"""
    a = node.attrs
    for axis, cut in enumerate(zip(a["start"], a["stop"], a["step"], strict=True)):
        if cut[2] != 1 or (axis in x.type.dynamic and (cut[0] != 0 or cut[1] < x.shape[axis])):
            return None
    return x if x.type == node.outputs[0].type else None


@rule(P.pad(x))
def pad_by_nothing(x: Value, node: Node) -> Any:
    """a pad of no elements"""
    return None if any(node.attrs["before"]) or any(node.attrs["after"]) else x


@rule(P.tile(x))
def tile_once(x: Value, node: Node) -> Any:
    """one copy"""
    return x if all(r == 1 for r in node.attrs["repeats"]) else None


@rule(P.op(("max_pool", "avg_pool"), x))
def pool_of_one(x: Value, node: Node) -> Any:
    """windows of one element, each beside the next"""
    a = node.attrs
    if any(k != 1 for k in (*a["kernel"], *a["stride"])) or any(a["pad"]):
        return None
    return None if a.get("with_indices") else x


@rule(P.resize(x))
def resize_to_itself(x: Value, node: Node) -> Any:
    """resize by one, where every new pixel is an old one"""
    if any(s != 1 for s in node.attrs["scales"]) or x.type != node.outputs[0].type:
        return None
    how = node.attrs["coordinate_transformation_mode"]
    return None if how == "tf_crop_and_resize" else x


@rule(P.op(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), x))
def reduce_of_one(x: Value, node: Node) -> Any:
    """a reduction over axes of extent one"""
    if x.type.dynamic or any(x.shape[a] != 1 for a in node.attrs["axes"]):
        return None
    return ops.reshape(x, shape=node.outputs[0].shape)


ONE = ("mul", "div", "pow", "logical_and")
ZERO = (
    "add",
    "sub",
    "shift_left",
    "shift_right",
    "logical_or",
    "logical_xor",
    "bitwise_or",
    "bitwise_xor",
)
NEUTRAL = {**dict.fromkeys(ONE, 1), **dict.fromkeys(ZERO, 0)}


@rule(P.op(tuple(NEUTRAL), x, c))
def neutral_operand(x: Value, c: Value, node: Node) -> Any:
    """times one, plus zero, and true and the like"""
    right = node.inputs[1] is c or REGISTRY[node.op].commutes
    return x if right and bool(np.all(c.data == NEUTRAL[node.op])) else None


@rule(P.where(x, x, y))
def where_of_equals(x: Value, node: Node) -> Any:
    """both branches are the same tensor"""
    return None if node.outputs[0].type.dynamic else ops.expand(x, shape=node.outputs[0].shape)


@rule(P.where(x, y, c))
def where_decided(x: Value, y: Value, c: Value, node: Node) -> Any:
    """a condition that is the same everywhere"""
    if node.outputs[0].type.dynamic or c.data is None or c.data.size == 0:
        return None
    if not (c.data.all() or not c.data.any()):
        return None
    chosen = x if c.data.all() else y
    return ops.expand(chosen, shape=node.outputs[0].shape)


# ---- clamps that nothing reaches -----------------------------------------------------------------
AT_LEAST_ZERO = ("relu", "abs", "sqrt", "exp", "sigmoid", "softmax", "hard_sigmoid", "softplus")
SAME_ELEMENTS = (
    "reshape",
    "transpose",
    "slice",
    "gather",
    "expand",
    "max_pool",
    "reduce_max",
    "reduce_min",
    "tile",
)
_DEEP = 4


def interval(v: Value, depth: int = 0) -> tuple[float, float]:
    """Bounds that every element of `v` is known to keep."""
    node = v.producer
    if node is None or depth > _DEEP or not dtypes.is_float(v.dtype):
        return -math.inf, math.inf
    if node.op == "clip":
        return node.attrs["lo"], node.attrs["hi"]
    if node.op in AT_LEAST_ZERO:
        return 0.0, math.inf
    source = node.inputs[0] if node.inputs else None
    if source is not None and node.op in SAME_ELEMENTS and v.index == 0:
        return interval(source, depth + 1)
    if node.op == "concat":
        ends = [interval(w, depth + 1) for w in node.inputs if w is not None]
        return min(e[0] for e in ends), max(e[1] for e in ends)
    return -math.inf, math.inf


@rule(P.op(("relu", "clip", "abs"), x))
def clamp_of_clamped(x: Value, node: Node) -> Any:
    """a clamp of what stays within its bounds anyway, over reshapes and maxima too"""
    lo, hi = interval(x)
    if node.op == "clip":
        return x if node.attrs["lo"] <= lo and hi <= node.attrs["hi"] else None
    return x if lo >= 0 else None


NOTHING = [
    reshape_to_itself,
    transpose_of_unit_axes,
    expand_to_itself,
    slice_of_everything,
    pad_by_nothing,
    tile_once,
    pool_of_one,
    resize_to_itself,
    reduce_of_one,
    where_of_equals,
    where_decided,
    cast_to_itself,
    clamp_of_clamped,
    neutral_operand,
]
