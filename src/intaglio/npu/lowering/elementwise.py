"""Element-wise ops, lookup tables and pools of quantised tensors become NPU ops.

Bounds and tables move into the epilogue of the op before them where that is possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import (
    LAYOUT_CHANGES,
    Builder,
    Refused,
    data,
    integer,
    is_npu,
    scale_of,
    table_input,
    two_axes,
)
from intaglio.npu.ops import concat, depthwise, eltwise, lut, pool, slice_
from intaglio.npu.ops.feature_maps import INTEGER_FEATURES
from intaglio.ops.quantized import BITS8
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, Rule, no, rule

x, a, b, t = P["x a b t!"]
xs, xz, az, bz, ys, yz = P["xs! xz! az! bz! ys! yz!"]
as_, bs = P["as! bs!"]
WITH_EPILOGUE = ("npu.conv", "npu.depthwise", "npu.eltwise", "npu.pool")
BEFORE = P.any(*WITH_EPILOGUE) @ "before"


def _range(v: Value) -> dict[str, int]:
    low, high = dtypes.limits(v.dtype)
    return {"low": low, "high": high}


# ---- two feature maps ----------------------------------------------------------------------------
def _pair(make: Builder, node: Node) -> Value:
    """qlinear_add or qlinear_mul; the operand that is not broadcast comes first."""
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
        raise Refused(
            f"{left.type} and {right.type} are both broadcast; one needs the result's shape"
        )
    y_scale, end = scale_of(ys), {"y_zero": integer(yz), **_range(out), "dtype": out.dtype}
    zeros = {"a_zero": integer(left_zero), "b_zero": integer(right_zero)}
    if node.op == "qlinear_add":
        factors = {
            "a_factor": scale_of(left_scale) / y_scale,
            "b_factor": scale_of(right_scale) / y_scale,
        }
    else:
        factors = {"a_factor": scale_of(left_scale) * scale_of(right_scale) / y_scale}
    if not all(np.isfinite(f) for f in factors.values()):
        raise Refused("a scale is zero or not finite")
    kind = "add" if node.op == "qlinear_add" else "mul"
    attrs = {**zeros, **{k: float(f) for k, f in factors.items()}, **end}
    return make.reshaped(
        make(eltwise, make.as_feature_map(left), make.as_feature_map(right), kind=kind, **attrs),
        out.shape,
    )


# ---- pools ---------------------------------------------------------------------------------------
def _avg_pool(
    make: Builder, x: Value, xs: Value, xz: Value, ys: Value, yz: Value, out: Value, **window: Any
) -> Value:
    """npu.pool; a depthwise convolution of ones if the pool unit has no such window.

    The latter needs windows that are full, or that count their padding.
    """
    of_y = {"y_zero": integer(yz), **_range(out), "dtype": out.dtype}
    scales = {"x_scale": float(scale_of(xs)), "y_scale": float(scale_of(ys))}

    def pooled(part: Value) -> Value:
        return make(pool, part, kind="avg", x_zero=integer(xz), **scales, **window, **of_y)

    try:
        return in_parts(make, make.as_feature_map(x), pooled)
    except Refused as e:
        why = e
    kernel, count = window.pop("kernel"), window.pop("count_include_pad")
    if any(window["pad"]) and not count:
        raise why
    factor, many = scale_of(xs) / (scale_of(ys) * np.float32(math.prod(kernel))), x.shape[1]
    ones = constant(np.ones((many, 1, *kernel), np.int8))
    scale = constant(np.full(many, factor, np.float32))
    bias = constant(np.zeros(many, np.int32))
    try:
        return make(
            depthwise,
            make.as_feature_map(x),
            ones,
            scale,
            bias,
            x_zero=integer(xz),
            **window,
            **of_y,
        )
    except Refused:
        raise why from None


BLOCK = 16  # channels of a part are a multiple of it


def in_parts(make: Builder, x: Value, pooled: Callable[[Value], Value]) -> Value:
    """`pooled` of x; of parts of its channels if a core's memory has no room for a window."""
    try:
        return pooled(x)
    except Refused as e:
        why, size = e, x.shape[1]
    while size > BLOCK:
        size = -(-size // (2 * BLOCK)) * BLOCK
        firsts = range(0, x.shape[1], size)
        counts = [min(size, x.shape[1] - k) for k in firsts]
        try:
            parts = [
                pooled(make(slice_, x, first=k, count=n))
                for k, n in zip(firsts, counts, strict=True)
            ]
            return make(concat, *parts)
        except Refused:
            continue
    raise why


def _window_mean(
    make: Builder, x: Value, xs: Value, xz: Value, ys: Value, yz: Value, node: Node
) -> Value:
    window = node.attrs if x.type.rank == 4 else two_axes(node.attrs)
    result = _avg_pool(make, x, xs, xz, ys, yz, node.outputs[0], **window)
    return make.reshaped(result, node.outputs[0].shape)


def _max_pool(make: Builder, x: Value, node: Node) -> Value:
    if x.dtype not in INTEGER_FEATURES:
        raise Refused(f"it computes in {x.dtype}; units work on integers: quantise it")
    if node.attrs["with_indices"]:
        raise Refused("its indices are read, too; units return the largest numbers only")
    window = {k: node.attrs[k] for k in ("kernel", "stride", "pad", "dilation")}
    window = window if x.type.rank == 4 else two_axes(window)

    def pooled(part: Value) -> Value:
        return make(pool, part, kind="max", **window, **_range(x), dtype=x.dtype)

    result = in_parts(make, make.as_feature_map(x), pooled)
    return make.reshaped(result, node.outputs[0].shape)


def _mean_of_axes(
    make: Builder, x: Value, xs: Value, xz: Value, ys: Value, yz: Value, node: Node
) -> Value:
    axes = tuple(node.attrs["axes"])
    if axes != tuple(range(2, x.type.rank)):
        raise Refused(f"a mean over axes {axes} of {x.type}; units take it over height and width")
    whole = make.as_feature_map(x).shape[2:]
    result = _avg_pool(
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
    return make.reshaped(result, node.outputs[0].shape)


# ---- tables --------------------------------------------------------------------------------------
def ordered(table: Array, dtype: str) -> tuple[Array, int]:
    """A table indexed by the bits of 8-bit numbers in ascending order of these; and the lowest."""
    low, high = dtypes.limits(dtype)
    return np.ascontiguousarray(table[np.arange(low, high + 1) & 255]), low


def _clip_bounds(x: Value, node: Node) -> tuple[int, int]:
    """The bounds of a clip as integers of its type."""
    low, high = dtypes.limits(x.dtype)
    first, last = (min(max(node.attrs[k], low), high) for k in ("lo", "hi"))
    low, high = math.ceil(first), math.floor(last)
    if low > high:
        raise Refused(f"no integer lies between {node.attrs['lo']} and {node.attrs['hi']}")
    return low, high


def _table(make: Builder, x: Value, table: Array, base: int, out: Value) -> Value:
    kind = dtypes.name_of(table.dtype)
    if kind not in INTEGER_FEATURES:
        raise Refused(f"a table of {kind}; units make integers: quantise the op after it")
    return make.reshaped(make(lut, make.as_feature_map(x), constant(table), base=base), out.shape)


def _with_epilogue(
    make: Builder, before: Node, table: Value | None = None, **changes: Any
) -> Value:
    """The op `before` with another table or other bounds."""
    ins = list(before.inputs)
    if table is not None:
        ins[table_input(before.op)] = table
    return make(REGISTRY[before.op], *ins, origin=before.origin, **{**before.attrs, **changes})


# ---- rules ---------------------------------------------------------------------------------------
def elementwise_rules(make: Builder) -> tuple[Rule, ...]:
    """The rules by which element-wise ops, tables and pools become NPU ops."""

    @rule(P.op(("qlinear_add", "qlinear_mul"), a, as_, az, b, bs, bz, ys, yz))
    def pair_on_npu(node: Node) -> Any:
        """Lower qlinear_add and qlinear_mul to npu.eltwise."""
        return make.attempt(_pair, node)

    @rule(P.qlinear_avg_pool(x, xs, xz, ys, yz))
    def avg_pool_on_npu(node: Node, x: Value, xs: Value, xz: Value, ys: Value, yz: Value) -> Any:
        """Lower qlinear_avg_pool to npu.pool, or to npu.depthwise with weights of 1."""
        return make.attempt(_window_mean, x, xs, xz, ys, yz, node)

    @rule(P.qlinear_mean(x, xs, xz, ys, yz))
    def mean_on_npu(node: Node, x: Value, xs: Value, xz: Value, ys: Value, yz: Value) -> Any:
        """Lower qlinear_mean over pixels to npu.pool, or to npu.depthwise with weights of 1."""
        return make.attempt(_mean_of_axes, x, xs, xz, ys, yz, node)

    @rule(P.max_pool(x))
    def max_pool_on_npu(node: Node, x: Value) -> Any:
        """Lower max_pool of integers to npu.pool."""
        return make.attempt(_max_pool, x, node)

    @rule(P.op(("lookup", "lookup_wide"), P.op(LAYOUT_CHANGES, x) @ "move", t))
    def hoist_function(node: Node, move: Node, x: Value, t: Value) -> Any:
        """Hoist a table above reshape and transpose, towards the NPU op before them."""
        return _hoisted(node, move, x, t)

    @rule(P.op(("clip", "relu"), P.op(LAYOUT_CHANGES, x) @ "move"))
    def hoist_clamp(node: Node, move: Node, x: Value) -> Any:
        """Hoist a clamp above reshape and transpose, towards the NPU op before them."""
        return _hoisted(node, move, x)

    @rule(P.lookup(BEFORE, t))
    def table_into_npu(node: Node, before: Node, t: Value) -> Any:
        """Merge an 8-bit table into the NPU op before it."""
        if why := _why_no_table(before, t):
            return no(why)
        table, base = ordered(data(t), before.outputs[0].dtype)
        return make.attempt(_with_epilogue, before, constant(table), base=base, dtype=t.dtype)

    @rule(P.lookup_wide(BEFORE, t))
    def wide_table_into_npu(node: Node, before: Node, t: Value) -> Any:
        """Merge a 16-bit table into the NPU op before it."""
        if why := _why_no_table(before, t):
            return no(why)
        return make.attempt(_with_epilogue, before, t, base=node.attrs["base"], dtype=t.dtype)

    @rule(P.clip(BEFORE))
    def bounds_into_npu(node: Node, before: Node) -> Any:
        """Merge a clip of integers into the NPU op before it."""
        out = before.outputs[0]
        if out.dtype not in INTEGER_FEATURES:
            return None  # float_bounds_into_npu, or a rule for f16
        if len(before.inputs) > 2 and before.inputs[table_input(before.op)]:
            return no("the NPU op before it ends in a table, which makes the numbers")
        return make.attempt(_tighten_bounds, before, node)

    @rule(P.op(("clip", "relu"), BEFORE))
    def float_bounds_into_npu(node: Node, before: Node) -> Any:
        """Merge a clip or relu of sums in f32 into the NPU product that makes them."""
        if before.outputs[0].dtype != "f32":
            return None
        return make.attempt(_tighten_float_bounds, before, node)

    @rule(P.lookup(x, t))
    def table_on_npu(node: Node, x: Value, t: Value) -> Any:
        """Lower lookup to npu.lut."""
        return make.attempt(_table, x, *ordered(data(t), x.dtype), node.outputs[0])

    @rule(P.lookup_wide(x, t))
    def wide_table_on_npu(node: Node, x: Value, t: Value) -> Any:
        """Lower lookup_wide to npu.lut."""
        return make.attempt(_table, x, data(t), node.attrs["base"], node.outputs[0])

    @rule(P.clip(x))
    def clip_on_npu(node: Node, x: Value) -> Any:
        """Lower clip of 8-bit integers to npu.lut."""
        if x.dtype not in BITS8:
            return no(f"it computes in {x.dtype}; units work on integers: quantise it")
        return make.attempt(_clip_table, x, node)

    return (
        hoist_function,
        hoist_clamp,
        pair_on_npu,
        avg_pool_on_npu,
        mean_on_npu,
        max_pool_on_npu,
        table_into_npu,
        wide_table_into_npu,
        bounds_into_npu,
        float_bounds_into_npu,
        table_on_npu,
        wide_table_on_npu,
        clip_on_npu,
    )


def _hoisted(node: Node, move: Node, x: Value, *rest: Value) -> Any:
    """The function before the ops that only move its operand; None if no unit makes that."""
    result: Node | None = x.producer
    while result is not None and result.op in LAYOUT_CHANGES:
        result = result.inputs[0].producer if result.inputs[0] is not None else None
    if result is None or not (is_npu(result) or result.op.startswith("qlinear_")):
        return None
    return REGISTRY[move.op](REGISTRY[node.op](x, *rest, **node.attrs), **move.attrs)


def _tighten_bounds(make: Builder, before: Node, node: Node) -> Value:
    low, high = _clip_bounds(before.outputs[0], node)
    at = before.attrs
    if max(at["low"], low) > min(at["high"], high):
        raise Refused(f"bounds {low} to {high} and {at['low']} to {at['high']} do not overlap")
    return _with_epilogue(make, before, low=max(at["low"], low), high=min(at["high"], high))


def _tighten_float_bounds(make: Builder, before: Node, node: Node) -> Value:
    bounds = (0.0, math.inf) if node.op == "relu" else (node.attrs["lo"], node.attrs["hi"])
    at = before.attrs
    least, most = max(at["least"], bounds[0]), min(at["most"], bounds[1])
    if least > most:
        raise Refused(f"bounds {bounds} and {at['least']} to {at['most']} do not overlap")
    return _with_epilogue(make, before, least=least, most=most)


def _clip_table(make: Builder, x: Value, node: Node) -> Value:
    low, high = _clip_bounds(x, node)
    first, last = dtypes.limits(x.dtype)
    every = np.arange(first, last + 1).clip(low, high).astype(dtypes.numpy_of(x.dtype))
    return _table(make, x, every, first, node.outputs[0])


def _why_no_table(before: Node, t: Value) -> str | None:
    """Why a table cannot become part of this NPU op."""
    if before.op == "npu.pool":
        return "pools have no table"
    if before.inputs[table_input(before.op)] is not None:
        return "the NPU op before it has a table already"
    if before.outputs[0].dtype not in INTEGER_FEATURES or t.dtype not in BITS8:
        return f"a table from {before.outputs[0].dtype} to {t.dtype}; units make 8-bit results"
    return None
