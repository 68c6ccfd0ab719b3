"""Recognise functions that treat positive and negative elements differently: relu, elu, shrink."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import dtypes, ops, symint
from intaglio.ir import Array, Node, Value, constant
from intaglio.rewrite import OneOf, P, Pat, Rule, no, rule

INF = math.inf
x, c, d = P["x c! d!"]
POSITIVE = P.relu(x)
NEGATIVE = P.clip(x, lo=-INF, hi=0.0)
MINUS = P.relu(P.neg(x))


def number(c: Value) -> float | None:
    """The value of a one-element constant, else None."""
    return float(c.data.item()) if c.data is not None and c.data.size == 1 else None


def either(above: Any, below: Any) -> list[Pat]:
    """The spellings of a choice by the sign of x; both branches must agree at 0."""
    positive = P.one_of(P.op(("greater", "greater_equal"), x, 0.0), P.op(LESS, 0.0, x))
    negative = P.one_of(P.op(LESS, x, 0.0), P.op(("greater", "greater_equal"), 0.0, x))
    return [P.where(above, below, positive), P.where(below, above, negative)]


LESS = ("less", "less_equal")


def _any_of(patterns: list[Pat], build: Callable[..., Any]) -> list[Rule]:
    return [Rule(p, build) for p in patterns]


# ---- signs ---------------------------------------------------------------------------------------
@rule(P.mul(x, -1.0))
def negate(x: Value) -> Any:
    """x * -1"""
    return ops.neg(x)


@rule(P.neg(MINUS))
def negative_part(x: Value) -> Any:
    """-relu(-x), the part of x below zero"""
    return ops.clip(x, hi=0.0)


def _absolute(x: Value, node: Node) -> Any:
    """max(x, -x), relu(x) + relu(-x), sqrt(x^2), or -x where x is negative"""
    return ops.abs(x)


ABSOLUTE = _any_of(
    [
        P.maximum(x, P.neg(x)),
        P.add(POSITIVE, MINUS),
        P.sqrt(P.mul(x, x)),
        P.sqrt(P.pow(x, 2.0)),
        *either(x, P.neg(x)),
    ],
    _absolute,
)


# ---- relu and its slopes -------------------------------------------------------------------------
def _relu_of_where(x: Value) -> Any:
    """x where it is positive, else 0"""
    return ops.relu(x)


RELU = _any_of([*either(x, 0.0), P.mul(x, P.cast(P.greater(x, 0.0)))], _relu_of_where)


def _thresholded_relu(x: Value, c: Value) -> Any:
    """x where it is above a threshold, else 0"""
    bound = number(c)
    return ops.thresholded_relu(x, alpha=bound) if bound and dtypes.is_float(x.dtype) else None


THRESHOLDED = _any_of(
    [P.where(x, 0.0, P.greater(x, c)), P.where(0.0, x, P.less_equal(x, c))], _thresholded_relu
)


def sloped(x: Value, slope: Array) -> Any:
    """x where it is positive, else slope * x."""
    if slope.size == 1:
        return ops.leaky_relu(x, alpha=float(slope.item()))
    if len(slope.shape) > x.type.rank or symint.broadcast(slope.shape, x.shape) != x.shape:
        return no(f"slopes of shape {slope.shape} do not broadcast to {x.type}")
    return ops.prelu(x, constant(slope.astype(dtypes.numpy_of(x.dtype))))


def _by(factor: float) -> Callable[..., Any]:
    def prelu(x: Value, c: Value) -> Any:
        """x where it is positive, else x times a constant, in any spelling"""
        if c.data is None or not dtypes.is_float(x.dtype):
            return None
        return sloped(x, c.data * c.data.dtype.type(factor))

    return prelu


BEND = P.sub(x, P.abs(x))  # twice the negative part
HALF = P.one_of(P.mul(P.mul(BEND, c), 0.5), P.mul(P.mul(BEND, 0.5), c), P.mul(NEGATIVE, c))
PRELU = [
    *_any_of([*either(x, P.mul(x, c)), P.sub(POSITIVE, P.mul(MINUS, c))], _by(1)),
    *_any_of([P.add(POSITIVE, HALF)], _by(1)),
    *_any_of([P.add(POSITIVE, P.mul(MINUS, c))], _by(-1)),
    *_any_of([P.add(POSITIVE, P.mul(BEND, c))], _by(2)),
]


@rule(P.maximum(x, P.mul(x, c)))
def leaky_relu_of_maximum(x: Value, c: Value) -> Any:
    """max(x, slope * x) with slopes up to 1"""
    if c.data is None or not dtypes.is_float(x.dtype):
        return None
    return sloped(x, c.data) if np.all(c.data <= 1) else no("a slope is above 1")


# ---- elu, celu, selu -----------------------------------------------------------------------------
def _expm1(arg: Any) -> OneOf:
    result: OneOf = P.one_of(P.add(P.exp(arg), -1.0), P.sub(P.exp(arg), 1.0))
    return result


def _elu(x: Value, c: Value | None) -> Any:
    """x where it is positive, else a (exp(x) - 1)"""
    alpha = 1.0 if c is None else number(c)
    return None if alpha is None else ops.elu(x, alpha=alpha)


EXPONENTIAL = P.one_of(_expm1(x), P.mul(_expm1(x), c))
BELOW = P.clip(EXPONENTIAL, lo=-INF, hi=0.0)
ELU = _any_of(
    [
        *either(x, EXPONENTIAL),
        P.add(POSITIVE, P.one_of(BELOW, _expm1(NEGATIVE), P.mul(_expm1(NEGATIVE), c))),
    ],
    _elu,
)


def _celu(x: Value, c: Value, d: Value, inner: Node) -> Any:
    """x where it is positive, else a (exp(x / a) - 1)"""
    alpha, by = number(c), number(d)
    if alpha is None or not by:
        return None
    width = by if inner.op == "div" else 1 / by
    if not math.isclose(alpha, width, rel_tol=1e-5):
        return no(f"the factor is {alpha:g}, the divisor in the exponent {width:g}")
    return ops.celu(x, alpha=alpha)


WIDE = P.mul(_expm1(P.op(("mul", "div"), x, d) @ "inner"), c)
CELU = _any_of([*either(x, WIDE), P.add(POSITIVE, P.clip(WIDE, lo=-INF, hi=0.0))], _celu)


@rule(P.mul(P.elu(x) @ "inner", c))
def selu(x: Value, c: Value, inner: Node) -> Any:
    """elu(x) times a constant"""
    gamma = number(c)
    return None if gamma is None else ops.selu(x, alpha=inner.attrs["alpha"], gamma=gamma)


# ---- shrink --------------------------------------------------------------------------------------
def _hard_shrink(x: Value, c: Value, d: Value | None) -> Any:
    """x where |x| is above a threshold, else 0"""
    bound = number(c)
    if bound is None or bound < 0 or not dtypes.is_float(x.dtype):
        return None
    if d is not None and number(d) != -bound:
        return no(f"the bounds are {number(d)} and {bound}")
    return ops.shrink(x, bias=0.0, lambd=bound)


HARD_SHRINK = _any_of(
    [
        P.where(0.0, x, P.less_equal(P.abs(x), c)),
        P.where(x, 0.0, P.greater(P.abs(x), c)),
        P.where(x, 0.0, P.logical_or(P.greater(x, c), P.less(x, d))),
    ],
    _hard_shrink,
)


def _subtracted(c: Value, inner: Node) -> float | None:
    """c, if the node is x - c; -c, if it is x + c."""
    by = number(c)
    return -by if by is not None and inner.op == "add" else by


@rule(P.mul(P.sign(x), P.relu(P.op(("add", "sub"), P.abs(x), c) @ "inner")))
def soft_shrink(x: Value, c: Value, inner: Node) -> Any:
    """sign(x) relu(|x| - c)"""
    bound = _subtracted(c, inner)
    if bound is None or bound < 0 or not dtypes.is_float(x.dtype):
        return None
    return ops.shrink(x, bias=bound, lambd=bound)


ABOVE = P.where(P.op(("add", "sub"), x, c) @ "right", 0.0, P.greater(x, d))
BENEATH = P.where(P.op(("add", "sub"), x, P["e!"][0]) @ "left", 0.0, P.less(x, P["f!"][0]))


@rule(P.add(ABOVE, BENEATH))
def soft_shrink_of_two(
    x: Value, c: Value, d: Value, e: Value, f: Value, right: Node, left: Node
) -> Any:
    """x - c above a threshold, plus x + c below its negative"""
    down, up, hi, lo = _subtracted(c, right), _subtracted(e, left), number(d), number(f)
    if down is None or up is None or hi is None or lo is None or not dtypes.is_float(x.dtype):
        return None
    if down != -up or hi != -lo or hi < 0:
        return no(f"the two sides differ: {down:g} above {hi:g}, {up:g} below {lo:g}")
    return ops.shrink(x, bias=down, lambd=hi)


RECTIFIERS = [
    negate,
    negative_part,
    *ABSOLUTE,
    *RELU,
    *THRESHOLDED,
    *PRELU,
    leaky_relu_of_maximum,
    *ELU,
    *CELU,
    selu,
    *HARD_SHRINK,
    soft_shrink,
    soft_shrink_of_two,
]
