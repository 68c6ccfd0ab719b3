"""Remove identity operations: nodes whose result equals their operand."""

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
def identity_reshape(x: Value, node: Node) -> Any:
    """Remove a reshape to the shape that the tensor already has."""
    return x if x.type == node.outputs[0].type else None


@rule(P.expand(x))
def identity_expand(x: Value, node: Node) -> Any:
    """Remove an expand to the shape that the tensor already has."""
    return x if x.type == node.outputs[0].type else None


@rule(P.cast(x))
def identity_cast(x: Value, node: Node) -> Any:
    """Remove a cast to the element type that the tensor already has."""
    if x.dtype != node.attrs["dtype"]:
        return None
    if x.dtype == "f8e5m2" and node.attrs["saturate"]:
        return no("a saturating cast turns infinities into finite numbers")
    return x


@rule(P.transpose(x))
def transpose_as_reshape(x: Value, node: Node) -> Any:
    """Replace a transpose that only moves axes of size one by a reshape."""
    perm = node.attrs["perm"]
    moved = [p for p in perm if x.shape[p] != 1 or p in x.type.dynamic]
    if moved != sorted(moved):
        return None
    if perm == tuple(range(len(perm))):
        return x
    out = node.outputs[0].type
    if len(out.dynamic) > 1:
        return no(f"{out} has more than one dynamic axis; a reshape supports one")
    return ops.reshape(
        x, shape=tuple(-1 if k in out.dynamic else d for k, d in enumerate(out.shape))
    )


@rule(P.slice(x))
def identity_slice(x: Value, node: Node) -> Any:
    """Remove a slice that takes every element in order."""
    a = node.attrs
    for axis, cut in enumerate(zip(a["start"], a["stop"], a["step"], strict=True)):
        if cut[2] != 1 or (axis in x.type.dynamic and (cut[0] != 0 or cut[1] < x.shape[axis])):
            return None
    return x if x.type == node.outputs[0].type else None


@rule(P.pad(x))
def identity_pad(x: Value, node: Node) -> Any:
    """Remove a pad of zero elements."""
    return None if any(node.attrs["before"]) or any(node.attrs["after"]) else x


@rule(P.tile(x))
def identity_tile(x: Value, node: Node) -> Any:
    """Remove a tile that repeats every axis once."""
    return x if all(r == 1 for r in node.attrs["repeats"]) else None


@rule(P.op(("max_pool", "avg_pool"), x))
def identity_pool(x: Value, node: Node) -> Any:
    """Remove a pooling with 1x1 windows, stride 1 and no padding."""
    a = node.attrs
    if any(k != 1 for k in (*a["kernel"], *a["stride"])) or any(a["pad"]):
        return None
    return None if a.get("with_indices") else x


@rule(P.resize(x))
def identity_resize(x: Value, node: Node) -> Any:
    """Remove a resize by a factor of one."""
    if any(s != 1 for s in node.attrs["scales"]) or x.type != node.outputs[0].type:
        return None
    how = node.attrs["coordinate_transformation_mode"]
    return None if how == "tf_crop_and_resize" else x


@rule(P.op(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), x))
def identity_reduce(x: Value, node: Node) -> Any:
    """Replace a reduction over axes of size one by a reshape."""
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
def identity_operand(x: Value, c: Value, node: Node) -> Any:
    """Remove x * 1, x + 0, x and true, and the like."""
    right = node.inputs[1] is c or REGISTRY[node.op].commutes
    return x if right and bool(np.all(c.data == NEUTRAL[node.op])) else None


@rule(P.where(x, x, y))
def where_of_same(x: Value, node: Node) -> Any:
    """Replace a `where` with equal branches by the branch."""
    return None if node.outputs[0].type.dynamic else ops.expand(x, shape=node.outputs[0].shape)


@rule(P.where(x, y, c))
def where_of_constant(x: Value, y: Value, c: Value, node: Node) -> Any:
    """Replace a `where` whose condition is constant and uniform by one branch."""
    if node.outputs[0].type.dynamic or c.data is None or c.data.size == 0:
        return None
    if not (c.data.all() or not c.data.any()):
        return None
    chosen = x if c.data.all() else y
    return ops.expand(chosen, shape=node.outputs[0].shape)


# ---- redundant clamps ----------------------------------------------------------------------------
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
_MAX_DEPTH = 4  # nodes to look through for a bound


def interval(v: Value, depth: int = 0) -> tuple[float, float]:
    """A lower and an upper bound that every element of `v` is known to keep."""
    node = v.producer
    if node is None or depth > _MAX_DEPTH or not dtypes.is_float(v.dtype):
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
def redundant_clamp(x: Value, node: Node) -> Any:
    """Remove a relu, clip or abs whose operand already lies within its bounds."""
    lo, hi = interval(x)
    if node.op == "clip":
        return x if node.attrs["lo"] <= lo and hi <= node.attrs["hi"] else None
    return x if lo >= 0 else None


IDENTITIES = [
    identity_reshape,
    transpose_as_reshape,
    identity_expand,
    identity_slice,
    identity_pad,
    identity_tile,
    identity_pool,
    identity_resize,
    identity_reduce,
    where_of_same,
    where_of_constant,
    identity_cast,
    redundant_clamp,
    identity_operand,
]
