"""Contrib ops of onnxruntime (com.microsoft) on floats: matmul, activations, norms, embeddings."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.onnx.conv import activated
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.normalize import (
    as_dtype,
    layer_norm,
    scaled_layer_norm,
    scaled_rms_norm,
)
from intaglio.ir import Array, Value, constant

DOMAIN = "com.microsoft"


@importer("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(n: OnnxNode) -> Value:
    a = _permuted(n.required(0), n.attr("transA", 0), n.attr("transBatchA", 0))
    b = _permuted(n.required(1), n.attr("transB", 0), n.attr("transBatchB", 0))
    y, alpha = ops.matmul(a, b), n.attr("alpha", 1.0)
    return y if alpha == 1 else ops.mul(y, constant(alpha, dtype=y.dtype))


def _permuted(x: Value, swap: int, batch_first: int) -> Value:
    """`x` with its first axis moved before the last, and then the last two swapped, if set."""
    perm = list(range(x.type.rank))
    if batch_first and len(perm) > 2:
        perm = [*perm[1:-1], 0, perm[-1]]
    if swap and len(perm) > 1:
        perm[-2:] = perm[-1], perm[-2]
    return x if perm == sorted(perm) else ops.transpose(x, perm=tuple(perm))


@importer("FusedGemm", domain=DOMAIN)
def fused_gemm(n: OnnxNode) -> Value:
    y = ops.gemm(
        n.required(0),
        n.required(1),
        n.input(2),
        alpha=n.attr("alpha", 1.0),
        beta=n.attr("beta", 1.0),
        trans_a=bool(n.attr("transA", 0)),
        trans_b=bool(n.attr("transB", 0)),
    )
    return activated(n, y, n.attr("activation_alpha", 0.0), n.attr("activation_beta", 0.0))


# ---- activations -------------------------------------------------------------------------------
@importer("Gelu", "BiasGelu", domain=DOMAIN)
def gelu(n: OnnxNode) -> Value:
    return ops.gelu(_plus(n.required(0), n.input(1)))


@importer("FastGelu", domain=DOMAIN)
def fast_gelu(n: OnnxNode) -> Value:
    return ops.gelu(_plus(n.required(0), n.input(1)), approximate="tanh")


@importer("QuickGelu", domain=DOMAIN)
def quick_gelu(n: OnnxNode) -> Value:
    return ops.swish(n.required(0), alpha=n.attr("alpha", 1.702))


def _plus(x: Value, bias: Value | None) -> Value:
    return x if bias is None else ops.add(x, bias)


# ---- normalisations ----------------------------------------------------------------------------
importer("LayerNormalization", domain=DOMAIN)(layer_norm)


@importer("SimplifiedLayerNormalization")
@importer("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer_norm(n: OnnxNode) -> Value:
    axis, epsilon = n.attr("axis", -1), n.attr("epsilon", 1e-5)
    return scaled_rms_norm(n.required(0), n.required(1), axis, epsilon)


@importer("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_norm(n: OnnxNode) -> list[Value | None]:
    x = _plus(ops.add(n.required(0), n.required(1)), n.input(4))
    axis, epsilon = x.type.rank - 1, n.attr("epsilon", 1e-12)
    return [scaled_layer_norm(x, n.required(2), n.input(3), axis, epsilon), None, None, x]


@importer("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_norm(n: OnnxNode) -> list[Value | None]:
    x = _plus(ops.add(n.required(0), n.required(1)), n.input(3))
    return [scaled_rms_norm(x, n.required(2), -1, n.attr("epsilon", 1e-12)), None, None, x]


@importer("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_norm(n: OnnxNode) -> list[Value | None]:
    """Layer norm of the sum of word, position and segment embeddings; and the sequence lengths."""
    words, segments, mask = n.required(0), n.input(1), n.input(7)
    batch, length = words.shape
    positions = n.input(8) or constant(np.arange(length).reshape(1, length))
    x = ops.gather(n.required(2), words, axis=0)
    x = ops.add(x, ops.gather(n.required(3), positions, axis=0))
    if segments is not None:
        x = ops.add(x, ops.gather(n.required(4), segments, axis=0))
    y = scaled_layer_norm(x, n.required(5), n.required(6), 2, n.attr("epsilon", 1e-12))
    if mask is None:
        lengths = constant(np.zeros(batch, np.int32))
    else:
        lengths = ops.reduce_sum(as_dtype(mask, "i32"), axes=(1,), keepdims=False)
    return [y, lengths, x]


# ---- low-bit weights ---------------------------------------------------------------------------
@importer("MatMulNBits", domain=DOMAIN)
def matmul_nbits(n: OnnxNode) -> Value:
    """a @ w^T with 2-, 4- or 8-bit weights; each block of `block_size` has a scale and a zero."""
    a, scales = n.required(0), n.required(2)
    rows, columns = n.attr("N"), n.attr("K")
    bits, block = n.attr("bits", 4), n.attr("block_size")
    if n.input(4) is not None:
        n.unsupported("reordered weights (g_idx) are not supported; re-export without act-order")
    if bits not in (2, 4, 8):
        n.unsupported(f"weights have {bits} bits; 2, 4 and 8 are supported")
    blocks, dtype = -(-columns // block), dtypes.numpy_of(f"u{bits}")
    packed = np.asarray(n.const(1)).reshape(rows, -1)
    weights = constant(unpacked(packed, bits)[:, :columns].astype(dtype))
    scale = ops.reshape(as_dtype(scales, "f32"), shape=(rows, blocks))
    given = n.input(3)
    if given is not None and dtypes.is_float(given.dtype):
        whole = ops.dequantize_linear(weights, scale, axis=1, block_size=block)
        shift = np.asarray(n.const(2)).astype(np.float32) * np.asarray(n.const(3), np.float32)
        wide = np.repeat(shift.reshape(rows, blocks), block, 1)[:, :columns]
        w = ops.sub(whole, constant(wide))
    else:
        if given is None:
            zero = constant(np.full((rows, blocks), 1 << (bits - 1)).astype(dtype))
        else:
            codes = unpacked(np.asarray(n.const(3)).reshape(rows, -1), bits)
            zero = constant(codes[:, :blocks].astype(dtype))
        w = ops.dequantize_linear(weights, scale, zero, axis=1, block_size=block)
    y = ops.matmul(a, ops.transpose(as_dtype(w, a.dtype), perm=(1, 0)))
    return _plus(y, n.input(5))


def unpacked(packed: Array, bits: int) -> Array:
    """The `bits`-bit numbers of a matrix of bytes, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[:, :, np.newaxis] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(packed.shape[0], -1)
