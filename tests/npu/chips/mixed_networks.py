"""Quantised networks with layers that no NPU does between those that it does."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.k210 import mobilenets
from tests.npu.chips.k210.quantized_cnn import Cnn

from intaglio import ops
from intaglio.ir import Graph, Value, constant


class Mixed(Cnn):
    """A network under construction, with layers of the CPU."""

    def floats(self, x: Value) -> Value:
        return ops.dequantize_linear(x, *self.of(x))

    def integers(self, real: Value, like: Value) -> Value:
        made = ops.quantize_linear(real, *self.of(like), dtype=like.dtype)
        self.quant[made] = self.of(like)
        return made

    def on_cpu(self, x: Value) -> Value:
        """Channels scaled by a softmax over them: floats, with an op that no NPU has."""
        real = self.floats(x)
        return self.integers(ops.mul(real, ops.softmax(real, axis=1)), x)


def cpu_in_the_middle(seed: int = 0, channels: int = 24, size: int = 32) -> Graph:
    """Convolutions, a layer of the CPU, convolutions."""
    net = Mixed(seed, (1, 3, size, size))
    x = net.conv(net.conv(net.input, channels, 3, 2), channels, 3)
    x = net.conv(net.on_cpu(x), 2 * channels, 3)
    return net.graph(net.conv(x, 8, 1))


def two_readers(seed: int = 0) -> Graph:
    """An NPU part with two results, and one that reads both the CPU's and the NPU's."""
    net = Mixed(seed, (1, 3, 32, 32))
    a = net.conv(net.input, 32, 3)
    b = net.conv(a, 32, 3)
    joined = net.add(net.conv(net.on_cpu(b), 32, 3), a)
    return net.graph(net.conv(joined, 40, 3), b)


def detector(seed: int = 0, size: int = 64) -> Graph:
    """A detector whose boxes are decoded and chosen on the CPU."""
    net = Mixed(seed, (1, 3, size, size))
    x = net.conv(net.conv(net.input, 16, 3, 2), 32, 3, 2)
    x = net.conv(net.conv(x, 64, 3, 2), 64, 3)
    cells = x.shape[2] * x.shape[3]
    boxes, scores = net.floats(net.conv(x, 4, 1)), net.floats(net.conv(x, 2, 1))
    boxes = ops.transpose(ops.reshape(boxes, shape=(1, 4, cells)), perm=(0, 2, 1))
    scores = ops.sigmoid(ops.reshape(scores, shape=(1, 2, cells)))
    best, at = ops.topk(scores, k=10, axis=2)
    return net.graph(best, at, boxes)


def mobilenet_v2_softmax(size: int = 96, classes: int = 100) -> Graph:
    """MobileNetV2 that ends in probabilities."""
    graph = mobilenets.mobilenet_v2(size, classes)
    net = Mixed(0, (1, 1, 1, 1))
    scores = ops.reshape(net.floats(graph.outputs[0]), shape=(1, classes))
    return Graph(graph.inputs, [ops.softmax(scores, axis=1)], ["probabilities"])


def attention(seed: int = 0, depth: int = 20, size: int = 9) -> Graph:
    """Queries, keys and values by convolutions, and two products with a softmax between them."""
    net, pixels = Mixed(seed, (1, 3, size, size)), size * size
    x = net.conv(net.input, 32, 3)

    def rows(v: Value) -> Value:
        made = ops.reshape(v, shape=(1, depth, pixels))
        net.quant[made] = net.of(v)
        return made

    def turned(v: Value) -> Value:
        made = ops.transpose(v, perm=(0, 2, 1))
        net.quant[made] = net.of(v)
        return made

    def product(a: Value, b: Value, scale: float) -> Value:
        y = constant(np.float32(scale)), net.of(a)[1]
        made = ops.qlinear_matmul(a, *net.of(a), b, *net.of(b), *y)
        net.quant[made] = y
        return made

    q, k, v = (rows(net.conv(x, depth, 1)) for _ in range(3))
    shares = ops.softmax(net.floats(product(turned(q), k, 0.3)), axis=2)
    small = constant(np.float32(1 / 256)), constant(np.int8(-128))
    shares = ops.quantize_linear(shares, *small, dtype="i8")
    net.quant[shares] = small
    mixed = turned(product(shares, turned(v), 0.04))
    made = ops.reshape(mixed, shape=(1, depth, size, size))
    net.quant[made] = net.of(mixed)
    return net.graph(net.conv(made, 8, 1))


def random_mixed(seed: int) -> Graph:
    """A few layers of the NPU and of the CPU in a random order."""
    rng = np.random.default_rng(seed)
    net = Mixed(seed, (1, int(rng.integers(1, 9)), int(rng.integers(12, 40)), 28))
    x = net.conv(net.input, int(rng.integers(8, 80)), 3)
    for kind in rng.choice(["conv", "wide", "depthwise", "cpu", "cpu", "add"], 6):
        if kind == "cpu":
            x = net.on_cpu(x)
        elif kind == "add":
            x = net.add(net.conv(x, x.shape[1], 1), x)
        elif kind == "depthwise":
            x = net.conv(x, x.shape[1], 3, depthwise=True)
        else:
            x = net.conv(x, int(rng.integers(16, 100)), 3 if kind == "conv" else 5)
    return net.graph(net.conv(x, int(rng.integers(1, 20)), 1))
