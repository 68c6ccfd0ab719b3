"""Contrib ops of onnxruntime on quantised tensors, as dequantise, compute, quantise."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.onnx.contrib import DOMAIN, unpacked
from intaglio.frontends.onnx.conv import import_qlinear_conv
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.normalize import as_dtype, softmax_rows
from intaglio.frontends.onnx.pool import averaged
from intaglio.ir import Array, Value, constant
from intaglio.ops.registry import normalize_axis


def _real(n: OnnxNode, i: int) -> Value:
    """The (tensor, scale, zero) at operands `i` to `i + 2`, dequantised."""
    return ops.dequantize_linear(n.required(i), n.required(i + 1), n.input(i + 2))


def _stored(n: OnnxNode, y: Value, i: int) -> Value:
    """`y` quantised by the (scale, zero) at operand `i`; without a zero, in operand 0's type."""
    zero = n.input(i + 1)
    dtype = n.required(0).dtype if zero is None else zero.dtype
    return ops.quantize_linear(y, n.required(i), zero, dtype=dtype)


@importer("QLinearAdd", domain=DOMAIN)
def qlinear_add(n: OnnxNode) -> Value:
    return _stored(n, ops.add(_real(n, 0), _real(n, 3)), 6)


@importer("QLinearMul", domain=DOMAIN)
def qlinear_mul(n: OnnxNode) -> Value:
    return _stored(n, ops.mul(_real(n, 0), _real(n, 3)), 6)


@importer("QLinearWhere", domain=DOMAIN)
def qlinear_where(n: OnnxNode) -> Value:
    y = ops.where(_real(n, 1), _real(n, 4), n.required(0))
    return ops.quantize_linear(y, n.required(7), n.required(8), dtype=n.required(8).dtype)


@importer("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(n: OnnxNode) -> Value:
    return _stored(n, ops.leaky_relu(_real(n, 0), alpha=n.attr("alpha", 0.01)), 3)


@importer("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(n: OnnxNode) -> Value:
    return _stored(n, ops.sigmoid(_real(n, 0)), 3)


@importer("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(n: OnnxNode) -> Value:
    x, axis = _real(n, 0), n.attr("axis", -1)
    if n.attr("opset", 13) < 13:
        return _stored(n, softmax_rows(ops.softmax, x, axis), 3)
    return _stored(n, ops.softmax(x, axis=axis), 3)


@importer("QLinearConcat", domain=DOMAIN)
def qlinear_concat(n: OnnxNode) -> Value:
    parts = [_real(n, i) for i in range(2, len(n.inputs), 3)]
    y, zero = ops.concat(*parts, axis=n.attr("axis")), n.required(1)
    return ops.quantize_linear(y, n.required(0), zero, dtype=zero.dtype)


# ---- ops with channels first or last -----------------------------------------------------------
def _channels_first(n: OnnxNode, x: Value) -> Value:
    return ops.channels_first(x) if n.attr("channels_last", 0) else x


def _as_given(n: OnnxNode, y: Value) -> Value:
    return ops.channels_last(y) if n.attr("channels_last", 0) else y


@importer("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(n: OnnxNode) -> Value:
    x = _channels_first(n, _real(n, 0))
    y = ops.reduce_mean(x, axes=tuple(range(2, x.type.rank)))
    return _stored(n, _as_given(n, y), 3)


@importer("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(n: OnnxNode) -> Value:
    y = averaged(n, _channels_first(n, _real(n, 0)))
    return _stored(n, _as_given(n, y), 3)


@importer("QLinearConv", domain=DOMAIN)
def qlinear_conv(n: OnnxNode) -> Value:
    n.inputs[0] = _channels_first(n, n.required(0))
    return _as_given(n, import_qlinear_conv(n))  # type: ignore[arg-type]


# ---- products ----------------------------------------------------------------------------------
def _product(a: Value, b: Value, a_zero: Value | None, b_zero: Value | None, scale: Value) -> Value:
    whole = ops.matmul_integer(a, b, a_zero, b_zero)
    return ops.mul(ops.cast(whole, dtype="f32"), scale)


@importer("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(n: OnnxNode) -> Value:
    scale = ops.mul(n.required(2), n.required(3))
    y = _product(n.required(0), n.required(1), n.input(4), n.input(5), scale)
    bias = n.input(6)
    return y if bias is None else ops.add(y, bias)


@importer("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(n: OnnxNode) -> Value:
    a, a_scale, a_zero = ops.dynamic_quantize_linear(n.required(0))
    y = _product(a, n.required(1), a_zero, n.input(3), ops.mul(a_scale, n.required(2)))
    bias = n.input(4)
    return y if bias is None else ops.add(y, bias)


@importer("QGemm", domain=DOMAIN)
def qgemm(n: OnnxNode) -> Value:
    """Without an output scale the result is f32."""
    a, b, c = n.required(0), n.required(3), n.input(6)
    a = ops.transpose(a, perm=(1, 0)) if n.attr("transA", 0) else a
    b = ops.transpose(b, perm=(1, 0)) if n.attr("transB", 0) else b
    whole = ops.matmul_integer(a, b, n.required(2), n.required(5))
    whole = whole if c is None else ops.add(whole, c)
    scale = ops.mul(n.required(1), n.required(4))
    if n.attr("alpha", 1.0) != 1:
        scale = ops.mul(scale, constant(n.attr("alpha"), dtype="f32"))
    y = ops.mul(ops.cast(whole, dtype="f32"), scale)
    return y if n.input(7) is None else _stored(n, y, 7)


@importer("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(n: OnnxNode) -> Value:
    """Rows of a table of low-bit numbers, dequantised. A byte may hold several numbers."""
    data, indices, scales, zeros = n.required(0), n.required(1), n.required(2), n.input(3)
    axis = normalize_axis(n.attr("quantize_axis", 1), data.type.rank)
    bits = n.attr("bits", 4)
    if data.dtype == "u8":
        data = _unpacked_bits(np.asarray(n.const(0)), bits)
        if zeros is None:
            middle = np.full(scales.shape, 1 << (bits - 1))
            zeros = constant(middle.astype(dtypes.numpy_of(data.dtype)))
        else:
            whole = _unpacked_bits(np.asarray(n.const(3)), bits)
            zeros = ops.part(whole, 0, scales.shape[-1], axis=-1)
    table = ops.dequantize_linear(
        data,
        as_dtype(scales, "f32"),
        zeros,
        axis=axis,
        block_size=n.attr("block_size", 128),
        dtype=scales.dtype,
    )
    return ops.gather(table, indices, axis=n.attr("gather_axis", 0))


def _unpacked_bits(packed: Array, bits: int) -> Value:
    """The low-bit numbers that are packed into bytes along the last axis."""
    rows = unpacked(packed.reshape(-1, packed.shape[-1]), bits)
    return constant(rows.reshape(*packed.shape[:-1], -1).astype(dtypes.numpy_of(f"u{bits}")))
