"""Contrib ops (com.microsoft) against onnxruntime, which defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_oracle import agree

R = np.random.default_rng(7)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return R.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    return R.integers(-128, 128, shape).astype(np.int8)


def scale(x: float) -> np.ndarray:
    return np.array(x, np.float32)


def zero(x: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.array(x, dtype)


# ---- products and activations ------------------------------------------------------------------
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_fused_matmul(trans_a: int, trans_b: int) -> None:
    a, b = f(2, 3, 4), f(2, 4, 5)
    a, b = a.swapaxes(1, 2) if trans_a else a, b.swapaxes(1, 2) if trans_b else b
    agree("FusedMatMul", [a.copy(), b.copy()], transA=trans_a, transB=trans_b, alpha=0.5)


def test_fused_matmul_with_batch_inside() -> None:
    agree("FusedMatMul", [f(3, 2, 4), f(4, 2, 5)], transBatchA=1, transBatchB=1)
    agree("FusedMatMul", [f(3, 2, 4), f(5, 2, 3)], transBatchA=1, transA=1, transBatchB=1, transB=1)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "LeakyRelu", "Sigmoid"])
def test_fused_gemm(activation: str) -> None:
    agree(
        "FusedGemm",
        [f(3, 4), f(5, 4), f(5)],
        transB=1,
        alpha=0.5,
        beta=2.0,
        activation=activation,
        activation_alpha=0.1,
    )


def test_activations() -> None:
    agree("Gelu", [f(3, 4)])
    agree("BiasGelu", [f(2, 3, 4), f(4)])
    agree("FastGelu", [f(2, 3, 4), f(4)])
    agree("FastGelu", [f(3, 4)])
    agree("QuickGelu", [f(3, 4)])


# ---- normalisations ----------------------------------------------------------------------------
def test_norms() -> None:
    x, skip, gamma, beta, bias = f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)
    agree("SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1, epsilon=1e-6)
    agree("SkipLayerNormalization", [x, skip, gamma, beta, bias], 4, epsilon=1e-6)
    agree("SkipLayerNormalization", [x, skip, gamma])
    agree("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], 4)
    agree("LayerNormalization", [x, gamma, beta], domain="", axis=-1)


def test_embedding() -> None:
    ids = np.array([[1, 2, 3], [4, 0, 0]], np.int32)
    segments = np.array([[0, 0, 1], [1, 0, 0]], np.int32)
    mask = np.array([[1, 1, 1], [1, 0, 0]], np.int32)
    tables = [f(6, 8), f(10, 8), f(2, 8), f(8), f(8)]
    types = (1, 6)
    agree("EmbedLayerNormalization", [ids, segments, *tables, mask], 2, types=types)
    agree("EmbedLayerNormalization", [ids, None, *tables[:2], None, *tables[3:]], 2, types=types)


# ---- quantised tensors -------------------------------------------------------------------------
def test_qlinear_elementwise() -> None:
    a, b = [u8(2, 3), scale(0.1), zero(7)], [u8(3), scale(0.2), zero(3)]
    out = [scale(0.3), zero(10)]
    agree("QLinearAdd", [*a, *b, *out], step=1)
    agree("QLinearMul", [*a, *b, scale(5.0), zero(10)], step=1)
    agree("QLinearSigmoid", [*a, scale(1 / 256), zero(0)], step=1)
    signed = [i8(2, 3), scale(0.1), zero(7, np.int8), scale(0.1), zero(3, np.int8)]
    agree("QLinearLeakyRelu", signed, step=1, alpha=0.3)
    agree(
        "QLinearSoftmax",
        [u8(2, 3, 4), scale(0.1), zero(7), scale(1 / 256), zero(0)],
        step=1,
        axis=-1,
        opset=13,
        constant=(1, 2, 3, 4),
    )


def test_qlinear_where() -> None:
    cond = np.array([[True, False, True]])
    a, b = [u8(2, 3), scale(0.1), zero(7)], [u8(2, 3), scale(0.2), zero(3)]
    agree("QLinearWhere", [cond, *a, *b, scale(0.15), zero(1)], types=(2,), step=1)


def test_qlinear_shapes() -> None:
    a, b = [u8(2, 3), scale(0.1), zero(7)], [u8(2, 5), scale(0.2), zero(3)]
    agree(
        "QLinearConcat",
        [scale(0.2), zero(4), *a, *b],
        types=(2,),
        step=1,
        axis=1,
        constant=(0, 1, 3, 4, 6, 7),
    )
    pool = [u8(2, 3, 6, 6), scale(0.1), zero(7), scale(0.1), zero(5)]
    agree("QLinearGlobalAveragePool", pool, step=1)
    agree("QLinearGlobalAveragePool", pool, step=1, channels_last=1)
    agree("QLinearAveragePool", pool, step=1, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    agree("QLinearAveragePool", pool, step=1, kernel_shape=[2, 2], channels_last=1)


@pytest.mark.parametrize("last", [0, 1])
def test_qlinear_conv(last: int) -> None:
    shape = (1, 6, 6, 4) if last else (1, 4, 6, 6)
    x = [u8(*shape), scale(0.1), zero(120)]
    w = [i8(5, 4, 3, 3), scale(0.02), zero(0, np.int8)]
    agree(
        "QLinearConv",
        [*x, *w, scale(0.5), zero(128)],
        step=1,
        channels_last=last,
        pads=[1, 1, 1, 1],
        constant=(3, 4, 5),
    )


def test_qgemm() -> None:
    a, b = [u8(3, 4), scale(0.1), zero(120)], [i8(5, 4), scale(0.02), zero(0, np.int8)]
    c = R.integers(-500, 500, 5).astype(np.int32)
    agree("QGemm", [*a, *b, c, scale(0.1), zero(128)], step=1, transB=1)
    agree("QGemm", [*a, *b, c], transB=1, alpha=2.0, types=(1,))


def test_matmul_to_float() -> None:
    a, b = u8(3, 4), i8(4, 5)
    per_column = np.linspace(0.01, 0.05, 5).astype(np.float32)
    agree("MatMulIntegerToFloat", [a, b, scale(0.1), per_column, zero(9), None, f(5)], types=(1,))
    agree("DynamicQuantizeMatMul", [f(3, 4), b, per_column, None, f(5)], tolerance=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("with_zero", [False, True])
def test_matmul_of_few_bits(bits: int, with_zero: bool) -> None:
    n, k, block = 6, 40, 16
    blocks = -(-k // block)
    w, scales = u8(n, blocks, block * bits // 8), R.random(n * blocks).astype(np.float32)
    zeros = u8(n * -(-blocks * bits // 8)) if with_zero else None
    constant = (1, 2, 3) if with_zero else (1, 2)
    agree(
        "MatMulNBits",
        [f(3, k), w, scales, zeros],
        constant=constant,
        N=n,
        K=k,
        bits=bits,
        block_size=block,
        tolerance=1e-3,
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_gather_of_few_bits(bits: int) -> None:
    data, scales = u8(5, 32 * bits // 8), f(5, 2)
    zeros = u8(5, 1 if bits == 4 else 2)
    rows, attrs = np.array([1, 3]), {"bits": bits, "block_size": 16, "quantize_axis": 1}
    agree("GatherBlockQuantized", [data, rows, scales], types=(1,), constant=(0, 2), **attrs)
    agree(
        "GatherBlockQuantized", [data, rows, scales, zeros], types=(1,), constant=(0, 2, 3), **attrs
    )


# ---- attention ---------------------------------------------------------------------------------
def test_multi_head_attention() -> None:
    q, k, v, bias = f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), f(24)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    agree("MultiHeadAttention", [q, k, v], num_heads=2)
    agree("MultiHeadAttention", [q, k, v, bias, mask], num_heads=2)
    agree("MultiHeadAttention", [q, k, v, None, None, f(1, 2, 3, 5)], num_heads=2)
    past = [f(2, 2, 4, 4), f(2, 2, 4, 4)]
    new = [f(2, 3, 8), f(2, 3, 8)]
    cached = [q, *new, None, None, None, *past]
    agree("MultiHeadAttention", cached, 3, num_heads=2, unidirectional=1, types=(1, 1, 1))


def test_attention_with_projection() -> None:
    x, w, b = f(2, 3, 6), f(6, 24), f(24)
    lengths = np.array([2, 3], np.int32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    agree("Attention", [x, w, b], num_heads=2)
    agree("Attention", [x, w, b, lengths], num_heads=2)
    agree("Attention", [x, w, b, mask], num_heads=2)
    agree("Attention", [x, w, b, None, f(2, 2, 2, 4, 4)], 2, num_heads=2, unidirectional=1)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary(interleaved: int) -> None:
    cos, sin = f(10, 4), f(10, 4)
    ids = np.array([[2, 3, 4], [0, 1, 2]], np.int64)
    agree("RotaryEmbedding", [f(2, 3, 16), ids, cos, sin], interleaved=interleaved)
    agree("RotaryEmbedding", [f(2, 2, 3, 8), ids, cos, sin], interleaved=interleaved)
    agree("RotaryEmbedding", [f(2, 3, 16), np.array([1]), cos, sin], interleaved=interleaved)


@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention(rotary: int) -> None:
    heads: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary}
    caches = [f(16, 8), f(16, 8)] if rotary else [None, None]
    types = (1, 1, 1)

    def lengths(*n: int) -> np.ndarray:
        return np.array(n, np.int32)

    prompt = [f(1, 5, 64), f(1, 5, 32), f(1, 5, 32)]
    agree(
        "GroupQueryAttention",
        [*prompt, None, None, lengths(4), np.array(5, np.int32), *caches],
        3,
        constant=(4,),
        types=types,
        **heads,
    )
    step = [f(2, 1, 64), f(2, 1, 32), f(2, 1, 32), f(2, 2, 8, 16), f(2, 2, 8, 16)]
    for past in step[3:]:  # onnxruntime clears unused cache entries
        past[0, :, 5:], past[1, :, 7:] = 0, 0
    agree(
        "GroupQueryAttention",
        [*step, lengths(5, 7), np.array(8, np.int32), *caches],
        3,
        constant=(6,),
        types=types,
        **heads,
    )
    one = [f(1, 1, 64), f(1, 1, 32), f(1, 1, 32), f(1, 2, 6, 16), f(1, 2, 6, 16)]
    agree(
        "GroupQueryAttention",
        [*one, lengths(6), np.array(7, np.int32), *caches],
        3,
        constant=(6,),
        types=types,
        local_window_size=3,
        softcap=5.0,
        **heads,
    )
    agree(
        "GroupQueryAttention",
        [f(1, 5, 128), None, None, None, None, lengths(4), np.array(5, np.int32), *caches],
        3,
        constant=(2,),
        types=types,
        **heads,
    )
