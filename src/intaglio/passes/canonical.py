"""Canonical forms: one way to say each thing, and nothing that changes nothing. All exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, P, no, rule

x, y, c, i = P["x y c! i!"]
BINARY = tuple(
    name
    for name, o in REGISTRY.items()
    if o.elementwise and len(o.signature.parameters) - len(o.attr_names) == 2
)
EXTENT = 2**62  # a slice's stop for "to the end"


# ---- what changes nothing ------------------------------------------------------------------------
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
    return x if x.dtype == node.attrs["dtype"] else None


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


@rule(P.op(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), x))
def reduce_of_one(x: Value, node: Node) -> Any:
    """a reduction over axes of extent one"""
    if x.type.dynamic or any(x.shape[a] != 1 for a in node.attrs["axes"]):
        return None
    return ops.reshape(x, shape=node.outputs[0].shape)


NEUTRAL = {"mul": 1, "add": 0, "sub": 0, "div": 1, "pow": 1}


@rule(P.op(tuple(NEUTRAL), x, c))
def neutral_operand(x: Value, c: Value, node: Node) -> Any:
    """times one, plus zero and the like"""
    right = node.inputs[1] is c or REGISTRY[node.op].commutes
    return x if right and bool(np.all(c.data == NEUTRAL[node.op])) else None


# ---- two that are one ----------------------------------------------------------------------------
@rule(P.reshape(P.reshape(x).shared()))
def reshape_of_reshape(x: Value, node: Node) -> Any:
    """only the last shape counts"""
    return ops.reshape(x, shape=node.attrs["shape"])


@rule(P.transpose(P.transpose(x).shared() @ "inner"))
def transpose_of_transpose(x: Value, inner: Node, node: Node) -> Any:
    """one permutation after the other is a permutation"""
    return ops.transpose(x, perm=tuple(inner.attrs["perm"][p] for p in node.attrs["perm"]))


@rule(P.cast(P.cast(x).shared() @ "inner"))
def cast_of_cast(x: Value, inner: Node, node: Node) -> Any:
    """a detour over a type that holds every value of the first one"""
    if not holds(inner.attrs["dtype"], x.dtype):
        return no(f"{inner.attrs['dtype']} does not hold every {x.dtype}")
    return ops.cast(x, **node.attrs)


def holds(wide: str, narrow: str) -> bool:
    """Is every value of element type `narrow` also one of `wide`?"""
    if wide == narrow:
        return True
    w, n = dtypes.TABLE[wide], dtypes.TABLE[narrow]
    if n.kind == "b":
        return w.bits > 1
    if w.kind == "f":
        mantissa = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}.get(wide, 0)
        if n.kind != "f":
            return n.bits <= mantissa
        return (wide, narrow) in {("f64", "f32"), ("f64", "f16"), ("f64", "bf16"),
                                  ("f32", "f16"), ("f32", "bf16")}  # fmt: skip
    return n.kind in "iu" and w.bits > n.bits and (w.kind == "i" or n.kind == "u")


@rule(P.clip(P.clip(x) @ "inner"))
def clip_of_clip(x: Value, inner: Node, node: Node) -> Any:
    """two intervals that meet are one"""
    lo = max(inner.attrs["lo"], node.attrs["lo"])
    hi = min(inner.attrs["hi"], node.attrs["hi"])
    return ops.clip(x, lo=lo, hi=hi) if lo <= hi else no(f"the intervals meet in [{lo}, {hi}]")


@rule(P.clip(P.relu(x)))
def clip_of_relu(x: Value, node: Node) -> Any:
    """relu is the interval from zero up"""
    hi = node.attrs["hi"]
    return ops.clip(x, lo=max(0.0, node.attrs["lo"]), hi=hi) if hi >= 0 else None


@rule(P.relu(P.clip(x) @ "inner"))
def relu_of_clip(x: Value, inner: Node) -> Any:
    """relu is the interval from zero up"""
    hi = inner.attrs["hi"]
    return ops.clip(x, lo=max(0.0, inner.attrs["lo"]), hi=hi) if hi >= 0 else None


@rule(P.relu(P.relu(x).shared() @ "inner"))
def relu_of_relu(inner: Node) -> Any:
    """what is not negative stays"""
    return inner.outputs[0]


@rule(P.op(("maximum", "minimum"), x, c))
def clip_of_bound(x: Value, c: Value, node: Node) -> Any:
    """the larger or smaller of a tensor and one number"""
    if not dtypes.is_float(x.dtype) or c.type.size != 1 or c.type.rank > x.type.rank:
        return None
    bound = float(c.data.item())  # type: ignore[union-attr]
    if math.isnan(bound):
        return None
    lo, hi = (bound, math.inf) if node.op == "maximum" else (-math.inf, bound)
    return ops.clip(x, lo=lo, hi=hi)


@rule(P.clip(x))
def clip_is_relu(x: Value, node: Node) -> Any:
    """an interval without an end, or from zero up"""
    lo, hi = node.attrs["lo"], node.attrs["hi"]
    if hi == math.inf and lo == -math.inf:
        return x
    return ops.relu(x) if lo == 0 and hi == math.inf else None


# ---- one way to say it ---------------------------------------------------------------------------
@rule(P.op(BINARY, c, x))
def constant_to_the_right(c: Value, x: Value, node: Node) -> Any:
    """a commutative op has its constant on the right"""
    first, second = node.inputs
    if first is not c or second is None or second.data is not None:
        return None
    return REGISTRY[node.op](x, c, **node.attrs) if REGISTRY[node.op].commutes else None


@rule(P.op(BINARY, x, y))
def expand_for_nothing(node: Node) -> Any:
    """an operand that the op would broadcast by itself"""
    a, b = node.inputs
    out = node.outputs[0].type
    assert a is not None
    assert b is not None
    if out.dynamic:
        return None
    small, other = _before_expand(a), _before_expand(b)
    if small is not a and np.broadcast_shapes(small.shape, b.shape) == out.shape:
        return REGISTRY[node.op](small, b, **node.attrs)
    if other is not b and np.broadcast_shapes(a.shape, other.shape) == out.shape:
        return REGISTRY[node.op](a, other, **node.attrs)
    return None


def _before_expand(v: Value) -> Value:
    inner = v.producer.inputs[0] if v.producer and v.producer.op == "expand" else None
    return inner if inner is not None else v


@rule(ANY)
def simpler_concat(node: Node) -> Any:
    """concat of one tensor, of empty ones, or of another concat along the same axis"""
    if node.op != "concat":
        return None
    axis = node.attrs["axis"] % node.outputs[0].type.rank
    flat: list[Value] = []
    for v in node.inputs:
        assert v is not None
        inner = v.producer
        if (
            inner
            and inner.op == "concat"
            and inner.attrs["axis"] % v.type.rank == axis
            and len(v.uses) == 1
        ):
            flat += [w for w in inner.inputs if w is not None]
        elif v.type.size:
            flat.append(v)
    if len(flat) == 1:
        return flat[0]
    if not flat or len(flat) == len(node.inputs):
        return None
    return ops.concat(*flat, axis=axis)


@rule(P.gather(x, i))
def gather_of_range(x: Value, i: Value, node: Node) -> Any:
    """constant indices that count upwards are a slice, which may cost nothing"""
    axis = node.attrs["axis"] % x.type.rank
    if x.type.dynamic or i.type.rank > 1 or i.type.size == 0:
        return None
    at = i.data.ravel().astype(np.int64)  # type: ignore[union-attr]
    extent = x.shape[axis]
    at = np.where(at < 0, at + extent, at)
    if at[0] < 0 or at[-1] >= extent or np.any(np.diff(at) != 1):
        return None
    cut = ops.slice_(
        x,
        start=tuple(int(at[0]) if k == axis else 0 for k in range(x.type.rank)),
        stop=tuple(int(at[-1]) + 1 if k == axis else EXTENT for k in range(x.type.rank)),
        step=(1,) * x.type.rank,
    )
    return ops.reshape(cut, shape=node.outputs[0].shape) if i.type.rank == 0 else cut


@rule(P.where(x, y, c))
def where_decided(x: Value, y: Value, c: Value, node: Node) -> Any:
    """a condition that is the same everywhere"""
    if node.outputs[0].type.dynamic or c.data is None or c.data.size == 0:
        return None
    if not (c.data.all() or not c.data.any()):
        return None
    chosen = x if c.data.all() else y
    return ops.expand(chosen, shape=node.outputs[0].shape)


CANONICAL = [
    reshape_to_itself,
    reshape_of_reshape,
    transpose_of_unit_axes,
    transpose_of_transpose,
    expand_to_itself,
    expand_for_nothing,
    slice_of_everything,
    pad_by_nothing,
    tile_once,
    reduce_of_one,
    simpler_concat,
    gather_of_range,
    where_decided,
    cast_to_itself,
    cast_of_cast,
    clip_of_clip,
    clip_of_relu,
    relu_of_clip,
    relu_of_relu,
    clip_of_bound,
    clip_is_relu,
    constant_to_the_right,
    neutral_operand,
]
