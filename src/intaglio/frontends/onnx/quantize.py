"""ONNX QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from intaglio import ops
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.normalize import as_dtype
from intaglio.frontends.onnx.tensors import element_type
from intaglio.ir import Value
from intaglio.ops.registry import normalize_axis


def granularity(n: OnnxNode, x: Value, scale: Value, zero: Value | None) -> tuple[Value, int, int]:
    """The scale as f32, its axis, and its block size (0: no blocks)."""
    scale = as_dtype(scale, "f32")
    block = n.attr("block_size", 0)
    if scale.type.size == 1 and not (block and scale.type.rank == x.type.rank):
        return scale, 0, 0
    return scale, normalize_axis(n.attr("axis", 1), x.type.rank), block


@importer("QuantizeLinear")
@importer("QuantizeLinear", domain="com.microsoft")
def quantize_linear(n: OnnxNode) -> Value:
    x, zero = n.required(0), n.input(2)
    scale, axis, block = granularity(n, x, n.required(1), zero)
    named = n.attr("output_dtype", 0)
    dtype = element_type(named, "output_dtype") if named else "u8"
    return ops.quantize_linear(
        x,
        scale,
        zero,
        axis=axis,
        block_size=block,
        dtype=dtype if zero is None else zero.dtype,
        saturate=bool(n.attr("saturate", 1)),
    )


@importer("DequantizeLinear")
@importer("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(n: OnnxNode) -> Value:
    x, given, zero = n.required(0), n.required(1), n.input(2)
    scale, axis, block = granularity(n, x, given, zero)
    named = n.attr("output_dtype", 0)
    dtype = element_type(named, "output_dtype") if named else given.dtype
    return ops.dequantize_linear(x, scale, zero, axis=axis, block_size=block, dtype=dtype)
