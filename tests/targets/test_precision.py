"""What `--precision bf16` makes of small networks, from end to end."""

from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio import native, ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu import LEVELS

RNG = np.random.default_rng(5)
pytestmark = pytest.mark.skipif(
    ~native.machine() & LEVELS["avx512bf16"] != 0, reason="a CPU without AVX512-BF16"
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


@pytest.mark.parametrize("net", [separable, joined])
def test_small_networks_agree_with_f32(net):
    x = Value(Type("f32", (1, 3, 24, 24)), "x")
    y = net(x)
    feed = {"x": RNG.standard_normal(x.shape).astype(np.float32)}
    graph = Graph([x], [y], ["y"])
    (right,) = intaglio.interpret(graph, feed).values()
    package = intaglio.compile(graph, precision="bf16")
    with intaglio.open(package) as session:
        (made,) = session.run(feed).values()
    assert made.dtype == np.float32
    assert np.vdot(made, right) / np.linalg.norm(made) / np.linalg.norm(right) > 0.9999
    assert np.abs(made - right).max() > 0  # or nothing was bf16
