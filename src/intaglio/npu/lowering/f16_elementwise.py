"""Element-wise ops, functions and pools of floats become f16 NPU ops, or part of one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import (
    LAYOUT_CHANGES,
    Builder,
    Refused,
    data,
    table_input,
    two_axes,
)
from intaglio.npu.lowering.data_movement import select_channels
from intaglio.npu.lowering.elementwise import in_parts
from intaglio.npu.lowering.f16_operands import (
    DATA_MOVEMENT,
    FLOATS,
    F16Casts,
    as_f16,
    epilogue_owner,
    function_operand,
    made_on_npu,
)
from intaglio.npu.ops import depthwise, eltwise, f16_arithmetic, lut, pool
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import ANY, P, Rule, rule

x, a, r = P["x a r"]
MAX_TABLE_ERROR = 4.0  # units of f16's resolution by which a table may miss its function


def f16_elementwise_rules(make: Builder, casts: F16Casts) -> tuple[Rule, ...]:
    """The rules by which element-wise ops, functions and pools of floats become NPU ops."""

    def is_f16(*values: Value) -> bool:
        """Is this f16 in the model? With `every`, results of NPU ops count as well."""
        if any(v.dtype not in FLOATS for v in values):
            return False
        all_f16 = all(v.dtype == "f16" for v in values)
        return all_f16 or (casts.every and any(map(made_on_npu, values)))

    @rule(P.any("npu.eltwise"))
    def residual_in_f16(node: Node) -> Any:
        """Merge an npu.eltwise add into the convolution before it, as its residual."""
        return _residual(make, node)

    @rule(P.op(("add", "sub", "mul"), a, r))
    def pair_in_f16(node: Node, a: Value, r: Value) -> Any:
        """Lower add, sub and mul of f16 feature maps to npu.eltwise."""
        if not is_f16(a, r) or a.type.dynamic or r.type.dynamic:
            return None
        if a.data is None and r.data is None:
            return make.attempt(_pair, casts, node)
        image, number = (a, r) if a.data is None else (r, a)
        if image.data is not None or number.type.size == 1:
            return None
        return make.attempt(_per_channel, casts, node, image, number)

    @rule(P.op(("max_pool", "avg_pool", "reduce_mean"), x))
    def pool_in_f16(node: Node, x: Value) -> Any:
        """Lower pools and means of f16 feature maps to npu.pool."""
        if not is_f16(x):
            return None
        return make.attempt(_pool, casts, node, x, "max" if node.op == "max_pool" else "avg")

    @rule(ANY)
    def hoist_function_in_f16(node: Node) -> Any:
        """Hoist a function of f16 above reshape and transpose, towards the NPU op before them."""
        operand = function_operand(node)
        return None if operand is None or not is_f16(operand) else _hoist(node, operand)

    @rule(ANY)
    def function_in_f16(node: Node) -> Any:
        """Merge a function of f16 into the NPU op before it, or lower it to npu.lut."""
        operand = function_operand(node)
        if operand is None or not is_f16(operand) or operand.type.dynamic:
            return None
        return make.attempt(_function, casts, node, operand)

    @rule(ANY)
    def move_in_f16(node: Node) -> Any:
        """Move f16 values before their cast to f32 instead of after it."""
        return _move_before_cast(node) if casts.every else None

    return (
        residual_in_f16,
        pair_in_f16,
        pool_in_f16,
        hoist_function_in_f16,
        function_in_f16,
        move_in_f16,
    )


# ---- two feature maps ----------------------------------------------------------------------------
def _pair(make: Builder, casts: F16Casts, node: Node) -> Value:
    """add, sub and mul of two feature maps; the one that is not broadcast comes first."""
    one, other, out = node.inputs[0], node.inputs[1], node.outputs[0]
    assert one is not None
    assert other is not None
    factors = {"a_factor": 1.0, "b_factor": -1.0 if node.op == "sub" else 1.0}
    if one.shape != out.shape:
        one, other = other, one
        factors = {"a_factor": factors["b_factor"], "b_factor": 1.0}
    if one.shape != out.shape or one.type.rank != other.type.rank:
        raise Refused(
            f"{one.type} and {other.type} are both broadcast; one needs the result's shape"
        )
    kind = "mul" if node.op == "mul" else "add"
    maps = make.as_feature_map(casts(one)), make.as_feature_map(casts(other))
    result = make(eltwise, *maps, kind=kind, a_zero=0, b_zero=0, **factors, dtype="f16")
    return casts.back(result, out)


def _per_channel(make: Builder, casts: F16Casts, node: Node, x: Value, c: Value) -> Value:
    """add, sub and mul with one constant per channel: a 1x1 depthwise convolution."""
    out, many = node.outputs[0], x.shape[1] if x.type.rank == 4 else 0
    if x.shape != out.shape or c.type.size != many or c.shape[-3:] != (many, 1, 1):
        raise Refused(f"{c.type} is not one number for each channel of {x.type}")
    numbers = data(c).astype(np.float32).reshape(-1)
    scale, bias = np.ones(many, np.float32), np.zeros(many, np.float32)
    if node.op == "mul":
        scale = numbers
    elif node.op == "add":
        bias = numbers
    else:
        first = node.inputs[0] is x
        scale, bias = (scale, -numbers) if first else (-scale, numbers)
    result = make(
        depthwise,
        casts(x),
        constant(np.ones((many, 1, 1, 1), np.float16)),
        constant(np.ascontiguousarray(scale)),
        constant(np.ascontiguousarray(bias)),
        stride=(1, 1),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        x_zero=0,
        dtype="f16",
    )
    return casts.back(result, out)


def _residual(make: Builder, node: Node) -> Any:
    at, (a, r) = node.attrs, node.inputs[:2]
    assert a is not None
    assert r is not None
    if at["kind"] != "add" or a.dtype != "f16" or a.shape != r.shape or a is r:
        return None
    for result, other, factor, other_factor in (
        (a, r, at["a_factor"], at["b_factor"]),
        (r, a, at["b_factor"], at["a_factor"]),
    ):
        before = epilogue_owner(result)
        if before is None or before.op not in ("npu.conv", "npu.depthwise") or factor != 1:
            continue
        end = before.attrs
        if before.inputs[4] is not None or end["least"] > -math.inf or end["most"] < math.inf:
            continue
        given = [*before.inputs[:4], other, node.inputs[2]]
        bounds = {k: at[k] for k in ("least", "most")}
        attrs = {**end, "r_factor": other_factor, **bounds}
        conv, origin = REGISTRY[before.op], before.origin
        return make.attempt(lambda m, g=given, n=attrs, c=conv, o=origin: m(c, *g, origin=o, **n))
    return None


# ---- one feature map -----------------------------------------------------------------------------
def _function(make: Builder, casts: F16Casts, node: Node, x: Value) -> Value:
    """Bounds or a table in the epilogue of the NPU op that makes `x`, or else npu.lut."""
    out, before = node.outputs[0], epilogue_owner(x)
    bounds = {"relu": (0.0, math.inf), "clip": (node.attrs.get("lo"), node.attrs.get("hi"))}
    if node.op in bounds and before is not None:
        low, high = bounds[node.op]
        at = before.attrs
        new = {"least": max(at["least"], low), "most": min(at["most"], high)}
        if new["least"] > new["most"]:
            raise Refused(
                f"bounds {low} to {high} and {at['least']} to {at['most']} do not overlap"
            )
        return casts.back(_with_epilogue(make, before, **new), out)
    table, error = f16_arithmetic.piecewise_table(lambda v: _values(node, x, v))
    if error > MAX_TABLE_ERROR:
        raise Refused(
            f"a table of {len(table)} numbers misses {node.op} by {error:.3g} units of f16; "
            f"{MAX_TABLE_ERROR:g} are allowed"
        )
    if before is not None and before.op != "npu.pool":
        return casts.back(_with_epilogue(make, before, constant(table)), out)
    return casts.back(make(lut, make.as_feature_map(casts(x)), constant(table), base=0), out)


def _values(node: Node, x: Value, numbers: Array) -> Array:
    """The values of an element-wise node at these f64."""
    given = [
        numbers if v is x else None if v is None else data(v).astype(np.float64).reshape(())
        for v in node.inputs
    ]
    return np.asarray(REGISTRY[node.op].body(*given, **node.attrs)).astype(np.float64)


def _with_epilogue(
    make: Builder, before: Node, table: Value | None = None, **changes: Any
) -> Value:
    """The op `before` with another table or other bounds."""
    given = list(before.inputs)
    if table is not None:
        given[table_input(before.op)] = table
    return make(REGISTRY[before.op], *given, origin=before.origin, **{**before.attrs, **changes})


def _pool(make: Builder, casts: F16Casts, node: Node, x: Value, kind: str) -> Value:
    if x.type.rank == 5 and kind == "max" and not x.type.dynamic:
        return _pool_of_slices(make, casts, node, x)
    if x.type.rank not in (3, 4) or x.type.dynamic:
        raise Refused(f"{x.type} is no feature map of fixed shape")
    if node.attrs.get("with_indices"):
        raise Refused("its indices are read, too; units return the largest numbers only")
    attrs: dict[str, Any]
    if node.op == "reduce_mean":
        axes = tuple(sorted(i % x.type.rank for i in node.attrs["axes"]))
        if axes != (2, 3)[: x.type.rank - 2]:
            raise Refused(
                f"a mean over axes {axes} of {x.type}; units take it over height and width"
            )
        window = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
        attrs = {"kernel": (*x.shape[2:], 1)[:2], **window}
    else:
        attrs = {k: node.attrs[k] for k in ("kernel", "stride", "pad", "dilation")}
        attrs = attrs if x.type.rank == 4 else two_axes(attrs)
    count = bool(node.attrs.get("count_include_pad"))

    def pooled(part: Value) -> Value:
        return make(pool, part, kind=kind, count_include_pad=count, dtype="f16", **attrs)

    result = in_parts(make, make.as_feature_map(casts(x)), pooled)
    return casts.back(result, node.outputs[0])


def _pool_of_slices(make: Builder, casts: F16Casts, node: Node, x: Value) -> Value:
    """A max pool over volumes with windows of one slice: some slices, pooled as channels."""
    a, (n, c, depth, h, w) = node.attrs, x.shape
    if a.get("with_indices") or a["kernel"][0] != 1 or a["pad"][0] or a["pad"][3]:
        raise Refused(f"windows of {a['kernel']}; units pool one slice of a volume in f16")
    numbers = np.arange(c * depth).reshape(c, depth)[:, :: a["stride"][0]].reshape(-1)
    image = make.reshaped(casts(x), (n, c * depth, h, w))
    if len(numbers) < c * depth:
        image = select_channels(make, image, numbers)
    window = {k: tuple(a[k][1:]) for k in ("kernel", "stride", "dilation")}
    pad = (*a["pad"][1:3], *a["pad"][4:6])
    result = make(pool, image, kind="max", pad=pad, dtype="f16", **window)
    return casts.back(make.reshaped(result, node.outputs[0].shape), node.outputs[0])


# ---- data movement -------------------------------------------------------------------------------
def _hoist(node: Node, operand: Value) -> Any:
    """The function above the reshape or transpose that makes its operand."""
    small = as_f16(operand)
    move = small.producer if small is not None else None
    if small is None or move is None or move.op not in LAYOUT_CHANGES:
        return None
    if len(small.uses) != 1 or len(operand.uses) != 1 or not made_on_npu(small):
        return None
    given: list[Value | None] = []
    for v in node.inputs:
        if v is operand:
            given.append(move.inputs[0])
        else:
            number = None if v is None else data(v).astype(np.float16).reshape(())
            given.append(None if number is None else constant(number))
    moved = REGISTRY[move.op](REGISTRY[node.op](*given, **node.attrs), **move.attrs)
    return moved if node.outputs[0].dtype == "f16" else ops.cast(moved, dtype="f32")


def _move_before_cast(node: Node) -> Any:
    if node.op not in DATA_MOVEMENT or node.outputs[0].dtype != "f32":
        return None
    if node.attrs.get("mode", "nearest") != "nearest":
        return None  # it interpolates between pixels
    parts = node.inputs if node.op == "concat" else node.inputs[:1]
    small = [as_f16(v) for v in parts if v is not None]
    if len(small) != len(parts) or any(v is None for v in small):
        return None
    moved = REGISTRY[node.op](*small, *node.inputs[len(parts) :], **node.attrs)
    return ops.cast(moved, dtype="f32")
