"""Recognise activations that a model spells out in small ops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.passes.recognize.rectifiers import number
from intaglio.rewrite import OneOf, P, Pat, Rule, no, rule

x, y, c, d = P["x y c! d!"]
LINEAR_FROM = 16  # softplus(x) - x is below 2e-7 from here on


def _any_of(patterns: list[Pat], build: Any) -> list[Rule]:
    return [Rule(p, build) for p in patterns]


@rule(P.mul(x, P.sigmoid(x)))
def swish(x: Value) -> Any:
    """x * sigmoid(x)"""
    return ops.swish(x)


@rule(P.mul(x, P.tanh(P.softplus(x))))
def mish(x: Value) -> Any:
    """x * tanh(softplus(x))"""
    return ops.mish(x)


@rule(P.log(P.add(P.exp(x), 1.0)))
def softplus(x: Value) -> Any:
    """log(exp(x) + 1)"""
    return ops.softplus(x)


@rule(P.where(x, P.softplus(x), P.greater(x, c)))
def softplus_with_threshold(x: Value, c: Value, node: Node) -> Any:
    """softplus(x), but x above a threshold: the same from 16 on"""
    bound = number(c)
    if bound is None or bound < LINEAR_FROM:
        return no("the threshold is below 16, where softplus(x) and x differ")
    return ops.softplus(x)


SOFT = P.op(("mul", "div"), P.softplus(y), d) @ "outer"


@rule(P.where(x, SOFT, P.greater(y, c)))
def scaled_softplus_with_threshold(x: Value, y: Value, c: Value, outer: Node) -> Any:
    """softplus(b x) / b, but x above a threshold"""
    bound, by, inner = number(c), number(outer.inputs[1]), y.producer  # type: ignore[arg-type]
    if inner is None or inner.op != "mul" or inner.inputs[0] is not x or not by:
        return None
    beta = number(inner.inputs[1])  # type: ignore[arg-type]
    by = by if outer.op == "div" else 1 / by
    if beta is None or not math.isclose(beta, by, rel_tol=1e-5):
        return None
    if bound is None or bound < LINEAR_FROM:
        return no("the threshold is below 16, where softplus(x) and x differ")
    return outer.outputs[0]


@rule(P.div(x, P.add(P.abs(x), 1.0)))
def softsign(x: Value) -> Any:
    """x / (|x| + 1)"""
    return ops.softsign(x) if dtypes.is_float(x.dtype) else None


def _sigmoid(x: Value) -> Any:
    """1 / (1 + exp(-x))"""
    return ops.sigmoid(x)


EXP = P.add(P.exp(P.neg(x)), 1.0)
SIGMOID = _any_of([P.div(1.0, EXP), P.reciprocal(EXP)], _sigmoid)


@rule(P.div(x, EXP))
def swish_of_quotient(x: Value) -> Any:
    """x / (1 + exp(-x))"""
    return ops.swish(x)


@rule(P.mul(x, P.sigmoid(P.mul(x, c))))
def swish_with_slope(x: Value, c: Value) -> Any:
    """x * sigmoid(a x)"""
    alpha = number(c)
    return None if alpha is None else ops.swish(x, alpha=alpha)


def _line(shift_first: bool) -> Any:
    def hard_sigmoid(x: Value, c: Value, d: Value, scale: Node, ramp: Node | None) -> Any:
        """clip(a x + b, 0, 1), in any spelling"""
        by, shift = number(c), number(d)
        if not by or shift is None or not dtypes.is_float(x.dtype):
            return None
        alpha = 1 / by if scale.op == "div" else by
        if ramp is not None and not math.isclose(top := ramp.attrs["hi"] * alpha, 1, rel_tol=1e-4):
            return no(f"its maximum is {top:g}; that of a hard sigmoid is 1")
        return ops.hard_sigmoid(x, alpha=alpha, beta=shift * alpha if shift_first else shift)

    return hard_sigmoid


def _scaled(inner: Any) -> Pat:
    result: Pat = P.op(("mul", "div"), inner, c) @ "scale"
    return result


HARD_SIGMOID = [
    Rule(_scaled(P.clip(P.add(x, d), lo=0.0) @ "ramp"), _line(True)),
    Rule(P.clip(_scaled(P.add(x, d)), lo=0.0, hi=1.0), _line(True)),
    Rule(P.clip(P.add(_scaled(x), d), lo=0.0, hi=1.0), _line(False)),
]
RAMP = P.clip(P.add(x, 3.0), lo=0.0, hi=6.0)


def _hardswish(x: Value) -> Any:
    """x * relu6(x + 3) / 6"""
    return ops.hardswish(x)


HARDSWISH = _any_of(
    [
        P.div(P.mul(x, RAMP), 6.0),
        P.mul(P.mul(x, RAMP), 1 / 6),
        P.mul(P.one_of(P.mul(x, 1 / 6), P.div(x, 6.0)), RAMP),
    ],
    _hardswish,
)


@rule(P.mul(x, P.hard_sigmoid(x) @ "inner"))
def hardswish_of_hard_sigmoid(x: Value, inner: Node) -> Any:
    """x * hard_sigmoid(x) with slope 1/6 and offset 1/2"""
    if not np.allclose([inner.attrs["alpha"], inner.attrs["beta"]], [1 / 6, 0.5], rtol=1e-4):
        return no(f"slope and offset are {inner.attrs}; hardswish needs 1/6 and 1/2")
    return ops.hardswish(x)


def _halves(inner: Pat) -> Iterator[Pat]:
    """The spellings of x * inner / 2."""
    yield P.mul(P.mul(x, inner), 0.5)
    yield P.mul(x, P.mul(inner, 0.5))
    yield P.mul(P.mul(x, 0.5), inner)


def _cubic() -> OneOf:
    """The spellings of sqrt(2/pi) (x + 0.044715 x^3)."""
    root = math.sqrt(2 / math.pi)
    square = P.one_of(P.mul(x, x), P.pow(x, 2.0))
    cube = P.one_of(P.pow(x, 3.0), P.mul(x, square))
    growth = P.add(P.mul(square, 0.044715), 1.0)
    result: OneOf = P.one_of(
        P.mul(P.add(x, P.mul(cube, 0.044715)), root),
        P.mul(P.mul(x, growth), root),
        P.mul(P.mul(x, root), growth),
        P.mul(x, P.mul(growth, root)),
    )
    return result


def _gelu(x: Value) -> Any:
    """x * (erf(x / sqrt 2) + 1) / 2"""
    return ops.gelu(x)


def _gelu_tanh(x: Value) -> Any:
    """x * (tanh(sqrt(2/pi) (x + 0.044715 x^3)) + 1) / 2"""
    return ops.gelu(x, approximate="tanh")


ERF = P.erf(P.one_of(P.div(x, math.sqrt(2)), P.mul(x, math.sqrt(0.5))))
GELU = _any_of([*_halves(P.add(ERF, 1.0)), P.mul(x, P.add(P.mul(ERF, 0.5), 0.5))], _gelu)
GELU_TANH = _any_of([*_halves(P.add(P.tanh(_cubic()), 1.0))], _gelu_tanh)


ACTIVATIONS = [
    softplus,
    softplus_with_threshold,
    scaled_softplus_with_threshold,
    softsign,
    *SIGMOID,
    mish,
    swish,
    swish_of_quotient,
    swish_with_slope,
    *HARDSWISH,
    *HARD_SIGMOID,
    hardswish_of_hard_sigmoid,
    *GELU,
    *GELU_TANH,
]
