"""Two computations that are one, or none; and one way to say each. All exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.passes.canonical.data_movement import BINARY
from intaglio.rewrite import P, no, rule

x, y, z, c, d = P["x y z c! d!"]


# ---- casts and quantisation ----------------------------------------------------------------------
@rule(P.cast(P.cast(x).shared() @ "inner"))
def cast_of_cast(x: Value, inner: Node, node: Node) -> Any:
    """a detour over a type that holds every value of the first, or all bits of the last"""
    first, middle, last = x.dtype, inner.attrs["dtype"], node.attrs["dtype"]
    whole = all(dtypes.TABLE[t].kind in "iu" for t in (first, middle, last))
    bits = [dtypes.TABLE[t].bits for t in (first, middle, last)]
    if not (holds(middle, first) or (whole and bits[1] >= bits[2])):
        return no(f"{middle} does not hold every {first}")
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
        return (wide, narrow) in {
            ("f64", "f32"),
            ("f64", "f16"),
            ("f64", "bf16"),
            ("f32", "f16"),
            ("f32", "bf16"),
        }
    return n.kind in "iu" and w.bits > n.bits and (w.kind == "i" or n.kind == "u")


@rule(P.quantize_linear(P.dequantize_linear(x, *P["s! z?"]).shared() @ "inner", *P["ys! yz?"]))
def quantize_of_dequantize(x: Value, s: Value, inner: Node, node: Node) -> Any:
    """back to the integers that it was; dequantize of quantize is not, it rounds"""
    if x.dtype != node.attrs["dtype"] or dtypes.TABLE[x.dtype].kind not in "iu":
        return None
    if dtypes.TABLE[x.dtype].bits > 16 or inner.attrs["dtype"] != "f32":
        return no(f"a float does not hold every {x.dtype} times a scale")
    grain = ("axis", "block_size") if s.type.size > 1 else ("block_size",)
    if any(inner.attrs[k] != node.attrs[k] for k in grain):
        return no("the scales lie along different axes")
    for mine, other in zip(inner.inputs[1:], node.inputs[1:], strict=True):
        if not np.array_equal(_or_zero(mine), _or_zero(other)):
            return no("their scales or zeros differ")
    if not np.all((s.data > 2.0**-100) & (s.data < 2.0**100)):  # type: ignore[operator]
        return no("a scale is too small or too large for the way back")
    return x


def _or_zero(v: Value | None) -> Array:
    data = np.zeros(1, np.float64) if v is None or v.data is None else v.data.astype(np.float64)
    return np.unique(data) if len(np.unique(data)) == 1 else data


# ---- clamps --------------------------------------------------------------------------------------
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


# ---- one after the other -------------------------------------------------------------------------
@rule(
    P.op(
        ("neg", "logical_not", "bitwise_not"),
        P.op(("neg", "logical_not", "bitwise_not"), x).shared() @ "inner",
    )
)
def undone_at_once(x: Value, inner: Node, node: Node) -> Any:
    """minus minus x, not not x"""
    return x if inner.op == node.op else None


ROUNDING = ("floor", "ceil", "round")


@rule(P.op(ROUNDING, P.op(ROUNDING, x).shared() @ "inner"))
def rounding_of_rounded(inner: Node) -> Any:
    """what is whole stays"""
    return inner.outputs[0]


@rule(P.abs(P.op(("neg", "abs"), x).shared()))
def abs_of_either_sign(x: Value) -> Any:
    """the sign does not matter"""
    return ops.abs(x)


@rule(P.op(("add", "sub"), x, P.neg(y).shared()))
def negation_into_sum(x: Value, y: Value, node: Node) -> Any:
    """x + -y is x - y, x - -y is x + y"""
    return ops.sub(x, y) if node.op == "add" else ops.add(x, y)


@rule(P.op(("mul", "div"), P.neg(x).shared(), P.neg(y).shared()))
def negations_cancel(x: Value, y: Value, node: Node) -> Any:
    """-x * -y is x * y"""
    return REGISTRY[node.op](x, y)


@rule(P.op(("mul", "div"), P.neg(x).shared(), c))
def negation_into_constant(x: Value, c: Value, node: Node) -> Any:
    """-x * c is x * -c"""
    if c.data is None or dtypes.TABLE[c.dtype].kind == "u" or node.inputs[1] is not c:
        return None
    return REGISTRY[node.op](x, constant(-c.data))


@rule(P.where(x, y, P.logical_not(z).shared()))
def where_not(x: Value, y: Value, z: Value) -> Any:
    """the branches change places"""
    return ops.where(y, x, z)


OPPOSITE = {
    "less": "greater_equal",
    "greater_equal": "less",
    "greater": "less_equal",
    "less_equal": "greater",
}


@rule(P.logical_not(P.op(tuple(OPPOSITE), x, y) @ "inner"))
def not_of_comparison(x: Value, y: Value, inner: Node) -> Any:
    """the opposite comparison, of integers: no float that is not a number is less or equal"""
    return None if dtypes.is_float(x.dtype) else REGISTRY[OPPOSITE[inner.op]](x, y)


# ---- constants -----------------------------------------------------------------------------------
@rule(P.op(BINARY, c, x))
def constant_to_the_right(c: Value, x: Value, node: Node) -> Any:
    """a commutative op has its constant on the right"""
    first, second = node.inputs
    if first is not c or second is None or second.data is not None:
        return None
    return REGISTRY[node.op](x, c, **node.attrs) if REGISTRY[node.op].commutes else None


@rule(P.div(c, x))
def one_by_x(c: Value, x: Value, node: Node) -> Any:
    """1 / x has a name"""
    if not dtypes.is_float(x.dtype) or not np.all(c.data == 1):
        return None
    return ops.reciprocal(x) if x.type == node.outputs[0].type else None


ALWAYS = (
    "maximum",
    "minimum",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
)
ASSOCIATIVE = (*ALWAYS, "add", "mul")


@rule(P.op(ASSOCIATIVE, P.op(ASSOCIATIVE, x, c) @ "inner", d))
def exact_constants_meet(x: Value, c: Value, d: Value, inner: Node, node: Node) -> Any:
    """max(max(x, c), d) is max(x, max(c, d)): where no rounding depends on the order"""
    if inner.op != node.op or (node.op not in ALWAYS and dtypes.is_float(x.dtype)):
        return None
    both = np.broadcast_shapes(c.shape, d.shape)
    if math.prod(both) > max(c.type.size, d.type.size):
        return no(f"{c.type} and {d.type} together are larger than each")
    with np.errstate(all="ignore"):
        return REGISTRY[node.op](x, constant(np.asarray(REGISTRY[node.op].body(c.data, d.data))))


@rule(P.prelu(x, c))
def prelu_of_one_slope(x: Value, c: Value) -> Any:
    """the same slope everywhere is an attribute of leaky_relu"""
    if c.type.size != 1 or not dtypes.is_float(x.dtype):
        return None
    return ops.leaky_relu(x, alpha=float(c.data.item()))  # type: ignore[union-attr]


NUMBERS = [
    cast_of_cast,
    quantize_of_dequantize,
    clip_of_clip,
    clip_of_relu,
    relu_of_clip,
    clip_of_bound,
    clip_is_relu,
    undone_at_once,
    rounding_of_rounded,
    abs_of_either_sign,
    negation_into_sum,
    negations_cancel,
    negation_into_constant,
    where_not,
    not_of_comparison,
    constant_to_the_right,
    one_by_x,
    exact_constants_meet,
    prelu_of_one_slope,
]
