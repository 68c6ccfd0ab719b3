"""ONNX Gemm and QLinearMatMul."""

from __future__ import annotations

from intaglio import dtypes, ops
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.normalize import as_dtype
from intaglio.ir import Value


@importer("Gemm")
def gemm(n: OnnxNode) -> Value:
    a, b, c = n.required(0), n.required(1), n.input(2)
    return ops.gemm(
        a,
        b,
        c,
        alpha=n.attr("alpha", 1.0),
        beta=n.attr("beta", 1.0),
        trans_a=bool(n.attr("transA", 0)),
        trans_b=bool(n.attr("transB", 0)),
    )


@importer("QLinearMatMul")
def qlinear_matmul(n: OnnxNode) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (n.required(i) for i in range(8))
    scales = [as_dtype(s, "f32") for s in (a_scale, b_scale, y_scale)]
    if all(dtypes.is_integer(v.dtype) for v in (a, b, y_zero)):
        return ops.qlinear_matmul(a, scales[0], a_zero, b, scales[1], b_zero, scales[2], y_zero)
    real_a = ops.dequantize_linear(a, scales[0], a_zero, axis=-2)
    real_b = ops.dequantize_linear(b, scales[1], b_zero, axis=-1)
    product = ops.matmul(real_a, real_b)
    return ops.quantize_linear(product, scales[2], y_zero, dtype=y_zero.dtype, axis=-2)
