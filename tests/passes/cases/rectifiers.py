"""Cases: relu, elu, shrink and other activations in the spellings of exporters."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tests.passes.cases.build import IMAGE, INF, VECTOR, case, scalar

from intaglio import ops
from intaglio.ir import Value, constant

ZERO, HALF, ONE = scalar(0), scalar(0.5), scalar(1)
SLOPES = constant(np.array([0.25, -0.5, 0.1, 0.9], np.float32).reshape(4, 1, 1))
Made = Callable[[Value], Value]


def negative(x: Value) -> Value:
    made: Value = ops.clip(x, lo=-INF, hi=0.0)
    return made


def minus(x: Value) -> Value:
    made: Value = ops.relu(ops.neg(x))
    return made


def choose(below: Made) -> list[Made]:
    """x where it is positive, else `below`, in four ways."""
    return [
        lambda x: ops.where(x, below(x), ops.greater(x, ZERO)),
        lambda x: ops.where(below(x), x, ops.less(x, ZERO)),
        lambda x: ops.where(x, below(x), ops.less_equal(ZERO, x)),
        lambda x: ops.where(below(x), x, ops.greater_equal(ZERO, x)),
    ]


def expm1(x: Value) -> Value:
    made: Value = ops.sub(ops.exp(x), ONE)
    return made


# ---- signs ---------------------------------------------------------------------------------------
case("negate", lambda x: ops.mul(x, scalar(-1)), VECTOR)
case("negative_part", lambda x: ops.neg(minus(x)), VECTOR)
case("absolute", lambda x: ops.maximum(ops.neg(x), x), VECTOR)
case("absolute", lambda x: ops.add(ops.relu(x), minus(x)), VECTOR)
case("absolute", lambda x: ops.sqrt(ops.mul(x, x)), VECTOR)
case("absolute", lambda x: ops.sqrt(ops.pow(x, scalar(2))), VECTOR)
for way in choose(ops.neg):
    case("absolute", way, VECTOR)

# ---- slopes --------------------------------------------------------------------------------------
for way in choose(lambda x: ZERO):
    case("relu_of_where", way, VECTOR)
case("relu_of_where", lambda x: ops.mul(ops.cast(ops.greater(x, ZERO), dtype="f32"), x), VECTOR)
case("thresholded_relu", lambda x: ops.where(x, ZERO, ops.greater(x, HALF)), VECTOR)
case("thresholded_relu", lambda x: ops.where(ZERO, x, ops.less_equal(x, HALF)), VECTOR)
for way in choose(lambda x: ops.mul(x, SLOPES)):
    case("prelu", way, IMAGE)
for way in choose(lambda x: ops.mul(x, scalar(0.2))):
    case("prelu", way, IMAGE)
BEND = lambda x: ops.sub(x, ops.abs(x))  # noqa: E731
for below in (
    lambda x: ops.mul(negative(x), SLOPES),
    lambda x: ops.mul(minus(x), SLOPES),
    lambda x: ops.mul(BEND(x), SLOPES),
    lambda x: ops.mul(ops.mul(BEND(x), SLOPES), HALF),
    lambda x: ops.mul(SLOPES, ops.mul(BEND(x), HALF)),
):
    case("prelu", lambda x, below=below: ops.add(ops.relu(x), below(x)), IMAGE)
case("prelu", lambda x: ops.sub(ops.relu(x), ops.mul(SLOPES, minus(x))), IMAGE)
case("leaky_relu_of_maximum", lambda x: ops.maximum(x, ops.mul(x, scalar(0.1))), VECTOR)
case("leaky_relu_of_maximum", lambda x: ops.maximum(ops.mul(x, SLOPES), x), IMAGE)

# ---- exponential below zero ----------------------------------------------------------------------
for way in choose(expm1):
    case("elu", way, VECTOR)
for way in choose(lambda x: ops.mul(scalar(0.7), ops.add(ops.exp(x), scalar(-1)))):
    case("elu", way, VECTOR)
case("elu", lambda x: ops.add(ops.relu(x), negative(expm1(x))), VECTOR)
case("elu", lambda x: ops.add(ops.mul(expm1(negative(x)), scalar(0.3)), ops.relu(x)), VECTOR)
for way in choose(lambda x: ops.mul(expm1(ops.div(x, scalar(0.7))), scalar(0.7))):
    case("celu", way, VECTOR)
case(
    "celu",
    lambda x: ops.add(ops.relu(x), negative(ops.mul(expm1(ops.mul(x, scalar(2))), HALF))),
    VECTOR,
)
case("selu", lambda x: ops.mul(ops.elu(x, alpha=1.6732), scalar(1.0507)), VECTOR)

# ---- shrink --------------------------------------------------------------------------------------
case("hard_shrink", lambda x: ops.where(ZERO, x, ops.less_equal(ops.abs(x), HALF)), VECTOR)
case("hard_shrink", lambda x: ops.where(x, ZERO, ops.greater(ops.abs(x), HALF)), VECTOR)
case(
    "hard_shrink",
    lambda x: ops.where(x, ZERO, ops.logical_or(ops.greater(x, HALF), ops.less(x, scalar(-0.5)))),
    VECTOR,
)
case("soft_shrink", lambda x: ops.mul(ops.sign(x), ops.relu(ops.sub(ops.abs(x), HALF))), VECTOR)

case(
    "soft_shrink_of_two",
    lambda x: ops.add(
        ops.where(ops.sub(x, HALF), ZERO, ops.greater(x, HALF)),
        ops.where(ops.add(x, HALF), ZERO, ops.less(x, scalar(-0.5))),
    ),
    VECTOR,
)

# ---- smooth activations --------------------------------------------------------------------------
TWO, MANY = scalar(2), scalar(20)
case(
    "softplus_with_threshold", lambda x: ops.where(x, ops.softplus(x), ops.greater(x, MANY)), VECTOR
)


def guarded(x: Value, back: Made) -> Value:
    wide = ops.mul(x, TWO)
    made: Value = ops.where(x, back(ops.softplus(wide)), ops.greater(wide, MANY))
    return made


case("scaled_softplus_with_threshold", lambda x: guarded(x, lambda y: ops.div(y, TWO)), VECTOR)
case("scaled_softplus_with_threshold", lambda x: guarded(x, lambda y: ops.mul(y, HALF)), VECTOR)
case("softsign", lambda x: ops.div(x, ops.add(ONE, ops.abs(x))), VECTOR)
EXP = lambda x: ops.add(ONE, ops.exp(ops.neg(x)))  # noqa: E731
case("sigmoid", lambda x: ops.div(ONE, EXP(x)), VECTOR)
case("sigmoid", lambda x: ops.reciprocal(EXP(x)), VECTOR)
case("swish_of_quotient", lambda x: ops.div(x, EXP(x)), VECTOR)
case("swish_with_slope", lambda x: ops.mul(x, ops.sigmoid(ops.mul(scalar(1.702), x))), VECTOR)
RAMP = lambda x: ops.clip(ops.add(x, scalar(2)), lo=0.0, hi=5.0)  # noqa: E731
case("hard_sigmoid", lambda x: ops.div(RAMP(x), scalar(5)), VECTOR)
LINE = lambda x: ops.add(ops.div(x, scalar(6)), HALF)  # noqa: E731
case("hard_sigmoid", lambda x: ops.clip(LINE(x), lo=0.0, hi=1.0), VECTOR)
case("hard_sigmoid", lambda x: ops.clip(ops.mul(ops.add(x, TWO), HALF), lo=0.0, hi=1.0), VECTOR)
RELU6 = lambda x: ops.clip(ops.add(x, scalar(3)), lo=0.0, hi=6.0)  # noqa: E731
case("hardswish", lambda x: ops.mul(ops.div(x, scalar(6)), RELU6(x)), VECTOR)
ERF = lambda x: ops.erf(ops.mul(x, scalar(math.sqrt(0.5))))  # noqa: E731
case("gelu", lambda x: ops.mul(x, ops.add(ops.mul(ERF(x), HALF), HALF)), VECTOR)


def tanh_gelu(arg: Made) -> Made:
    return lambda x: ops.mul(ops.mul(HALF, x), ops.add(ops.tanh(arg(x)), ONE))


ROOT = scalar(math.sqrt(2 / math.pi))
GROWTH = lambda x: ops.add(ops.mul(ops.mul(x, x), scalar(0.044715)), ONE)  # noqa: E731
for arg in (
    lambda x: ops.mul(ops.mul(x, GROWTH(x)), ROOT),
    lambda x: ops.mul(ops.mul(x, ROOT), GROWTH(x)),
    lambda x: ops.mul(x, ops.mul(GROWTH(x), ROOT)),
):
    case("gelu_tanh", tanh_gelu(arg), VECTOR)
