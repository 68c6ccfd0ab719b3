"""Fold batch norms behind quantised convolutions, as quantisation-aware training leaves them."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.passes.fuse import along, as_like, wide
from intaglio.passes.integer.operands import BITS4, BITS8, source, zero_of
from intaglio.rewrite import P, Rule, no, rule

STEPS = ("mul", "div", "add", "sub", "batch_norm")
MAX_STEPS = 16  # affine nodes that are folded at once
MAX_BETWEEN = 64  # nodes to look at for a quantize_linear
BETWEEN = ("relu", "clip", "add", "max_pool", "reshape", "transpose")


def _step(n: Node) -> tuple[Value, Array, Array] | None:
    """The operand, factor and addend per channel of an affine node; None for any other node."""
    x = n.inputs[0]
    if n.op not in STEPS or x is None or n.outputs[0].type.rank < 3 or n.outputs[0].dtype != "f32":
        return None
    if n.op == "batch_norm":
        if any(v is None or v.data is None for v in n.inputs[1:]):
            return None
        scale, bias, middle, spread = (wide(v.data) for v in n.inputs[1:])  # type: ignore[arg-type,union-attr]
        factor = scale / np.sqrt(spread + n.attrs["epsilon"])
        return x, factor, bias - middle * factor
    y = n.inputs[1]
    if x.data is not None and n.op in ("mul", "add"):
        x, y = y, x
    c = along(y, n.outputs[0], 1) if y is not None else None
    if x is None or c is None or x.type != n.outputs[0].type:
        return None
    c, one = wide(c), np.ones(len(c))
    if n.op in ("mul", "div"):
        if n.op == "div" and not c.all():
            return None
        return x, c if n.op == "mul" else 1 / c, 0 * one
    return x, one, c if n.op == "add" else -c


def _rounded(node: Node) -> bool:
    """Is the result quantised later, with no other affine step in between?"""
    todo, seen = list(node.outputs[0].uses), set[Node]()
    while todo and len(seen) < MAX_BETWEEN:
        n = todo.pop()
        if n.op == "quantize_linear":
            return True
        if n.op in BETWEEN and n not in seen and not _step(n):
            todo += n.outputs[0].uses
        seen.add(n)
    return False


@rule(P.any(*STEPS))
def batch_norm_into_quantized_weights(node: Node) -> Any:
    """Fold factors and addends per channel behind a quantised convolution into its scales
    and bias.
    """
    result, factor, shift = node, np.ones(1), np.zeros(1)
    for _ in range(MAX_STEPS):
        if (step := _step(result)) is None:
            break
        x, by, plus = step
        factor, shift = factor * by, shift + factor * plus
        if x.producer is None or len(x.uses) != 1:
            return None
        result = x.producer
    dw = source(result.inputs[1], (*BITS8, *BITS4)) if result.op == "conv" else None
    if result is node or dw is None or source(result.inputs[0]) is None:
        return None
    if not _rounded(node):
        return None  # a float result must not be rounded; or a later step folds this one
    q, scale, zero = dw.inputs
    bias = result.inputs[2]
    assert q is not None
    assert scale is not None
    assert scale.data is not None
    per = scale.type.size > 1 and dw.attrs["axis"] % q.type.rank
    if q.data is None or dw.attrs["block_size"] or per:
        return no("the weights are not constant with one scale per tensor or output channel")
    if bias is not None and bias.data is None:
        return no("the bias is not constant")
    many = (len(q.data),)
    factor = np.broadcast_to(factor, many)
    zeros = np.broadcast_to(zero_of(q, zero, scale.shape).data, many)  # type: ignore[arg-type]
    negated = _negated(q, zeros, factor < 0)
    if negated is None or not (np.isfinite(factor).all() and factor.all()):
        return no("a channel's factor is 0, or its weights cannot be negated in their type")
    w = ops.dequantize_linear(
        negated,
        as_like(scale, np.broadcast_to(wide(scale.data), many) * np.abs(factor)),
        constant(np.ascontiguousarray(zeros), dtype=q.dtype),
        axis=0,
        block_size=0,
        dtype=dw.attrs["dtype"],
    )
    b = shift if bias is None else wide(bias.data) * factor + shift  # type: ignore[arg-type]
    addend = constant(np.broadcast_to(b, many).astype(np.float32))
    return ops.conv(result.inputs[0], w, addend, origin=result.origin, **result.attrs)


def _negated(q: Value, zeros: Array, which: Array) -> Value | None:
    """Weights with the sign of the `which` outputs flipped; None if a value leaves the type's
    range.
    """
    if not which.any():
        return q
    wide_q, middle = q.data.astype(np.int16), zeros.astype(np.int16)  # type: ignore[union-attr]
    column = (-1, *(1,) * (wide_q.ndim - 1))
    negated = np.where(which.reshape(column), 2 * middle.reshape(column) - wide_q, wide_q)
    low, high = dtypes.limits(q.dtype)
    if negated.min() < low or negated.max() > high:
        return None
    return constant(negated.astype(dtypes.numpy_of(q.dtype)), dtype=q.dtype)


AFFINE: list[Rule] = [batch_norm_into_quantized_weights]
