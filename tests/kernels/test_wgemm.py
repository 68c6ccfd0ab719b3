"""Products of f32 rows with packed weights of 4 and 8 bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.weight_only.matrix import quantize_matrix
from intaglio.targets.cpu.wgemm import _panels, _stored

RNG = np.random.default_rng(2)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def weights(k, n, bits, block):
    low = -(1 << (bits - 1))
    q = RNG.integers(low, -low, (k, n)).astype(np.int16)
    scale = RNG.uniform(0.01, 0.02, (-(-k // block), n)).astype(np.float32)
    return _stored(q, bits), _panels(scale), _panels(np.rint(floats(*scale.shape)))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 20])
@pytest.mark.parametrize(
    ("k", "n", "block"),
    [(1, 1, 1), (33, 70, 33), (64, 16, 32), (80, 65, 32), (7, 40, 2), (130, 33, 64)],
)
def test_product(bits, m, k, n, block):
    w, scale, zero = weights(k, n, bits, block)
    x = floats(m, k)
    check("cpu.wgemm", x, w, None, None, None, scale, None, n=n, bits=bits, block=block)
    check(
        "cpu.wgemm",
        x,
        w,
        None,
        None,
        None,
        scale,
        zero,
        n=n,
        bits=bits,
        block=block,
        tolerance=1e-4,
    )


@pytest.mark.parametrize("act", ["none", "relu", "gelu", "prelu"])
@pytest.mark.parametrize("add_last", [False, True])
@pytest.mark.parametrize("m", [2, 9])
def test_epilogue(act, add_last, m):
    w, scale, _ = weights(24, 40, 4, 8)
    slope = floats(40) if act == "prelu" else None
    check(
        "cpu.wgemm",
        floats(1, m, 24),
        w,
        floats(40),
        floats(1, m, 40),
        slope,
        scale,
        None,
        n=40,
        bits=4,
        block=8,
        act=act,
        add_last=add_last,
    )


def test_empty():
    w, scale, _ = weights(8, 5, 8, 8)
    check("cpu.wgemm", floats(0, 8), w, None, None, None, scale, None, n=5, bits=8, block=8)


def compiled(graph, feeds):
    package = intaglio.compile(graph)
    assert "cpu.wgemm" in {s.op for s in package.plan.steps}
    with intaglio.open(package) as session:
        got = session.run(feeds)["y"]
    want = intaglio.interpret(graph, feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return package


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "u4"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group", [0, 32])
@pytest.mark.parametrize("form", ["matmul", "transposed", "gemm", "vector"])
def test_every_form_of_dequantisation_keeps_weights_packed(dtype, symmetric, group, form):
    q, scale, zero = quantize_matrix(floats(80, 33), dtype, group, symmetric)
    transposed = form in ("transposed", "gemm")
    parts = [q, scale, zero]
    if transposed:
        parts = [None if p is None else np.ascontiguousarray(p.T) for p in parts]
    axis = (0 if group else 1) ^ transposed
    real = ops.dequantize_linear(
        *[None if p is None else constant(p) for p in parts], axis=axis, block_size=group
    )
    x = Value(Type("f32", (80,) if form == "vector" else (6, 80)), "x")
    if form == "gemm":
        y = ops.gemm(x, real, constant(floats(33)), trans_b=True)
    else:
        y = ops.matmul(x, ops.transpose(real, perm=(1, 0)) if transposed else real)
    compiled(Graph([x], [y], ["y"]), {"x": floats(*x.shape)})


def test_four_bits_take_half_a_byte():
    q, scale, _ = quantize_matrix(floats(512, 512), "i4", 128)
    real = ops.dequantize_linear(constant(q), constant(scale), axis=0, block_size=128)
    x = Value(Type("f32", (1, 512)), "x")
    package = compiled(Graph([x], [ops.matmul(x, real)], ["y"]), {"x": floats(1, 512)})
    assert len(package.bytes) < 512 * 512 * 0.6


def test_an_embedding_table_stays_8_bit():
    q, scale, _ = quantize_matrix(floats(32, 1000))
    real = ops.dequantize_linear(constant(np.ascontiguousarray(q.T)), constant(scale), axis=0)
    at = Value(Type("i64", (2, 3)), "at")
    graph = Graph([at], [ops.gather(real, at, axis=0)], ["y"])
    package = intaglio.compile(graph)
    assert len(package.bytes) < 1000 * 40
    feeds = {"at": RNG.integers(0, 1000, (2, 3))}
    with intaglio.open(package) as session:
        np.testing.assert_array_equal(
            session.run(feeds)["y"], intaglio.interpret(graph, feeds)["y"]
        )
