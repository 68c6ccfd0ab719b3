"""Activations and norms that a model spells out in small ops, and that have a name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value, constant
from intaglio.rewrite import P, Pat, Rule, no, rule

x, y, c, d = P["x y c! d!"]


def _any_of(patterns: list[Pat], build: Any) -> list[Rule]:
    return [Rule(p, build) for p in patterns]


# ---- activations ---------------------------------------------------------------------------------
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


# ---- norms ---------------------------------------------------------------------------------------
def _trailing(mean: Node) -> int | None:
    """The axis from which on a mean is taken to the end, if it keeps its axes."""
    v = mean.inputs[0]
    assert v is not None
    axes, rank = mean.attrs["axes"], v.type.rank
    whole = axes == tuple(range(rank - len(axes), rank))
    return rank - len(axes) if whole and mean.attrs["keepdims"] and not v.type.dynamic else None


def _is_square(square: Node) -> bool:
    if square.op == "mul":
        return square.inputs[0] is square.inputs[1]
    power = square.inputs[1]
    return power is not None and power.data is not None and bool(np.all(power.data == 2))


SQUARE = P.op(("pow", "mul"), x, y) @ "square"
MEAN_SQUARE = P.reduce_mean(SQUARE) @ "mean"


@rule(P.div(x, P.sqrt(P.add(MEAN_SQUARE, c))))
def norm_of_div(x: Value, c: Value, mean: Node, square: Node) -> Any:
    """x / sqrt(mean(x^2) + epsilon): an RMS norm, or a layer norm if x is centred"""
    axis = _trailing(mean)
    if axis is None or not _is_square(square) or c.type.size != 1:
        return None
    epsilon = float(c.data.item())  # type: ignore[union-attr]
    centre = _centred(x, axis)
    if centre is not None:
        return ops.layer_norm(centre, axis=axis, epsilon=epsilon)
    return ops.rms_norm(x, axis=axis, epsilon=epsilon)


@rule(P.mul(x, P.reciprocal(P.sqrt(P.add(MEAN_SQUARE, c)))))
def norm_of_reciprocal(x: Value, c: Value, mean: Node, square: Node) -> Any:
    """x * (1 / sqrt(mean(x^2) + epsilon))"""
    return norm_of_div.build(x, c, mean, square)


def _centred(x: Value, axis: int) -> Value | None:
    """z, if x is z - mean(z) from `axis` on."""
    sub = x.producer
    if sub is None or sub.op != "sub":
        return None
    z, middle = sub.inputs
    mean = middle.producer if middle is not None else None
    if mean is None or mean.op != "reduce_mean" or mean.inputs[0] is not z:
        return None
    return z if _trailing(mean) == axis else None


@rule(P.mul(P.layer_norm(x) @ "norm", c))
def scale_into_layer_norm(x: Value, c: Value, norm: Node) -> Any:
    """a factor per normalised element"""
    return ops.layer_norm(x, scale, None, **norm.attrs) if (scale := _fit(c, norm)) else None


@rule(P.add(P.layer_norm(x, P["s?"][0]) @ "norm", c))
def shift_into_layer_norm(x: Value, s: Value | None, c: Value, norm: Node) -> Any:
    """a summand per normalised element"""
    return ops.layer_norm(x, s, bias, **norm.attrs) if (bias := _fit(c, norm)) else None


@rule(P.mul(P.rms_norm(x) @ "norm", c))
def scale_into_rms_norm(x: Value, c: Value, norm: Node) -> Any:
    """a factor per normalised element"""
    return ops.rms_norm(x, scale, **norm.attrs) if (scale := _fit(c, norm)) else None


def _fit(c: Value, norm: Node) -> Value | None:
    """`c` in the shape of what is normalised; None if it varies over other axes."""
    out = norm.outputs[0].type
    axis = norm.attrs["axis"] % out.rank
    if c.data is None or not dtypes.is_float(c.dtype) or c.type.rank > out.rank:
        return None
    full = c.data.reshape((1,) * (out.rank - c.type.rank) + c.shape)
    if any(n != 1 for n in full.shape[:axis]):
        return None
    inner = out.shape[axis:]
    return constant(np.ascontiguousarray(np.broadcast_to(full.reshape(full.shape[axis:]), inner)))


RECOGNIZE = [
    softplus,
    mish,
    swish,
    *HARDSWISH,
    *HARD_SIGMOID,
    hardswish_of_hard_sigmoid,
    *GELU,
    *GELU_TANH,
    norm_of_div,
    norm_of_reciprocal,
    scale_into_layer_norm,
    shift_into_layer_norm,
    scale_into_rms_norm,
]
