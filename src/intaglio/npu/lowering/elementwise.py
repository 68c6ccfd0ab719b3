"""Sums, products, tables and pools of quantised tensors; bounds and tables join what is before."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import MOVING, Maker, Refused, data, is_npu, number, real
from intaglio.npu.ops import FEATURES, depthwise, eltwise, lut, pool
from intaglio.ops.quantized import BITS8
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, Rule, no, rule

x, a, b, t, t_ = P["x a b t! t_!?"]
xs, xz, az, bz, ys, yz = P["xs! xz! az! bz! ys! yz!"]
as_, bs = P["as! bs!"]
ENDS = ("npu.conv", "npu.depthwise", "npu.eltwise", "npu.pool")
BEFORE = P.any(*ENDS) @ "before"


def _range(v: Value) -> dict[str, int]:
    low, high = dtypes.limits(v.dtype)
    return {"low": low, "high": high}


# ---- two images ----------------------------------------------------------------------------------
def _pair(make: Maker, node: Node) -> Value:
    """qlinear_add or qlinear_mul; the operand that is not spread comes first."""
    given: list[Any] = node.inputs
    left, left_scale, left_zero, right, right_scale, right_zero, ys, yz = given
    out = node.outputs[0]
    if left.shape != out.shape:
        left, left_scale, left_zero, right, right_scale, right_zero = (
            right,
            right_scale,
            right_zero,
            left,
            left_scale,
            left_zero,
        )
    if left.shape != out.shape or left.type.rank != right.type.rank:
        raise Refused(f"{left.type} and {right.type} are both spread; one has the result's shape")
    unit, end = real(ys), {"y_zero": number(yz), **_range(out), "dtype": out.dtype}
    zeros = {"a_zero": number(left_zero), "b_zero": number(right_zero)}
    if node.op == "qlinear_add":
        factors = {"a_factor": real(left_scale) / unit, "b_factor": real(right_scale) / unit}
    else:
        factors = {"a_factor": real(left_scale) * real(right_scale) / unit}
    if not all(np.isfinite(f) for f in factors.values()):
        raise Refused("a scale is not finite, or zero")
    kind = "add" if node.op == "qlinear_add" else "mul"
    attrs = {**zeros, **{k: float(f) for k, f in factors.items()}, **end}
    return make.shaped(
        make(eltwise, make.image(left), make.image(right), kind=kind, **attrs), out.shape
    )


# ---- pools ---------------------------------------------------------------------------------------
def _mean(
    make: Maker, x: Value, xs: Value, xz: Value, ys: Value, yz: Value, out: Value, **window: Any
) -> Value:
    """A pool; where its unit has no such window, a convolution of ones, if all windows are full."""
    of_y = {"y_zero": number(yz), **_range(out), "dtype": out.dtype}
    try:
        return make(
            pool,
            make.image(x),
            kind="avg",
            x_zero=number(xz),
            x_scale=float(real(xs)),
            y_scale=float(real(ys)),
            **window,
            **of_y,
        )
    except Refused as e:
        why = e
    kernel, count = window.pop("kernel"), window.pop("count_include_pad")
    if any(window["pad"]) and not count:
        raise why
    factor, many = real(xs) / (real(ys) * np.float32(math.prod(kernel))), x.shape[1]
    ones = constant(np.ones((many, 1, *kernel), np.int8))
    scale = constant(np.full(many, factor, np.float32))
    bias = constant(np.zeros(many, np.int32))
    try:
        return make(
            depthwise, make.image(x), ones, scale, bias, x_zero=number(xz), **window, **of_y
        )
    except Refused:
        raise why from None


def _largest(make: Maker, x: Value, node: Node) -> Value:
    if x.dtype not in FEATURES:
        raise Refused(f"it computes in {x.dtype}, units work on integers: quantise it")
    if node.attrs["with_indices"]:
        raise Refused("the places of the largest numbers are asked for, too")
    window = {k: node.attrs[k] for k in ("kernel", "stride", "pad", "dilation")}
    window = window if x.type.rank == 4 else _second_axis(window)
    made = make(pool, make.image(x), kind="max", **window, **_range(x), dtype=x.dtype)
    return make.shaped(made, node.outputs[0].shape)


def _second_axis(a: dict[str, Any]) -> dict[str, Any]:
    """A window of one axis as one of two."""
    if len(a["stride"]) != 1:
        raise Refused(f"a window has {len(a['stride'])} axes; images have two")
    begin, end = a["pad"]
    one = {k: (*a[k], 1) for k in ("kernel", "stride", "dilation")}
    return {**a, **one, "pad": (begin, 0, end, 0)}


def _mean_of_axes(
    make: Maker, x: Value, xs: Value, xz: Value, ys: Value, yz: Value, node: Node
) -> Value:
    axes = tuple(node.attrs["axes"])
    if axes != tuple(range(2, x.type.rank)):
        raise Refused(f"a mean over axes {axes} of {x.type}; units take it over images")
    whole = make.image(x).shape[2:]
    made = _mean(
        make,
        x,
        xs,
        xz,
        ys,
        yz,
        node.outputs[0],
        kernel=whole,
        stride=(1, 1),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        count_include_pad=False,
    )
    return make.shaped(made, node.outputs[0].shape)


# ---- tables --------------------------------------------------------------------------------------
def ordered(table: Array, dtype: str) -> tuple[Array, int]:
    """A table of bytes, counted as u8, in the order of their numbers, and the first of those."""
    low, high = dtypes.limits(dtype)
    return np.ascontiguousarray(table[np.arange(low, high + 1) & 255]), low


def _clamp(x: Value, node: Node) -> tuple[int, int]:
    """Bounds of a clip as whole numbers of its type."""
    low, high = dtypes.limits(x.dtype)
    first, last = (min(max(node.attrs[k], low), high) for k in ("lo", "hi"))
    low, high = math.ceil(first), math.floor(last)
    if low > high:
        raise Refused(f"nothing lies between {node.attrs['lo']} and {node.attrs['hi']}")
    return low, high


def _table(make: Maker, x: Value, table: Array, base: int, out: Value) -> Value:
    kind = dtypes.name_of(table.dtype)
    if kind not in FEATURES:
        raise Refused(f"a table of {kind}; units make integers: quantise what follows it")
    return make.shaped(make(lut, make.image(x), constant(table), base=base), out.shape)


def _again(make: Maker, before: Node, table: Value | None = None, **changes: Any) -> Value:
    ins = list(before.inputs)
    if table is not None:
        ins[2 if before.op == "npu.eltwise" else 5] = table
    return make(REGISTRY[before.op], *ins, origin=before.origin, **{**before.attrs, **changes})


# ---- rules ---------------------------------------------------------------------------------------
def elementwise(make: Maker) -> tuple[Rule, ...]:
    """The rules by which element-wise work and pools become those of NPU units."""

    @rule(P.op(("qlinear_add", "qlinear_mul"), a, as_, az, b, bs, bz, ys, yz))
    def pair_on_npu(node: Node) -> Any:
        """qlinear_add, qlinear_mul -> npu.eltwise"""
        return make.tried(_pair, node)

    @rule(P.qlinear_avg_pool(x, xs, xz, ys, yz))
    def avg_pool_on_npu(node: Node, x: Value, xs: Value, xz: Value, ys: Value, yz: Value) -> Any:
        """qlinear_avg_pool -> npu.pool, or npu.depthwise of ones"""
        if x.type.rank != 4:
            return no(f"{x.type} has {x.type.rank - 2} axes of pixels; images have two")
        return make.tried(_mean, x, xs, xz, ys, yz, node.outputs[0], **node.attrs)

    @rule(P.qlinear_mean(x, xs, xz, ys, yz))
    def mean_on_npu(node: Node, x: Value, xs: Value, xz: Value, ys: Value, yz: Value) -> Any:
        """qlinear_mean over pixels -> npu.pool, or npu.depthwise of ones"""
        return make.tried(_mean_of_axes, x, xs, xz, ys, yz, node)

    @rule(P.max_pool(x))
    def max_pool_on_npu(node: Node, x: Value) -> Any:
        """max_pool of integers -> npu.pool"""
        return make.tried(_largest, x, node)

    @rule(P.op(("lookup", "lookup_wide", "clip"), P.op(MOVING, x) @ "move", t_))
    def function_before_moves(node: Node, move: Node, x: Value, t_: Value | None) -> Any:
        """a function of moved numbers is one of them before, where it can join what makes them"""
        made: Node | None = x.producer
        while made is not None and made.op in MOVING:
            made = made.inputs[0].producer if made.inputs[0] is not None else None
        if made is None or not (is_npu(made) or made.op.startswith("qlinear_")):
            return None
        given = (x,) if t_ is None else (x, t_)
        return REGISTRY[move.op](REGISTRY[node.op](*given, **node.attrs), **move.attrs)

    @rule(P.lookup(BEFORE, t))
    def table_into_npu(node: Node, before: Node, t: Value) -> Any:
        """a table of bytes becomes the end of the unit's work before it"""
        if why := _why_no_end(before, t):
            return no(why)
        table, base = ordered(data(t), before.outputs[0].dtype)
        return make.tried(_again, before, constant(table), base=base, dtype=t.dtype)

    @rule(P.lookup_wide(BEFORE, t))
    def wide_table_into_npu(node: Node, before: Node, t: Value) -> Any:
        """a table of 16 bits becomes the end of the unit's work before it"""
        if why := _why_no_end(before, t):
            return no(why)
        return make.tried(_again, before, t, base=node.attrs["base"], dtype=t.dtype)

    @rule(P.clip(BEFORE))
    def bounds_into_npu(node: Node, before: Node) -> Any:
        """bounds of integers become those of the unit's work before them"""
        out = before.outputs[0]
        if out.dtype not in FEATURES:
            return no(f"a clip of {out.dtype}")
        if len(before.inputs) > 2 and before.inputs[2 if before.op == "npu.eltwise" else 5]:
            return no("a table makes the numbers")
        return make.tried(_narrowed, before, node)

    @rule(P.lookup(x, t))
    def table_on_npu(node: Node, x: Value, t: Value) -> Any:
        """lookup -> npu.lut"""
        return make.tried(_table, x, *ordered(data(t), x.dtype), node.outputs[0])

    @rule(P.lookup_wide(x, t))
    def wide_table_on_npu(node: Node, x: Value, t: Value) -> Any:
        """lookup_wide -> npu.lut"""
        return make.tried(_table, x, data(t), node.attrs["base"], node.outputs[0])

    @rule(P.clip(x))
    def clip_on_npu(node: Node, x: Value) -> Any:
        """a clip of bytes -> npu.lut"""
        if x.dtype not in BITS8:
            return no(f"it computes in {x.dtype}, units work on integers: quantise it")
        return make.tried(_clipped, x, node)

    return (
        function_before_moves,
        pair_on_npu,
        avg_pool_on_npu,
        mean_on_npu,
        max_pool_on_npu,
        table_into_npu,
        wide_table_into_npu,
        bounds_into_npu,
        table_on_npu,
        wide_table_on_npu,
        clip_on_npu,
    )


def _narrowed(make: Maker, before: Node, node: Node) -> Value:
    low, high = _clamp(before.outputs[0], node)
    at = before.attrs
    if max(at["low"], low) > min(at["high"], high):
        raise Refused(f"nothing of {low} to {high} lies between {at['low']} and {at['high']}")
    return _again(make, before, low=max(at["low"], low), high=min(at["high"], high))


def _clipped(make: Maker, x: Value, node: Node) -> Value:
    low, high = _clamp(x, node)
    first, last = dtypes.limits(x.dtype)
    every = np.arange(first, last + 1).clip(low, high).astype(dtypes.numpy_of(x.dtype))
    return _table(make, x, every, first, node.outputs[0])


def _why_no_end(before: Node, t: Value) -> str | None:
    """Why a table cannot end a unit's work."""
    if before.op == "npu.pool":
        return "pools end in no table"
    if before.inputs[2 if before.op == "npu.eltwise" else 5] is not None:
        return "a table makes the numbers already"
    if before.outputs[0].dtype not in FEATURES or t.dtype not in BITS8:
        return f"a table from {before.outputs[0].dtype} to {t.dtype}; results of units are bytes"
    return None
