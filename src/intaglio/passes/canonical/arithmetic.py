"""Simplify pairs of casts, clamps, negations and constants, and write each one way. All exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops, symint
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.passes.canonical.data_movement import BINARY
from intaglio.rewrite import P, no, rule

x, y, z, c, d = P["x y z c! d!"]


# ---- casts and quantisation ----------------------------------------------------------------------
@rule(P.cast(P.cast(x).shared() @ "inner"))
def cast_of_cast(x: Value, inner: Node, node: Node) -> Any:
    """Merge two casts if the middle type loses nothing that the result keeps."""
    first, middle, last = x.dtype, inner.attrs["dtype"], node.attrs["dtype"]
    whole = all(dtypes.TABLE[t].kind in "iu" for t in (first, middle, last))
    bits = [dtypes.TABLE[t].bits for t in (first, middle, last)]
    if not (holds(middle, first) or (whole and bits[1] >= bits[2])):
        return no(f"{middle} cannot represent every value of {first}")
    return ops.cast(x, **node.attrs)


def holds(wide: str, narrow: str) -> bool:
    """Can element type `wide` represent every value of `narrow`?"""
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
    """Cancel quantize(dequantize(x)) with equal parameters. The reverse order rounds and stays."""
    if x.dtype != node.attrs["dtype"] or dtypes.TABLE[x.dtype].kind not in "iu":
        return None
    if dtypes.TABLE[x.dtype].bits > 16 or inner.attrs["dtype"] != "f32":
        return no(f"f32 cannot represent every {x.dtype} times a scale")
    grain = ("axis", "block_size") if s.type.size > 1 else ("block_size",)
    if any(inner.attrs[k] != node.attrs[k] for k in grain):
        return no("the scales lie along different axes")
    for mine, other in zip(inner.inputs[1:], node.inputs[1:], strict=True):
        if not np.array_equal(_or_zero(mine), _or_zero(other)):
            return no("their scales or zero points differ")
    if not np.all((s.data > 2.0**-100) & (s.data < 2.0**100)):  # type: ignore[operator]
        return no("a scale is too small or too large for an exact round trip")
    return x


def _or_zero(v: Value | None) -> Array:
    data = np.zeros(1, np.float64) if v is None or v.data is None else v.data.astype(np.float64)
    return np.unique(data) if len(np.unique(data)) == 1 else data


# ---- clamps --------------------------------------------------------------------------------------
@rule(P.clip(P.clip(x) @ "inner"))
def clip_of_clip(x: Value, inner: Node, node: Node) -> Any:
    """Merge two clips into their intersection."""
    lo = max(inner.attrs["lo"], node.attrs["lo"])
    hi = min(inner.attrs["hi"], node.attrs["hi"])
    return ops.clip(x, lo=lo, hi=hi) if lo <= hi else no(f"the intersection [{lo}, {hi}] is empty")


@rule(P.clip(P.relu(x)))
def clip_of_relu(x: Value, node: Node) -> Any:
    """Merge clip(relu(x)) into one clip."""
    hi = node.attrs["hi"]
    return ops.clip(x, lo=max(0.0, node.attrs["lo"]), hi=hi) if hi >= 0 else None


@rule(P.relu(P.clip(x) @ "inner"))
def relu_of_clip(x: Value, inner: Node) -> Any:
    """Merge relu(clip(x)) into one clip."""
    hi = inner.attrs["hi"]
    return ops.clip(x, lo=max(0.0, inner.attrs["lo"]), hi=hi) if hi >= 0 else None


@rule(P.op(("maximum", "minimum"), x, c))
def extremum_as_clip(x: Value, c: Value, node: Node) -> Any:
    """Write maximum(x, c) and minimum(x, c) with a scalar c as a clip."""
    if not dtypes.is_float(x.dtype) or c.type.size != 1 or c.type.rank > x.type.rank:
        return None
    bound = float(c.data.item())  # type: ignore[union-attr]
    if math.isnan(bound):
        return None
    lo, hi = (bound, math.inf) if node.op == "maximum" else (-math.inf, bound)
    return ops.clip(x, lo=lo, hi=hi)


@rule(P.clip(x))
def clip_as_relu(x: Value, node: Node) -> Any:
    """Write clip(x, 0, inf) as relu, and remove a clip without bounds."""
    lo, hi = node.attrs["lo"], node.attrs["hi"]
    if hi == math.inf and lo == -math.inf:
        return x
    return ops.relu(x) if lo == 0 and hi == math.inf else None


# ---- pairs of unary ops --------------------------------------------------------------------------
@rule(
    P.op(
        ("neg", "logical_not", "bitwise_not"),
        P.op(("neg", "logical_not", "bitwise_not"), x).shared() @ "inner",
    )
)
def double_negation(x: Value, inner: Node, node: Node) -> Any:
    """Cancel -(-x), not not x, and ~~x."""
    return x if inner.op == node.op else None


ROUNDING = ("floor", "ceil", "round")


@rule(P.op(ROUNDING, P.op(ROUNDING, x).shared() @ "inner"))
def round_of_round(inner: Node) -> Any:
    """Remove a floor, ceil or round of a tensor that is already rounded."""
    return inner.outputs[0]


@rule(P.abs(P.op(("neg", "abs"), x).shared()))
def abs_of_negation(x: Value) -> Any:
    """Remove a neg or abs below an abs."""
    return ops.abs(x)


@rule(P.op(("add", "sub"), x, P.neg(y).shared()))
def negation_into_sum(x: Value, y: Value, node: Node) -> Any:
    """Write x + (-y) as x - y, and x - (-y) as x + y."""
    return ops.sub(x, y) if node.op == "add" else ops.add(x, y)


@rule(P.op(("mul", "div"), P.neg(x).shared(), P.neg(y).shared()))
def negations_cancel(x: Value, y: Value, node: Node) -> Any:
    """Write (-x) * (-y) as x * y."""
    return REGISTRY[node.op](x, y)


@rule(P.op(("mul", "div"), P.neg(x).shared(), c))
def negation_into_constant(x: Value, c: Value, node: Node) -> Any:
    """Write (-x) * c as x * (-c)."""
    if c.data is None or dtypes.TABLE[c.dtype].kind == "u" or node.inputs[1] is not c:
        return None
    return REGISTRY[node.op](x, constant(-c.data))


@rule(P.where(x, y, P.logical_not(z).shared()))
def where_not(x: Value, y: Value, z: Value) -> Any:
    """Swap the branches of a `where` with a negated condition."""
    return ops.where(y, x, z)


OPPOSITE = {
    "less": "greater_equal",
    "greater_equal": "less",
    "greater": "less_equal",
    "less_equal": "greater",
}


@rule(P.logical_not(P.op(tuple(OPPOSITE), x, y) @ "inner"))
def not_of_comparison(x: Value, y: Value, inner: Node) -> Any:
    """Write not (x < y) as x >= y, for integers only: NaN compares false both ways."""
    return None if dtypes.is_float(x.dtype) else REGISTRY[OPPOSITE[inner.op]](x, y)


# ---- constants -----------------------------------------------------------------------------------
@rule(P.op(BINARY, c, x))
def constant_on_right(c: Value, x: Value, node: Node) -> Any:
    """Put the constant operand of a commutative op on the right."""
    first, second = node.inputs
    if first is not c or second is None or second.data is not None:
        return None
    return REGISTRY[node.op](x, c, **node.attrs) if REGISTRY[node.op].commutes else None


@rule(P.div(c, x))
def quotient_as_reciprocal(c: Value, x: Value, node: Node) -> Any:
    """Write 1 / x as reciprocal(x)."""
    if not dtypes.is_float(x.dtype) or not np.all(c.data == 1):
        return None
    return ops.reciprocal(x) if x.type == node.outputs[0].type else None


EXACT = (  # associative without rounding
    "maximum",
    "minimum",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
)
ASSOCIATIVE = (*EXACT, "add", "mul")


@rule(P.op(ASSOCIATIVE, P.op(ASSOCIATIVE, x, c) @ "inner", d))
def combine_constants_exactly(x: Value, c: Value, d: Value, inner: Node, node: Node) -> Any:
    """Write max(max(x, c), d) as max(x, max(c, d)), for ops where the order cannot change
    rounding.
    """
    if inner.op != node.op or (node.op not in EXACT and dtypes.is_float(x.dtype)):
        return None
    both = symint.broadcast(c.shape, d.shape)
    if math.prod(both) > max(c.type.size, d.type.size):
        return no(f"combining {c.type} and {d.type} makes a larger constant")
    with np.errstate(all="ignore"):
        return REGISTRY[node.op](x, constant(np.asarray(REGISTRY[node.op].body(c.data, d.data))))


@rule(P.prelu(x, c))
def prelu_as_leaky_relu(x: Value, c: Value) -> Any:
    """Write a prelu with one slope as leaky_relu."""
    if c.type.size != 1 or not dtypes.is_float(x.dtype):
        return None
    return ops.leaky_relu(x, alpha=float(c.data.item()))  # type: ignore[union-attr]


ARITHMETIC = [
    cast_of_cast,
    quantize_of_dequantize,
    clip_of_clip,
    clip_of_relu,
    relu_of_clip,
    extremum_as_clip,
    clip_as_relu,
    double_negation,
    round_of_round,
    abs_of_negation,
    negation_into_sum,
    negations_cancel,
    negation_into_constant,
    where_not,
    not_of_comparison,
    constant_on_right,
    quotient_as_reciprocal,
    combine_constants_exactly,
    prelu_as_leaky_relu,
]
