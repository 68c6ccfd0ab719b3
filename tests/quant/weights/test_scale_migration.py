"""Equalising and smoothing keep the function and lower the int8 error."""

import numpy as np
import pytest

from intaglio import interpret
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.activation import relu, sigmoid
from intaglio.ops.conv import conv
from intaglio.ops.elementwise import add
from intaglio.ops.linear import matmul
from intaglio.ops.normalize import layer_norm
from intaglio.ops.pool import max_pool
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.ranges.observe import observe
from intaglio.quant.search.output_error import Reference
from intaglio.quant.weights.equalization import equalizable, equalize
from intaglio.quant.weights.smoothing import smooth

RNG = np.random.default_rng(4)
ATTRS = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def uneven(n):
    return (2.0 ** RNG.integers(-5, 6, n)).astype(np.float32)


def chain():
    """Convolution, relu, depthwise, relu, max pooling, convolution; channels of unequal range."""
    x = Value(Type("f32", (1, 3, 12, 12)), "x")
    s, t = uneven(8), uneven(8)
    w1, w2, w3 = numbers(8, 3, 3, 3), numbers(8, 1, 3, 3), numbers(4, 8, 3, 3)
    w1 *= s.reshape(-1, 1, 1, 1)
    w2 *= (t / s).reshape(-1, 1, 1, 1)
    w3 /= t.reshape(1, -1, 1, 1)
    a = relu(conv(x, constant(w1, "w1"), constant(numbers(8) * s), groups=1, **ATTRS))
    b = relu(conv(a, constant(w2, "w2"), constant(numbers(8) * t), groups=8, **ATTRS))
    c = max_pool(b, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0), dilation=(1, 1))
    y = conv(c, constant(w3, "w3"), constant(numbers(4)), groups=1, **ATTRS)
    for name, v in {"a": a, "b": b, "c": c, "y": y}.items():
        v.name = name
    return Graph([x], [y])


def images(n=6):
    return [{"x": numbers(1, 3, 12, 12)} for _ in range(n)]


def same(before, after, data):
    for s in data:
        a, b = interpret(before, s), interpret(after, s)
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by_data", [False, True])
def test_equalising_keeps_the_function_and_helps(by_data):
    graph, data = chain(), images()
    equal = graph.copy()
    seen = None
    if by_data:
        tensors = {link.tensor: link.axis for link in equalizable(equal)}
        seen = observe(equal, list(tensors), data, channels=tensors)
    assert equalize(equal, seen) == ["a", "c"]
    same(graph, equal, data)
    options = Options(method="minmax", accuracy=None)
    error = []
    for g in (graph, equal):
        made = calibrate(g, data, options=options)
        error.append(Reference.of(graph, data).compare(made.graph)[0].error)
    assert error[1] < 0.5 * error[0]


def test_other_functions_and_shared_tensors_are_not_equalised():
    x = Value(Type("f32", (1, 3, 12, 12)), "x")
    a = sigmoid(conv(x, constant(numbers(8, 3, 3, 3)), groups=1, **ATTRS))
    b = relu(conv(a, constant(numbers(8, 8, 3, 3)), groups=1, **ATTRS))
    c = conv(b, constant(numbers(8, 8, 3, 3)), groups=1, **ATTRS)
    graph = Graph([x], [add(b, c)], ["y"])
    assert equalizable(graph) == []
    assert equalize(graph) == []


def transformer():
    x = Value(Type("f32", (1, 20, 16)), "x")
    gamma = np.ones(16, np.float32)
    gamma[3] = 60  # an outlier channel
    n = layer_norm(x, constant(gamma), constant(numbers(16)), axis=2, epsilon=1e-5)
    n.name = "n"
    w = numbers(16, 24)
    w[3] /= 60
    q, k = matmul(n, constant(w)), matmul(n, constant(np.roll(w, 1, 1)))
    y = add(q, k)
    q.name, k.name, y.name = "q", "k", "y"
    return Graph([x], [y])


def test_smoothing_keeps_the_function_and_helps():
    graph = transformer()
    data = [{"x": numbers(1, 20, 16)} for _ in range(6)]
    even = graph.copy()
    found = smooth(even, data)
    assert set(found) == {"n"}
    same(graph, even, data)
    options = Options(method="minmax", accuracy=None)
    error = [
        Reference.of(graph, data).compare(calibrate(g, data, options=options).graph)[0].error
        for g in (graph, even)
    ]
    assert error[1] < 0.5 * error[0]
    assert smooth(even, data) == {}  # there is nothing left to gain
