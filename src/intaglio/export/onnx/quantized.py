"""Arithmetic on quantised tensors as ONNX says it: in floats, between DequantizeLinear and back."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.rewrite import P, Rule, rule

a, b, x, at, az, bt, bz, ys, yz = P["a b x at az bt bz ys yz"]


def _real(q: Value | None, scale: Value | None, zero: Value | None) -> Value:
    made: Value = ops.dequantize_linear(q, scale, zero)
    return made


def _stored(v: Value, scale: Value, zero: Value) -> Value:
    made: Value = ops.quantize_linear(v, scale, zero, dtype=zero.dtype)
    return made


@rule(P.op(("qlinear_add", "qlinear_mul"), a, at, az, b, bt, bz, ys, yz))
def pair_in_floats(node: Node, ys: Value, yz: Value) -> Any:
    """ONNX has no sums and products of quantised tensors, but runtimes know them in this form"""
    op = ops.add if node.op == "qlinear_add" else ops.mul
    return _stored(op(_real(*node.inputs[:3]), _real(*node.inputs[3:6])), ys, yz)


@rule(P.op(("qlinear_mean", "qlinear_avg_pool"), x, at, az, ys, yz))
def mean_in_floats(node: Node, ys: Value, yz: Value) -> Any:
    """ONNX has no means of quantised tensors, but runtimes know them in this form"""
    op = ops.reduce_mean if node.op == "qlinear_mean" else ops.avg_pool
    return _stored(op(_real(*node.inputs[:3]), **node.attrs), ys, yz)


IN_FLOATS: tuple[Rule, ...] = (pair_in_floats, mean_in_floats)
