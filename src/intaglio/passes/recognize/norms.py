"""Recognise layer norms and RMS norms over the last axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value, constant
from intaglio.rewrite import P, rule

x, y, c = P["x y c!"]


def trailing(mean: Node) -> int | None:
    """The first axis of a mean over all last axes that keeps its axes; else None."""
    v = mean.inputs[0]
    assert v is not None
    axes, rank = mean.attrs["axes"], v.type.rank
    whole = axes == tuple(range(rank - len(axes), rank))
    return rank - len(axes) if whole and mean.attrs["keepdims"] and not v.type.dynamic else None


def is_square(square: Node) -> bool:
    """Is it x * x or x to the power of 2?"""
    if square.op == "mul":
        return square.inputs[0] is square.inputs[1]
    power = square.inputs[1]
    return power is not None and power.data is not None and bool(np.all(power.data == 2))


SQUARE = P.op(("pow", "mul"), x, y) @ "square"
MEAN_SQUARE = P.reduce_mean(SQUARE) @ "mean"


@rule(P.div(x, P.sqrt(P.add(MEAN_SQUARE, c))))
def norm_of_div(x: Value, c: Value, mean: Node, square: Node) -> Any:
    """x / sqrt(mean(x^2) + epsilon): an RMS norm, or a layer norm if x is centred"""
    axis = trailing(mean)
    if axis is None or not is_square(square) or c.type.size != 1:
        return None
    epsilon = float(c.data.item())  # type: ignore[union-attr]
    centre = _centred(x, axis)
    if centre is not None:
        return ops.layer_norm(centre, axis=axis, epsilon=epsilon)
    return ops.rms_norm(x, axis=axis, epsilon=epsilon)


ROOT = P.sqrt(P.add(MEAN_SQUARE, c))


@rule(P.mul(x, P.one_of(P.reciprocal(ROOT), P.div(1.0, ROOT))))
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
    return z if trailing(mean) == axis else None


@rule(P.mul(P.layer_norm(x) @ "norm", c))
def scale_into_layer_norm(x: Value, c: Value, norm: Node) -> Any:
    """Fold a factor per normalised element into the norm."""
    return ops.layer_norm(x, scale, None, **norm.attrs) if (scale := fit(c, norm)) else None


@rule(P.add(P.layer_norm(x, P["s?"][0]) @ "norm", c))
def shift_into_layer_norm(x: Value, s: Value | None, c: Value, norm: Node) -> Any:
    """Fold an addend per normalised element into the norm."""
    return ops.layer_norm(x, s, bias, **norm.attrs) if (bias := fit(c, norm)) else None


@rule(P.mul(P.rms_norm(x) @ "norm", c))
def scale_into_rms_norm(x: Value, c: Value, norm: Node) -> Any:
    """Fold a factor per normalised element into the norm."""
    return ops.rms_norm(x, scale, **norm.attrs) if (scale := fit(c, norm)) else None


def fit(c: Value, norm: Node) -> Value | None:
    """`c` in the shape of the normalised axes; None if it varies along other axes."""
    out = norm.outputs[0].type
    axis = norm.attrs["axis"] % out.rank
    if c.data is None or not dtypes.is_float(c.dtype) or c.type.rank > out.rank:
        return None
    full = c.data.reshape((1,) * (out.rank - c.type.rank) + c.shape)
    if any(n != 1 for n in full.shape[:axis]):
        return None
    inner = out.shape[axis:]
    return constant(np.ascontiguousarray(np.broadcast_to(full.reshape(full.shape[axis:]), inner)))


NORMS = [
    norm_of_div,
    norm_of_reciprocal,
    scale_into_layer_norm,
    shift_into_layer_norm,
    scale_into_rms_norm,
]
