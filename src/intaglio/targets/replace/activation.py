"""Replace activations, norms and arithmetic by simpler ops, for units that lack them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value
from intaglio.ops.registry import normalize_axis
from intaglio.rewrite import P, Rule, no
from intaglio.targets.replace.builder import like, replacement

x, y, s, h = P["x y s? h?"]


# ---- activations ---------------------------------------------------------------------------------
@replacement(P.hardswish(x))
def hardswish_as_product(node: Node, x: Value) -> Any:
    """x * hard_sigmoid(x)"""
    return ops.mul(x, ops.hard_sigmoid(x, alpha=1 / 6, beta=0.5))


@replacement(P.hard_sigmoid(x))
def hard_sigmoid_as_clip(node: Node, x: Value) -> Any:
    """clip(alpha * x + beta, 0, 1)"""
    line = ops.add(ops.mul(x, like(x, node.attrs["alpha"])), like(x, node.attrs["beta"]))
    return ops.clip(line, lo=0.0, hi=1.0)


@replacement(P.swish(x))
def swish_as_product(node: Node, x: Value) -> Any:
    """x * sigmoid(alpha * x)"""
    alpha = node.attrs["alpha"]
    return ops.mul(x, ops.sigmoid(x if alpha == 1 else ops.mul(x, like(x, alpha))))


@replacement(P.mish(x))
def mish_as_product(node: Node, x: Value) -> Any:
    """x * tanh(softplus(x))"""
    return ops.mul(x, ops.tanh(ops.softplus(x)))


@replacement(P.softplus(x))
def softplus_as_logarithm(node: Node, x: Value) -> Any:
    """relu(x) + log(1 + exp(-|x|)), which does not overflow"""
    small = ops.log(ops.add(ops.exp(ops.neg(ops.abs(x))), like(x, 1)))
    return ops.add(ops.relu(x), small)


@replacement(P.gelu(x))
def gelu_as_product(node: Node, x: Value) -> Any:
    """x / 2 * (1 + erf(x / sqrt(2))), or with tanh if the model approximates"""
    if node.attrs["approximate"] == "tanh":
        cube = ops.mul(ops.mul(x, x), ops.mul(x, like(x, 0.044715)))
        inner = ops.tanh(ops.mul(ops.add(x, cube), like(x, math.sqrt(2 / math.pi))))
    else:
        inner = ops.erf(ops.mul(x, like(x, math.sqrt(0.5))))
    return ops.mul(ops.mul(x, like(x, 0.5)), ops.add(inner, like(x, 1)))


@replacement(P.sigmoid(x))
def sigmoid_as_tanh(node: Node, x: Value) -> Any:
    """tanh(x / 2) / 2 + 1 / 2"""
    half = like(x, 0.5)
    return ops.add(ops.mul(ops.tanh(ops.mul(x, half)), half), half)


@replacement(P.tanh(x))
def tanh_as_sigmoid(node: Node, x: Value) -> Any:
    """2 * sigmoid(2 x) - 1"""
    two = like(x, 2)
    return ops.add(ops.mul(ops.sigmoid(ops.mul(x, two)), two), like(x, -1))


@replacement(P.op(("elu", "celu", "selu"), x))
def elu_as_exponential(node: Node, x: Value) -> Any:
    """relu(x) + alpha * (exp(min(x, 0)) - 1)"""
    alpha = node.attrs["alpha"]
    low = ops.clip(x, lo=-math.inf, hi=0.0)
    low = ops.mul(low, like(x, 1 / alpha)) if node.op == "celu" else low
    bent = ops.mul(ops.add(ops.exp(low), like(x, -1)), like(x, alpha))
    whole = ops.add(ops.relu(x), bent)
    return ops.mul(whole, like(x, node.attrs["gamma"])) if node.op == "selu" else whole


@replacement(P.leaky_relu(x))
def leaky_relu_as_maximum(node: Node, x: Value) -> Any:
    """max(x, alpha * x), or min if alpha > 1; exact"""
    alpha = node.attrs["alpha"]
    line = ops.mul(x, like(x, alpha))
    return ops.maximum(x, line) if alpha <= 1 else ops.minimum(x, line)


@replacement(P.prelu(x, y))
def prelu_as_relus(node: Node, x: Value, y: Value) -> Any:
    """relu(x) - slope * relu(-x); exact"""
    return ops.sub(ops.relu(x), ops.mul(y, ops.relu(ops.neg(x))))


@replacement(P.clip(x))
def clip_as_min_max(node: Node, x: Value) -> Any:
    """min(max(x, lo), hi); exact"""
    lo, hi = node.attrs["lo"], node.attrs["hi"]
    if not dtypes.is_float(x.dtype):
        return no(f"{x.dtype} is not a float")
    low = x if lo == -math.inf else ops.maximum(x, like(x, lo))
    return low if hi == math.inf else ops.minimum(low, like(x, hi))


# ---- norms ---------------------------------------------------------------------------------------
@replacement(P.softmax(x))
def softmax_as_exponentials(node: Node, x: Value) -> Any:
    """exp(x - max(x)) / sum(exp(x - max(x)))"""
    axes = (normalize_axis(node.attrs["axis"], x.type.rank),)
    e = ops.exp(ops.sub(x, ops.reduce_max(x, axes=axes)))
    return ops.div(e, ops.reduce_sum(e, axes=axes))


@replacement(P.log_softmax(x))
def log_softmax_as_logarithm(node: Node, x: Value) -> Any:
    """x - max(x) - log(sum(exp(x - max(x))))"""
    axes = (normalize_axis(node.attrs["axis"], x.type.rank),)
    low = ops.sub(x, ops.reduce_max(x, axes=axes))
    return ops.sub(low, ops.log(ops.reduce_sum(ops.exp(low), axes=axes)))


@replacement(P.op("layer_norm", x, s, h))
def layer_norm_as_reductions(node: Node, x: Value, s: Value | None, h: Value | None) -> Any:
    """means, a square root and a division"""
    axes = tuple(range(normalize_axis(node.attrs["axis"], x.type.rank), x.type.rank))
    low = ops.sub(x, ops.reduce_mean(x, axes=axes))
    spread = ops.reduce_mean(ops.mul(low, low), axes=axes)
    z = ops.div(low, ops.sqrt(ops.add(spread, like(x, node.attrs["epsilon"]))))
    z = z if s is None else ops.mul(z, s)
    return z if h is None else ops.add(z, h)


@replacement(P.op("rms_norm", x, s))
def rms_norm_as_reductions(node: Node, x: Value, s: Value | None) -> Any:
    """a mean of squares, a square root and a division"""
    axes = tuple(range(normalize_axis(node.attrs["axis"], x.type.rank), x.type.rank))
    spread = ops.reduce_mean(ops.mul(x, x), axes=axes)
    z = ops.div(x, ops.sqrt(ops.add(spread, like(x, node.attrs["epsilon"]))))
    return z if s is None else ops.mul(z, s)


# ---- arithmetic ----------------------------------------------------------------------------------
@replacement(P.sub(x, y))
def sub_as_add(node: Node, x: Value, y: Value) -> Any:
    """x + (-1) * y; exact"""
    if not dtypes.is_float(x.dtype):
        return no(f"{x.dtype} may lack -1 or overflow")
    return ops.add(x, ops.mul(y, like(y, -1)))


@replacement(P.div(x, y))
def div_as_mul(node: Node, x: Value, y: Value) -> Any:
    """x * reciprocal(y)"""
    if not dtypes.is_float(x.dtype):
        return no(f"integer division truncates: {x.dtype}")
    return ops.mul(x, ops.reciprocal(y))


@replacement(P.neg(x))
def neg_as_mul(node: Node, x: Value) -> Any:
    """-1 * x; exact"""
    if not dtypes.is_float(x.dtype):
        return no(f"{x.dtype} may lack -1")
    return ops.mul(x, like(x, -1))


@replacement(P.op("pow", x, *P["e!"]))
def pow_as_mul(node: Node, x: Value, e: Value) -> Any:
    """products for the exponents 2, 3 and 4, a square root for 0.5"""
    if e.type.size != 1 or e.type.rank > x.type.rank or not dtypes.is_float(x.dtype):
        return None
    power = float(np.asarray(e.data).item())
    if power == 0.5:
        return ops.sqrt(x)
    if power not in (2, 3, 4):
        return no(f"the exponent is {power:g}; 2, 3, 4 and 0.5 are supported")
    square = ops.mul(x, x)
    if power == 2:
        return square
    return ops.mul(square, x if power == 3 else square)


ACTIVATIONS: list[Rule] = [
    hardswish_as_product,
    hard_sigmoid_as_clip,
    swish_as_product,
    mish_as_product,
    softplus_as_logarithm,
    gelu_as_product,
    sigmoid_as_tanh,
    tanh_as_sigmoid,
    elu_as_exponential,
    leaky_relu_as_maximum,
    prelu_as_relus,
    clip_as_min_max,
    softmax_as_exponentials,
    log_softmax_as_logarithm,
    layer_norm_as_reductions,
    rms_norm_as_reductions,
    sub_as_add,
    neg_as_mul,
    div_as_mul,
    pow_as_mul,
]
