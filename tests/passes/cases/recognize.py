"""Cases: activations, norms and pooling spelled out in small ops."""

from __future__ import annotations

import math

from tests.passes.cases.build import VECTOR, case, num, scalar

from intaglio import ops
from intaglio.ir import Value

RAMP = lambda x: ops.clip(ops.add(x, scalar(3)), lo=0.0, hi=6.0)  # noqa: E731
ERF = lambda x: ops.add(ops.erf(ops.div(x, scalar(math.sqrt(2)))), scalar(1))  # noqa: E731
ERF2 = lambda x: ops.add(scalar(1), ops.erf(ops.mul(scalar(math.sqrt(0.5)), x)))  # noqa: E731


def tanh_arg(x: Value, cube: Value) -> Value:
    inner = ops.mul(scalar(math.sqrt(2 / math.pi)), ops.add(x, ops.mul(cube, scalar(0.044715))))
    made: Value = ops.add(ops.tanh(inner), scalar(1))
    return made


def square(x: Value) -> Value:
    made: Value = ops.pow(x, scalar(2))
    return made


def centred(x: Value) -> Value:
    made: Value = ops.sub(x, ops.reduce_mean(x, axes=(1,), keepdims=True))
    return made


def spread(x: Value, squared: Value, axis: int = 1) -> Value:
    mean = ops.reduce_mean(squared, axes=(axis,), keepdims=True)
    made: Value = ops.sqrt(ops.add(mean, scalar(1e-3)))
    return made


def layer_norm(x: Value) -> Value:
    d = centred(x)
    made: Value = ops.div(d, spread(d, square(d)))
    return made


HALF = scalar(0.5)
case("swish", lambda x: ops.mul(ops.sigmoid(x), x), VECTOR)
case("mish", lambda x: ops.mul(x, ops.tanh(ops.softplus(x))), VECTOR)
case("softplus", lambda x: ops.log(ops.add(scalar(1), ops.exp(x))), VECTOR)
case("hard_sigmoid", lambda x: ops.div(RAMP(x), scalar(6)), VECTOR)
case("hard_sigmoid", lambda x: ops.mul(RAMP(x), scalar(1 / 6)), VECTOR)
case("hardswish", lambda x: ops.div(ops.mul(x, RAMP(x)), scalar(6)), VECTOR)
case("hardswish", lambda x: ops.mul(ops.mul(x, RAMP(x)), scalar(1 / 6)), VECTOR)
case("hardswish", lambda x: ops.mul(ops.mul(scalar(1 / 6), x), RAMP(x)), VECTOR)
case(
    "hardswish_of_hard_sigmoid",
    lambda x: ops.mul(x, ops.hard_sigmoid(x, alpha=1 / 6, beta=0.5)),
    VECTOR,
)
case("gelu", lambda x: ops.mul(ops.mul(x, ERF(x)), HALF), VECTOR)
case("gelu", lambda x: ops.mul(x, ops.mul(ERF2(x), HALF)), VECTOR)
case("gelu", lambda x: ops.mul(ERF(x), ops.mul(HALF, x)), VECTOR)
case("gelu_tanh", lambda x: ops.mul(ops.mul(x, HALF), tanh_arg(x, ops.pow(x, scalar(3)))), VECTOR)
case(
    "gelu_tanh", lambda x: ops.mul(x, ops.mul(HALF, tanh_arg(x, ops.mul(x, ops.mul(x, x))))), VECTOR
)
case("norm_of_div", layer_norm, VECTOR)
case("norm_of_div", lambda x: ops.div(x, spread(x, ops.mul(x, x))), VECTOR)
case("norm_of_reciprocal", lambda x: ops.mul(ops.reciprocal(spread(x, square(x))), x), VECTOR)
case("scale_into_layer_norm", lambda x: ops.mul(num(5), ops.layer_norm(x, axis=1)), VECTOR)
case("shift_into_layer_norm", lambda x: ops.add(ops.layer_norm(x, num(5), axis=1), num(5)), VECTOR)
case("scale_into_rms_norm", lambda x: ops.mul(ops.rms_norm(x, axis=1), num(1, 5)), VECTOR)
