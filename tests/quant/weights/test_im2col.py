"""A layer's output equals its matrix times the rows of its input."""

import numpy as np
import pytest

from intaglio.ir import Type, Value, constant
from intaglio.ops.conv import conv, conv_transpose
from intaglio.ops.linear import gemm, matmul
from intaglio.quant.weights import im2col

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("rank", "stride", "dilation"), [(1, 2, 1), (2, 1, 2), (2, 2, 1)])
def test_convolutions(groups, rank, stride, dilation):
    x, w = numbers(2, 4, *[9] * rank), numbers(8, 4 // groups, *[3] * rank)
    pad = (*range(rank), *[1] * rank)
    y = conv(
        Value(Type("f32", x.shape)),
        constant(w),
        stride=(stride,) * rank,
        pad=pad,
        dilation=(dilation,) * rank,
        groups=groups,
    )
    node = y.producer
    made = conv.body(x, w, **node.attrs)
    every = im2col.rows(node, im2col.last(x, node), 10**6, RNG)
    m = im2col.matrix(node)
    out = np.einsum("grk,gok->rgo", every, m).reshape(2, *made.shape[2:], 8)
    np.testing.assert_allclose(np.moveaxis(out, -1, 1), made, atol=1e-4)
    mean = np.einsum("gk,gok->go", im2col.mean_row(node, im2col.last(x, node)), m).ravel()
    np.testing.assert_allclose(mean, made.mean((0, *range(2, made.ndim))), atol=1e-4)
    assert np.array_equal(im2col.from_matrix(node, m), w)
    few = im2col.rows(node, im2col.last(x, node), 5, np.random.default_rng(1))
    assert few.shape == (groups, 5, m.shape[2])
    again = im2col.rows(node, im2col.last(x, node), 5, np.random.default_rng(1))
    assert np.array_equal(few, again)


@pytest.mark.parametrize("turned", [False, True])
def test_linear_layers(turned):
    x, w = numbers(6, 5), numbers(7, 5)
    value = Value(Type("f32", x.shape))
    node = (
        gemm(value, constant(w), trans_b=True) if turned else matmul(value, constant(w.T))
    ).producer
    m = im2col.matrix(node)
    every = im2col.rows(node, x, 100, RNG)
    np.testing.assert_allclose(every[0] @ m[0].T, x @ w.T, atol=1e-5)
    assert np.array_equal(im2col.from_matrix(node, m), node.inputs[1].data)
    np.testing.assert_allclose(im2col.mean_row(node, x)[0], x.mean(0), atol=1e-6)


def test_transposed_convolutions():
    x, w = numbers(1, 4, 3, 3), numbers(4, 3, 2, 2)
    y = conv_transpose(
        Value(Type("f32", x.shape)),
        constant(w),
        stride=(2, 2),
        pad=(0, 0, 0, 0),
        output_pad=(0, 0),
        dilation=(1, 1),
        groups=2,
    )
    node = y.producer
    m = im2col.matrix(node)
    every = im2col.rows(node, im2col.last(x, node), 100, RNG)
    out = np.einsum("grk,gok->rgo", every, m).reshape(1, 3, 3, 2, 3, 2, 2)
    out = out.transpose(0, 3, 4, 1, 5, 2, 6).reshape(1, 6, 6, 6)
    np.testing.assert_allclose(out, conv_transpose.body(x, w, **node.attrs), atol=1e-5)
    assert np.array_equal(im2col.from_matrix(node, m), w)
