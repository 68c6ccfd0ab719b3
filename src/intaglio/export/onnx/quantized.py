"""Lower quantised ops that ONNX lacks to floats between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.rewrite import P, Rule, rule

a, b, x, at, az, bt, bz, ys, yz = P["a b x at az bt bz ys yz"]


def _real(q: Value | None, scale: Value | None, zero: Value | None) -> Value:
    result: Value = ops.dequantize_linear(q, scale, zero)
    return result


def _stored(v: Value, scale: Value, zero: Value) -> Value:
    result: Value = ops.quantize_linear(v, scale, zero, dtype=zero.dtype)
    return result


@rule(P.op(("qlinear_add", "qlinear_mul"), a, at, az, b, bt, bz, ys, yz))
def pair_in_floats(node: Node, ys: Value, yz: Value) -> Any:
    """sums and products of quantised tensors; runtimes recognise this form"""
    op = ops.add if node.op == "qlinear_add" else ops.mul
    return _stored(op(_real(*node.inputs[:3]), _real(*node.inputs[3:6])), ys, yz)


@rule(P.op(("qlinear_mean", "qlinear_avg_pool"), x, at, az, ys, yz))
def mean_in_floats(node: Node, ys: Value, yz: Value) -> Any:
    """means of quantised tensors; runtimes recognise this form"""
    op = ops.reduce_mean if node.op == "qlinear_mean" else ops.avg_pool
    return _stored(op(_real(*node.inputs[:3]), **node.attrs), ys, yz)


w, ws, r, rs, bias, h, c = P["w ws r rs bias? h? c?"]


def _weights(stored: Value, scale: Value) -> Value:
    """i8 weights dequantised by one scale per row and direction."""
    d, rows, k = stored.shape
    flat = ops.reshape(stored, shape=(d * rows, k))
    real = ops.dequantize_linear(flat, ops.reshape(scale, shape=(d * rows,)), axis=0)
    result: Value = ops.reshape(real, shape=(d, rows, k))
    return result


def _usual(functions: tuple[str, ...], w: Value) -> dict[str, Any]:
    """The default activations of every direction."""
    every = functions * w.shape[0]
    none = (0.0,) * len(every)
    return {"activations": every, "activation_alpha": none, "activation_beta": none}


@rule(P.dynamic_lstm(x, w, ws, r, rs, bias, h, c))
def lstm_in_floats(
    node: Node,
    x: Value,
    w: Value,
    ws: Value,
    r: Value,
    rs: Value,
    bias: Value | None,
    h: Value | None,
    c: Value | None,
) -> Any:
    """a dynamically quantised LSTM becomes an LSTM with dequantised weights"""
    return ops.lstm(
        x,
        _weights(w, ws),
        _weights(r, rs),
        bias,
        None,
        h,
        c,
        **node.attrs,
        **_usual(("Sigmoid", "Tanh", "Tanh"), w),
    )


@rule(P.dynamic_gru(x, w, ws, r, rs, bias, h))
def gru_in_floats(
    node: Node,
    x: Value,
    w: Value,
    ws: Value,
    r: Value,
    rs: Value,
    bias: Value | None,
    h: Value | None,
) -> Any:
    """a dynamically quantised GRU becomes a GRU with dequantised weights"""
    return ops.gru(
        x,
        _weights(w, ws),
        _weights(r, rs),
        bias,
        None,
        h,
        linear_before_reset=True,
        **node.attrs,
        **_usual(("Sigmoid", "Tanh"), w),
    )


IN_FLOATS: tuple[Rule, ...] = (pair_in_floats, mean_in_floats, lstm_in_floats, gru_in_floats)
