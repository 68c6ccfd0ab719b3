"""Quantised ops against real arithmetic and against their lowerings."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.quantized import power_table
from intaglio.ops.registry import REGISTRY

RNG = np.random.default_rng(5)
WINDOW = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def codes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scale(x):
    return np.float32(x)


def conv_operands():
    each = RNG.uniform(0.01, 0.02, 6).astype(np.float32)
    return [
        codes(np.int8, 2, 4, 5, 5),
        scale(0.02),
        np.int8(-3),
        codes(np.int8, 6, 4, 3, 3),
        each,
        np.zeros(6, np.int8),
    ]


def real_conv(operands, bias):
    x, xs, xz, w, ws, _ = (np.asarray(a, np.float64) for a in operands)
    real = ops.conv.body((x - xz) * xs, w * ws.reshape(-1, 1, 1, 1), **WINDOW)
    return real + (bias * xs * ws).reshape(-1, 1, 1)


def test_a_product_with_a_real_result():
    operands, bias = conv_operands(), RNG.integers(-9000, 9000, 6).astype(np.int32)
    y = ops.qlinear_conv.body(*operands, None, None, bias, **WINDOW)
    want = real_conv(operands, bias)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    r = RNG.normal(size=want.shape).astype(np.float32)
    y = ops.qlinear_conv.body(*operands, None, None, bias, r, **WINDOW)
    np.testing.assert_allclose(y, want + r, rtol=1e-5, atol=1e-5)


def test_a_residual_is_added_before_rounding():
    operands, bias = conv_operands(), np.zeros(6, np.int32)
    r = codes(np.uint8, 2, 6, 5, 5)
    y = ops.qlinear_conv.body(
        *operands, scale(0.5), np.int8(4), bias, r, scale(0.3), np.uint8(90), **WINDOW
    )
    real = (real_conv(operands, bias) + (r - 90.0) * 0.3) / 0.5
    want = np.clip(np.rint(real) + 4, -128, 127)
    assert np.abs(y - want).max() <= 1
    assert np.mean(y == want) > 0.99


def lowered_and_not(op, arrays, **attrs):
    """The results of the op and of its lowering."""
    values = [None if a is None else constant(a) for a in arrays]
    node = REGISTRY[op].node(*values, **attrs)
    made = REGISTRY[op].lower(*node.inputs, **node.attrs)
    whole = intaglio.interpret(Graph([], node.outputs, ["y"]), {})["y"]
    return whole, intaglio.interpret(Graph([], [made], ["y"]), {})["y"]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_lowering_is_exact(stored, residual):
    more = [scale(0.6), np.uint8(7)] if stored else [None, None]
    more += [RNG.integers(-9000, 9000, 6).astype(np.int32)]
    if residual and stored:
        more += [codes(np.int8, 2, 6, 5, 5), scale(0.37), np.int8(9)]
    elif residual:
        more += [RNG.normal(size=(2, 6, 5, 5)).astype(np.float32)]
    np.testing.assert_array_equal(
        *lowered_and_not("qlinear_conv", [*conv_operands(), *more], **WINDOW)
    )


@pytest.mark.parametrize("columns", [(), (6,)])
def test_lowering_of_matmul_is_exact(columns):
    arrays = [
        codes(np.uint8, 3, 5),
        scale(0.1),
        np.uint8(3),
        codes(np.int8, 5, 6),
        RNG.uniform(0.1, 1, columns).astype(np.float32),
        np.zeros(columns, np.int8),
    ]
    np.testing.assert_array_equal(*lowered_and_not("qlinear_matmul", arrays))


X, Y = codes(np.int8, 2, 3, 6, 6), codes(np.uint8, 3, 1, 1)
AT = RNG.integers(0, 6, (9, 2)).astype(np.int32)
HALVES = np.full((9, 2), 1024, np.int32)
OF_X, OF_Y = [X, scale(0.03), np.int8(5)], [scale(0.021), np.int8(-9)]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs"),
    [
        ("lookup", [X, codes(np.uint8, 256)], {}),
        ("lookup", [Y, RNG.normal(size=256).astype(np.float32)], {}),
        ("qlinear_add", [*OF_X, Y, scale(0.04), np.uint8(90), *OF_Y], {}),
        ("qlinear_mul", [*OF_X, Y, scale(0.04), np.uint8(90), *OF_Y], {}),
        ("qlinear_mean", [*OF_X, *OF_Y], {"axes": (2, 3)}),
        ("qlinear_mean", [*OF_X, *OF_Y], {"axes": (1,), "keepdims": False}),
        ("qlinear_softmax", [X, power_table(0.03), *OF_Y], {"axis": -1}),
        ("qlinear_resize", [*OF_X, *OF_Y, *[AT, HALVES] * 2], {"axis": 2}),
        *[
            (
                "qlinear_avg_pool",
                [*OF_X, *OF_Y],
                {
                    "kernel": (3, 2),
                    "stride": (2, 2),
                    "pad": (1, 1, 0, 0),
                    "dilation": (1, 1),
                    "count_include_pad": whole,
                },
            )
            for whole in (True, False)
        ],
    ],
)
def test_lowering_of_others_is_exact(op, arrays, attrs):
    np.testing.assert_array_equal(*lowered_and_not(op, arrays, **attrs))


def test_exported_to_onnx(tmp_path):
    x, r = Value(Type("i8", (2, 4, 5, 5)), "x"), Value(Type("f32", (2, 6, 5, 5)), "r")
    _, *operands = conv_operands()
    bias = constant(RNG.integers(-9000, 9000, 6).astype(np.int32))
    y = ops.qlinear_conv(x, *map(constant, operands), None, None, bias, r, **WINDOW)
    graph = Graph([x, r], [y], ["y"])
    intaglio.save_onnx(graph, tmp_path / "m.onnx")
    feeds = {"x": codes(np.int8, *x.shape), "r": RNG.normal(size=r.shape).astype(np.float32)}
    got = intaglio.interpret(intaglio.load(tmp_path / "m.onnx"), feeds)["y"]
    np.testing.assert_array_equal(got, intaglio.interpret(graph, feeds)["y"])


@pytest.mark.parametrize(
    "more",
    [
        [scale(1), None],
        [None, np.int8(0)],
        [None, None, None, np.zeros((2, 6, 5, 5), np.int8), scale(1), np.int8(0)],
        [scale(1), np.int8(0), None, np.zeros((2, 6, 5, 5), np.int8)],
        [scale(1), np.int8(0), None, np.zeros((2, 6, 5, 5), np.float32), scale(1), np.int8(0)],
        [scale(1), np.int8(0), None, np.zeros((2, 6, 5, 4), np.int8), scale(1), np.int8(0)],
        [scale(1), np.int8(0), None, np.zeros((2, 6, 5, 5), np.int8), scale(1), np.uint8(0)],
    ],
)
def test_refusals(more):
    with pytest.raises(BadInput):
        ops.qlinear_conv(*conv_operands(), *more, **WINDOW)


def near(y, want, zero):
    """Equal except for ties that round the other way."""
    want = np.clip(np.rint(want) + zero, -128, 127)
    assert np.abs(y - want).max() <= 1
    assert np.mean(y == want) > 0.97


def test_sums_and_products_are_those_of_real_numbers():
    a, b = codes(np.int8, 4, 50), codes(np.uint8, 4, 50)
    x, y = (a + 3.0) * 0.02, (b - 100.0) * 0.05
    operands = [
        a,
        scale(0.02),
        np.int8(-3),
        b,
        scale(0.05),
        np.uint8(100),
        scale(0.0617),
        np.int8(9),
    ]
    near(ops.qlinear_add.body(*operands), (x + y) / 0.0617, 9)
    near(ops.qlinear_mul.body(*operands), (x * y) / 0.0617, 9)


def test_means_are_those_of_real_numbers():
    x = codes(np.int8, 2, 3, 9, 9)
    of = [scale(0.02), np.int8(-3), scale(0.0043), np.int8(9)]
    real = (x + 3.0) * 0.02 / 0.0043
    near(ops.qlinear_mean.body(x, *of, axes=(2, 3)), real.mean((2, 3), keepdims=True), 9)
    window = {"kernel": (2, 3), "stride": (2, 2), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    for whole in (True, False):
        want = ops.avg_pool.body(real, **window, count_include_pad=whole)
        near(ops.qlinear_avg_pool.body(x, *of, **window, count_include_pad=whole), want, 9)


def test_softmax_is_that_of_real_numbers():
    x = codes(np.int8, 7, 60)
    y = ops.qlinear_softmax.body(x, power_table(0.04), scale(1 / 256), np.int8(-128), axis=1)
    near(y, ops.softmax.body(x * 0.04, axis=1) * 256, -128)


def test_refused_operands():
    x, one, zero = codes(np.int8, 3, 4), scale(1), np.int8(0)
    with pytest.raises(BadInput, match="one of each"):
        ops.qlinear_add(x, np.ones(4, np.float32), zero, x, one, zero, one, zero)
    with pytest.raises(BadInput, match="u8 and i16"):
        ops.qlinear_mul(x, one, np.uint8(0), x, one, zero, one, zero)
    with pytest.raises(BadInput, match="broadcast"):
        ops.qlinear_mul(x, one, zero, x[:2], one, zero, one, zero)
    with pytest.raises(BadInput, match="not consecutive"):
        ops.qlinear_mean(codes(np.int8, 2, 3, 4), one, zero, one, zero, axes=(0, 2))
    with pytest.raises(BadInput, match="256"):
        ops.lookup(x, np.zeros(255, np.int8))


# ---- 16 bits -------------------------------------------------------------------------------------
@pytest.mark.parametrize("weights", [np.int8, np.int16, np.uint8])
@pytest.mark.parametrize("stored", [True, False])
def test_16_bits_are_exact_by_bytes(weights, stored):
    x, w = codes(np.int16, 2, 4, 5, 5), codes(weights, 6, 4, 3, 3)
    zero = np.full(6, 5, weights) if weights == np.uint8 else np.zeros(6, weights)
    arrays = [x, scale(0.001), np.int16(-700), w, scale(0.01), zero]
    more = [scale(0.6), np.int16(7)] if stored else [None, None]
    bias = RNG.integers(-(2**40), 2**40, 6)
    want, made = lowered_and_not("qlinear_conv", [*arrays, *more, bias], **WINDOW)
    np.testing.assert_array_equal(made, want)
    wide_x, wide_w = x.astype(np.int64) + 700, w.astype(np.int64) - zero.reshape(-1, 1, 1, 1)
    at = wide_x[0, :, :3, :3]  # a window that no padding touches
    real = np.float32(np.sum(at * wide_w[2]) + bias[2]) * np.float32(0.001 * np.float32(0.01))
    y = want[0, 2, 1, 1] if WINDOW["pad"][0] else want[0, 2, 0, 0]
    if not stored:
        np.testing.assert_allclose(y, real, rtol=1e-6)


@pytest.mark.parametrize("weights", [np.int8, np.int16])
@pytest.mark.parametrize("stored", [True, False])
def test_16_bit_products_run_natively_to_the_bit(weights, stored):
    a = Value(Type("i16", (3, 70)), "a")
    b, zero = constant(codes(weights, 70, 9)), constant(np.zeros((), weights))
    end = [constant(scale(0.5)), constant(np.int16(3))] if stored else [None, None]
    y = ops.qlinear_matmul(
        a, constant(scale(0.002)), constant(np.int16(-40)), b, constant(scale(0.01)), zero, *end
    )
    graph, feeds = Graph([a], [y], ["y"]), {"a": codes(np.int16, 3, 70)}
    want = intaglio.interpret(graph, feeds)["y"]
    exact = (feeds["a"].astype(np.int64) + 40) @ b.data.astype(np.int64)
    by = np.float32(0.002) * np.float32(0.01)
    if not stored:
        np.testing.assert_array_equal(want, exact.astype(np.float32) * by)
    for isa in ("scalar", "avx2", None):
        with intaglio.open(intaglio.compile(graph, isa=isa)) as session:
            np.testing.assert_array_equal(session.run(feeds)["y"], want)
