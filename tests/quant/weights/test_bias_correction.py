"""Bias correction: a quantised layer's outputs keep the means of the float layer's."""

import numpy as np
import pytest

from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu
from intaglio.ops.conv import conv, conv_transpose
from intaglio.ops.elementwise import add
from intaglio.ops.linear import gemm, matmul
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.ranges.observe import observe
from intaglio.quant.weights import bias_correction

RNG = np.random.default_rng(2)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_mean_shift_of_a_convolution_is_known(groups):
    x = np.abs(numbers(3, 4, 10, 10)) + np.arange(4).reshape(1, 4, 1, 1)
    w = numbers(8, 4 // groups, 3, 3)
    y = conv(
        Value(Type("f32", x.shape)),
        constant(w),
        stride=(1, 1),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=groups,
    )
    rough = np.rint(w * 4) / 4
    node = y.producer
    shift = conv.body(x, rough, **node.attrs).mean((0, 2, 3)) - conv.body(x, w, **node.attrs).mean(
        (0, 2, 3)
    )
    found = bias_correction.correction_from_means(node, rough, x.mean((0, 2, 3)))
    np.testing.assert_allclose(found, -shift, atol=0.1)
    assert bias_correction.shift_bias(node, found)
    np.testing.assert_allclose(node.inputs[2].data, found, rtol=1e-6)


def test_pieces_of_a_layer_are_corrected_as_the_whole(monkeypatch):
    x, w = Value(Type("f32", (1, 4, 9, 9))), numbers(10, 2, 3, 3)
    y = conv(x, constant(w), stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), groups=2)
    rough, means = np.rint(w * 4) / 4, RNG.random(4)
    whole = bias_correction.correction_from_means(y.producer, rough, means)
    for piece in (1, 100):
        monkeypatch.setattr(bias_correction, "PIECE", piece)
        np.testing.assert_array_equal(
            bias_correction.correction_from_means(y.producer, rough, means), whole
        )


def test_transposed_convolutions_and_linear_layers():
    x, w = np.abs(numbers(1, 4, 6, 6)), numbers(4, 3, 2, 2)
    attrs = {"stride": (2, 2), "pad": (0, 0, 0, 0), "output_pad": (0, 0), "dilation": (1, 1)}
    node = conv_transpose(Value(Type("f32", x.shape)), constant(w), groups=1, **attrs).producer
    rough = np.rint(w * 4) / 4
    shift = (
        conv_transpose.body(x, rough, groups=1, **attrs)
        - conv_transpose.body(x, w, groups=1, **attrs)
    ).mean((0, 2, 3))
    np.testing.assert_allclose(
        bias_correction.correction_from_means(node, rough, x.mean((0, 2, 3))), -shift, atol=1e-4
    )
    x, w = np.abs(numbers(7, 5)), numbers(6, 5)
    value, rough = Value(Type("f32", x.shape)), np.rint(w * 4) / 4
    for node, stored in (
        (gemm(value, constant(w), constant(numbers(6)), trans_b=True).producer, rough),
        (matmul(value, constant(w.T)).producer, rough.T),
    ):
        found = bias_correction.correction_from_means(node, stored, x.mean(0))
        np.testing.assert_allclose(found, -(x @ (rough - w).T).mean(0), atol=1e-5)


def test_a_bias_is_shifted_if_there_is_one():
    value = Value(Type("f32", (7, 5)))
    lone = matmul(value, constant(numbers(5, 6)))
    assert not bias_correction.shift_bias(lone.producer, np.ones(6))
    bias = numbers(6)
    made = matmul(value, constant(numbers(5, 6)))
    whole = add(constant(bias), made)
    assert bias_correction.shift_bias(made.producer, np.ones(6))
    np.testing.assert_allclose(whole.producer.inputs[0].data, bias + 1, rtol=1e-6)
    full = gemm(value, constant(numbers(5, 6)), constant(numbers(7, 6)))
    assert not bias_correction.shift_bias(full.producer, np.ones(6))


def network(scale=1.0):
    attrs = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    x = Value(Type("f32", (1, 4, 12, 12)), "x")
    y = x
    for i in range(4):
        w = numbers(4, 4, 3, 3) * 0.3
        w[0] *= 20  # an output that is far larger leaves the others little of one scale
        y = conv(relu(y), constant(w), constant(numbers(4)), groups=1, **attrs)
        y.name = f"y{i}"
    return Graph([x], [y])


@pytest.fixture(scope="module")
def net():
    samples = [{"x": np.abs(numbers(1, 4, 12, 12))} for _ in range(8)]
    return network(), samples


def first_means(graph, samples):
    """The mean of every output channel of the first convolution."""
    y = next(n for n in graph.nodes() if n.op == "conv").outputs[0]
    return observe(graph, [y], samples, channels={y: 1})[y].channels.mean


def test_quantize_corrects_by_default(net):
    graph, samples = net
    error = {}
    for correct_it in (False, True):
        made = calibrate(
            graph,
            samples,
            options=Options(method="minmax", rounding="nearest", bias_correction=correct_it),
        )
        found, exact = (first_means(g, samples) for g in (made.graph, made.float_graph))
        error[correct_it] = np.linalg.norm(found - exact)
    assert error[True] < 0.5 * error[False]


def test_joint_rounding_has_a_smaller_output_error_than_nearest():
    x = Value(Type("f32", (1, 8, 12, 12)), "x")
    attrs = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    y = conv(x, constant(numbers(32, 8, 3, 3), "w"), constant(numbers(32)), **attrs)
    y.name = "y"
    graph = Graph([x], [y])
    samples = [{"x": np.abs(numbers(1, 8, 12, 12))} for _ in range(4)]
    exact = y.producer.inputs[1].data
    errors = {}
    for rounding in ("nearest", "squant", "data"):
        options = Options(method="minmax", accuracy=None, rounding=rounding, bias_correction=False)
        made = calibrate(graph, samples, options=options)
        stored = next(n for n in made.graph.nodes() if n.op == "conv").inputs[1].producer
        w = stored.inputs[0].data * stored.inputs[1].data.reshape(-1, 1, 1, 1)
        off = [conv.body(s["x"], (w - exact).astype(np.float32), **attrs) for s in samples]
        errors[rounding] = float(np.square(off).mean())
    assert max(errors["data"], errors["squant"]) < 0.6 * errors["nearest"]
