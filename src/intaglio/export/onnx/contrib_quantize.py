"""Contrib operators of onnxruntime on quantised tensors (QLinearAdd and others), and their rule."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.export.onnx.contrib import DOMAIN
from intaglio.export.onnx.expression import Onnx, make, writes
from intaglio.export.onnx.onnx_ops import onnx_op
from intaglio.ir import Node, Value, constant
from intaglio.rewrite import ANY, P, no, rule


def _real(v: Value, scale: Value, zero: Value) -> Value:
    result: Value = ops.dequantize_linear(v, scale, zero)
    return result


def _stored(v: Value, scale: Value, zero: Value) -> Value:
    result: Value = ops.quantize_linear(v, scale, zero, dtype=zero.dtype)
    return result


def _binary(op: Any) -> Any:
    def build(
        a: Value,
        a_scale: Value,
        a_zero: Value,
        b: Value,
        b_scale: Value,
        b_zero: Value,
        y_scale: Value,
        y_zero: Value,
    ) -> Value:
        return _stored(op(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), y_scale, y_zero)

    return build


def _unary(op: Any) -> Any:
    def build(
        a: Value, a_scale: Value, a_zero: Value, y_scale: Value, y_zero: Value, **attrs: Any
    ) -> Value:
        return _stored(op(_real(a, a_scale, a_zero), **attrs), y_scale, y_zero)

    return build


@onnx_op("QLinearConcat")
def qlinear_concat(y_scale: Value, y_zero: Value, *parts: Value, axis: int) -> Value:
    """concatenation of tensors with different scales"""
    triples = [parts[i : i + 3] for i in range(0, len(parts), 3)]
    return _stored(ops.concat(*(_real(*t) for t in triples), axis=axis), y_scale, y_zero)


def _mean(v: Value) -> Value:
    result: Value = ops.reduce_mean(v, axes=tuple(range(2, v.type.rank)), keepdims=True)
    return result


QLINEAR: dict[str, Any] = {
    "add": onnx_op("QLinearAdd")(_binary(ops.add)),
    "mul": onnx_op("QLinearMul")(_binary(ops.mul)),
    "sigmoid": onnx_op("QLinearSigmoid")(_unary(ops.sigmoid)),
    "reduce_mean": onnx_op("QLinearGlobalAveragePool")(_unary(_mean)),
    "concat": qlinear_concat,
}


@writes(*(op.name for op in QLINEAR.values()))
def write_qlinear(n: Node) -> Onnx:
    return make(n.op.removeprefix("onnx."), *n.inputs, domain=DOMAIN, axis=n.attrs.get("axis"))


@rule(P.quantize_linear(ANY @ "inner", *P["ys! yz?"]))
def integer_op(inner: Node, ys: Value, yz: Value | None, node: Node) -> Any:
    """an op between DequantizeLinear and QuantizeLinear becomes one integer op"""
    dtype = node.attrs["dtype"]
    if inner.op not in QLINEAR or dtype not in ("i8", "u8") or len(inner.outputs[0].uses) > 1:
        return None
    if inner.op == "reduce_mean" and not _spatial(inner):
        return None
    triples = []
    for v in inner.inputs:
        made = v.producer if v is not None else None
        if made is None or made.op != "dequantize_linear" or made.outputs[0].dtype != "f32":
            return no("an operand is not dequantised")
        q, scale, zero = made.inputs
        if scale is None or q is None or scale.type.size != 1 or q.dtype != dtype:
            return no(f"an operand is {q.type if q else '-'}, the result {dtype}")
        triples.append((q, _single(scale), _zero(zero, q.dtype)))
    if ys.type.size != 1:
        return no(f"the result has {ys.type.size} scales, one is needed")
    result = (_single(ys), _zero(yz, dtype))
    flat = [v for t in triples for v in t]
    if inner.op == "concat":
        return qlinear_concat(*result, *flat, axis=inner.attrs["axis"])
    return QLINEAR[inner.op](*flat, *result)


def _spatial(node: Node) -> bool:
    rank = node.inputs[0].type.rank  # type: ignore[union-attr]
    return bool(node.attrs["keepdims"]) and node.attrs["axes"] == tuple(range(2, rank)) != ()


def _single(v: Value) -> Value:
    assert v.data is not None
    return constant(v.data.reshape(()))


def _zero(v: Value | None, dtype: str) -> Value:
    return constant(0, dtype=dtype) if v is None else _single(v)


QUANTIZED_RULES = (integer_op,)
