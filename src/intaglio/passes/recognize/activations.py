"""Activations that a model spells out in small ops, and that have a name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.rewrite import P, Pat, Rule, no, rule

x, y = P["x y"]


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


def _hard_sigmoid(x: Value) -> Any:
    """relu6(x + 3) / 6"""
    return ops.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


RAMP = P.clip(P.add(x, 3.0), lo=0.0, hi=6.0)
HARD_SIGMOID = _any_of([P.div(RAMP, 6.0), P.mul(RAMP, 1 / 6)], _hard_sigmoid)


def _hardswish(x: Value) -> Any:
    """x * relu6(x + 3) / 6"""
    return ops.hardswish(x)


HARDSWISH = _any_of(
    [P.div(P.mul(x, RAMP), 6.0), P.mul(P.mul(x, RAMP), 1 / 6), P.mul(P.mul(x, 1 / 6), RAMP)],
    _hardswish,
)


@rule(P.mul(x, P.hard_sigmoid(x) @ "inner"))
def hardswish_of_hard_sigmoid(x: Value, inner: Node) -> Any:
    """x * hard_sigmoid(x), with the slope of hardswish"""
    if not np.allclose([inner.attrs["alpha"], inner.attrs["beta"]], [1 / 6, 0.5], rtol=1e-4):
        return no(f"its slope and offset are {inner.attrs}, hardswish has 1/6 and 1/2")
    return ops.hardswish(x)


def _halves(inner: Pat) -> Iterator[Pat]:
    """The ways of writing x * inner / 2."""
    yield P.mul(P.mul(x, inner), 0.5)
    yield P.mul(x, P.mul(inner, 0.5))
    yield P.mul(P.mul(x, 0.5), inner)


def _gelu(x: Value) -> Any:
    """x * (erf(x / sqrt 2) + 1) / 2"""
    return ops.gelu(x)


def _gelu_tanh(x: Value) -> Any:
    """x * (tanh(sqrt(2/pi) (x + 0.044715 x^3)) + 1) / 2"""
    return ops.gelu(x, approximate="tanh")


GELU = _any_of(
    [
        whole
        for arg in (P.div(x, math.sqrt(2)), P.mul(x, math.sqrt(0.5)))
        for whole in _halves(P.add(P.erf(arg), 1.0))
    ],
    _gelu,
)
GELU_TANH = _any_of(
    [
        whole
        for cube in (P.pow(x, 3.0), P.mul(x, P.mul(x, x)), P.mul(x, P.pow(x, 2.0)))
        for arg in (P.mul(P.add(x, P.mul(cube, 0.044715)), math.sqrt(2 / math.pi)),)
        for whole in _halves(P.add(P.tanh(arg), 1.0))
    ],
    _gelu_tanh,
)


ACTIVATIONS = [
    softplus,
    mish,
    swish,
    *HARDSWISH,
    *HARD_SIGMOID,
    hardswish_of_hard_sigmoid,
    *GELU,
    *GELU_TANH,
]
