"""`--precision bf16` and `fp16` on small networks, end to end."""

from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio import native, ops
from intaglio.cpu_isa import bits_of
from intaglio.ir import Graph, Type, Value, constant

RNG = np.random.default_rng(5)
needs_bf16 = pytest.mark.skipif(
    ~native.machine() & bits_of("avx512bf16") != 0, reason="a CPU without AVX512-BF16"
)


def conv(x: Value, m: int, k: int = 1, groups: int = 1, **attrs: Any) -> Value:
    w = RNG.standard_normal((m, x.shape[1] // groups, k, k)).astype(np.float32) / k
    window = {"stride": (1, 1), "pad": (k // 2,) * 4, "dilation": (1, 1), **attrs}
    made: Value = ops.conv(x, constant(w), groups=groups, **window)
    return made


def separable(x: Value) -> Value:
    """Depthwise convolutions whose results are read as f32 and as bf16."""
    y = ops.relu(conv(conv(conv(x, 8, 3), 8), 8))
    y = conv(y, 8, 3, groups=8)
    scale = ops.sigmoid(ops.reduce_mean(y, axes=(2, 3), keepdims=True))
    made: Value = ops.softmax(conv(ops.mul(y, scale), 10), axis=1)
    return made


def joined(x: Value) -> Value:
    """Maxima and concats of products, in tiles and plain."""
    a = ops.relu(conv(x, 32, 3))
    p = ops.max_pool(a, kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1))
    made: Value = conv(ops.concat(conv(p, 32), conv(p, 32, 3), axis=1), 6)
    return made


def recurrent(x: Value) -> Value:
    """An LSTM over the rows of an image."""
    rows = ops.transpose(ops.reshape(x, shape=(1, 3 * 24, 24)), perm=(1, 0, 2))
    weights = [
        RNG.standard_normal(s).astype(np.float32) / 8
        for s in ((1, 128, 24), (1, 128, 32), (1, 256))
    ]
    made: Value = ops.lstm(rows, *map(constant, weights), hidden_size=32)[0]
    return made


@pytest.mark.parametrize("net", [separable, joined, recurrent])
@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=needs_bf16), "fp16"])
def test_small_networks_agree_with_f32(net, precision):
    least = 0.9999 if precision == "bf16" else 0.999999
    x = Value(Type("f32", (1, 3, 24, 24)), "x")
    y = net(x)
    feed = {"x": RNG.standard_normal(x.shape).astype(np.float32)}
    graph = Graph([x], [y], ["y"])
    (right,) = intaglio.interpret(graph, feed).values()
    package = intaglio.compile(graph, precision=precision)
    with intaglio.open(package) as session:
        (made,) = session.run(feed).values()
    assert made.dtype == np.float32
    assert np.vdot(made, right) / np.linalg.norm(made) / np.linalg.norm(right) > least
    assert np.abs(made - right).max() > 0  # or nothing was narrow


def test_fp16_halves_packages_and_runs_on_every_cpu():
    x = Value(Type("f32", (1, 64, 12, 12)), "x")
    graph = Graph([x], [conv(ops.relu(conv(x, 128)), 64, 3)], ["y"])
    feed = {"x": RNG.standard_normal(x.shape).astype(np.float32)}
    sizes, made = {}, {}
    for precision in ("f32", "fp16"):
        package = intaglio.compile(graph, isa="scalar", precision=precision, level=1)
        sizes[precision] = len(package.bytes)
        with intaglio.open(package) as session:
            (made[precision],) = session.run(feed).values()
    assert sizes["fp16"] < 0.55 * sizes["f32"]
    assert np.abs(made["fp16"] - made["f32"]).max() < 1e-3 * np.abs(made["f32"]).max()


def test_weights_that_f16_cannot_hold_stay_f32():
    x = Value(Type("f32", (1, 8)), "x")
    y = ops.matmul(x, constant(np.full((8, 16), 1e5, np.float32)))
    package = intaglio.compile(Graph([x], [y], ["y"]), precision="fp16")
    with intaglio.open(package) as session:
        (made,) = session.run({"x": np.ones((1, 8), np.float32)}).values()
    np.testing.assert_array_equal(made, np.full((1, 16), 8e5, np.float32))
