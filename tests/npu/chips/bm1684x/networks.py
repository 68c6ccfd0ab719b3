"""Quantised networks for BM1684X with random weights: whole ones, and random layers."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.k210.quantized_cnn import Cnn
from tests.npu.quantized_networks import BYTES, Net

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant

RESNETS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


class ReluCnn(Cnn):
    """A network in which most maps of i8 have the zero point of ReLU, -128."""

    def of(self, v: Value) -> tuple[Value, Value]:
        if v not in self.quant and v.dtype == "i8" and self.rng.random() < 0.7:
            self.quant[v] = constant(np.float32(0.05)), constant(np.int8(-128))
        return super().of(v)


def relu_cnn(seed: int) -> Graph:
    """Layers in a random order, most of them with ReLU."""
    rng = np.random.default_rng(seed)
    size = [int(n) for n in rng.integers(8, 40, 2)]
    net = ReluCnn(seed, (1, int(rng.integers(1, 9)), *size))
    x = net.input
    for _ in range(int(rng.integers(3, 8))):
        many = int(rng.integers(1, 100))
        kind = rng.choice(["conv", "depthwise", "add", "pool", "table", "concat", "twice"])
        if kind == "depthwise" and x.shape[1] > 1:
            x = net.conv(x, x.shape[1], 3, depthwise=True)
        elif kind == "add":
            x = net.add(net.conv(x, many, 1), net.conv(x, many, 3))
        elif kind == "pool":
            x = net.max_pool(net.conv(x, many, 1), 3, 1, (1, 1, 1, 1))
        elif kind == "table":
            x = _table(net, net.conv(x, many, 1))
        elif kind == "concat":
            x = _concat(net, net.conv(x, many, 1), net.conv(x, 64, 1))
        elif kind == "twice" and x.shape[2] < 64:
            x = _twice(net, x)
        else:
            x = net.conv(x, many, 3, int(rng.integers(1, 3)))
    return net.graph(x)


# ---- whole networks ------------------------------------------------------------------------------
def resnet(depth: int, size: int = 224, classes: int = 1000) -> Graph:
    """ResNet-18 or ResNet-50 with its classifier."""
    net = Cnn(depth, (1, 3, size, size))
    x = net.max_pool(net.conv(net.input, 64, 7, 2), 3, 2, (1, 1, 1, 1))
    for stage, blocks in enumerate(RESNETS[depth]):
        for i in range(blocks):
            stride = 2 if stage and not i else 1
            x = _residual(net, x, 64 << stage, stride, wide=depth == 50)
    return net.graph(net.conv(net.mean(x), classes, 1, pad=(0, 0, 0, 0)))


def _residual(net: Cnn, x: Value, channels: int, stride: int, wide: bool) -> Value:
    outputs = 4 * channels if wide else channels
    if wide:
        y = net.conv(net.conv(net.conv(x, channels, 1), channels, 3, stride), outputs, 1)
    else:
        y = net.conv(net.conv(x, channels, 3, stride), outputs, 3)
    same = stride == 1 and x.shape[1] == outputs
    return net.add(y, x if same else net.conv(x, outputs, 1, stride))


def yolov8n(size: int = 640) -> Graph:
    """YOLOv8n up to its heads: boxes and classes of three sizes."""
    net = Cnn(8, (1, 3, size, size), "u8")
    x = _silu(net, _silu(net, net.input, 16, 3, 2), 32, 3, 2)
    x = _silu(net, _c2f(net, x, 32, 1, True), 64, 3, 2)
    p3 = _c2f(net, x, 64, 2, True)
    p4 = _c2f(net, _silu(net, p3, 128, 3, 2), 128, 2, True)
    p5 = _sppf(net, _c2f(net, _silu(net, p4, 256, 3, 2), 256, 1, True))
    n4 = _c2f(net, _concat(net, _twice(net, p5), p4), 128, 1, False)
    n3 = _c2f(net, _concat(net, _twice(net, n4), p3), 64, 1, False)
    n4 = _c2f(net, _concat(net, _silu(net, n3, 64, 3, 2), n4), 128, 1, False)
    n5 = _c2f(net, _concat(net, _silu(net, n4, 128, 3, 2), p5), 256, 1, False)
    heads = []
    for level in (n3, n4, n5):
        for inner, outputs in ((64, 64), (80, 80)):
            y = _silu(net, _silu(net, level, inner), inner)
            heads.append(net.conv(y, outputs, 1))
    return net.graph(*heads)


def _silu(net: Cnn, x: Value, channels: int, kernel: int = 3, stride: int = 1) -> Value:
    return _table(net, net.conv(x, channels, kernel, stride))


def _table(net: Cnn, x: Value) -> Value:
    made = net.table(x)
    net.of(made)
    return made


def _c2f(net: Cnn, x: Value, channels: int, blocks: int, shortcut: bool) -> Value:
    half = channels // 2
    y = _silu(net, x, channels, 1)
    parts = [_part(net, y, 0, half), _part(net, y, half, channels)]
    for _ in range(blocks):
        z = _silu(net, _silu(net, parts[-1], half), half)
        parts.append(net.add(parts[-1], z) if shortcut else z)
    return _silu(net, _concat(net, *parts), channels, 1)


def _sppf(net: Cnn, x: Value) -> Value:
    half = _silu(net, x, x.shape[1] // 2, 1)
    pools = [half]
    for _ in range(3):
        pools.append(net.max_pool(pools[-1], 5, 1, (2, 2, 2, 2)))
    return _silu(net, _concat(net, *pools), x.shape[1], 1)


def _part(net: Cnn, x: Value, first: int, last: int) -> Value:
    made = ops.part(x, first, last, axis=1)
    net.quant[made] = net.of(x)
    return made


def _concat(net: Cnn, *parts: Value) -> Value:
    made = ops.concat(*parts, axis=1)
    net.quant[made] = net.of(parts[0])
    return made


def _twice(net: Cnn, x: Value) -> Value:
    h, w = x.shape[2:]
    made = ops.resize(x, axes=(2, 3), shape=(2 * h, 2 * w), scales=(2.0, 2.0), **NEAREST)
    net.quant[made] = net.of(x)
    return made


# ---- random layers and networks ------------------------------------------------------------------
def random_layer(seed: int) -> Graph:
    """One layer: up to 300 channels, odd sizes, windows, strides, dilations and zero points."""
    rng = np.random.default_rng(seed)
    high, wide = (int(n) for n in rng.integers(1, 60, 2))
    channels, outputs = (int(2 ** rng.uniform(0, 8.2)) for _ in range(2))
    x = Value(Type(str(rng.choice(BYTES)), (1, channels, high, wide)), "x")
    net = Net(rng, [x])
    kind = rng.choice(["conv", "conv", "depthwise", "residual", "table", "add", "mul", "pool"])
    if kind == "pool":
        return _graph(x, net.pool())
    if kind in ("add", "mul"):
        b = Value(Type(str(rng.choice(BYTES)), _broadcast(rng, x.shape)), "b")
        made = ops.qlinear_add if kind == "add" else ops.qlinear_mul
        return Graph([x, b], [made(*net.of(x), *net.of(b), *net.result())], ["y"])
    deep = kind == "depthwise"
    outputs = channels if deep else outputs
    y = random_conv(net, x, outputs, deep)
    if kind == "residual":
        r = Value(Type(str(rng.choice(BYTES)), y.shape), "r")
        y = random_conv(net, x, outputs, deep, r, y)
        return Graph([x, r], [y], ["y"])
    return _graph(x, net.function(y) if kind == "table" else y)


def _broadcast(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape itself, or one with single rows, columns or channels."""
    if rng.random() < 0.5:
        return shape
    return (1, *(1 if rng.random() < 0.5 else n for n in shape[1:]))


def random_conv(
    net: Net,
    x: Value,
    outputs: int,
    deep: bool,
    residual: Value | None = None,
    like: Value | None = None,
) -> Value:
    """A convolution; with a residual, one whose result is `like` another."""
    rng = net.rng
    if like is not None:
        assert like.producer is not None
        window = dict(like.producer.attrs)
        weights = like.producer.inputs[3:6]
    else:
        kernel = tuple(int(min(k, n)) for k, n in zip(rng.integers(1, 6, 2), x.shape[2:]))  # noqa: B905
        window = {
            "stride": tuple(map(int, rng.integers(1, 4, 2))),
            "dilation": tuple(int(rng.integers(1, 3)) if k > 1 else 1 for k in kernel),
            "pad": tuple(int(rng.integers(0, k)) for k in kernel * 2),
            "groups": outputs if deep else 1,
        }
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, window["dilation"], strict=True)]
        if any(r > n for r, n in zip(reach, x.shape[2:], strict=True)):
            window["dilation"] = (1, 1)
        weights = list(net.weights(outputs, 1 if deep else x.shape[1], kernel))
        size = 70 * np.sqrt(weights[0].data[0].size)
        spread = (rng.uniform(0.2, 2, outputs) / size).astype(np.float32)
        if rng.random() < 0.3:  # ties: many sums lie half-way between two results
            spread = np.full(outputs, 2.0 ** -int(np.log2(size)), np.float32)
        weights[1] = constant(spread)
    scale, zero = constant(np.float32(1)), net.zero(x.dtype)
    ys, yz = constant(np.float32(1)), net.zero(str(rng.choice(BYTES)))
    bias = constant(rng.integers(-3000, 3000, outputs).astype(np.int32))
    given = [x, scale, zero, *weights, ys, yz, bias]
    if residual is not None:
        given += [residual, constant(np.float32(rng.uniform(0.2, 1))), net.zero(residual.dtype)]
    return ops.qlinear_conv(*given, **window)


def _graph(x: Value, y: Value) -> Graph:
    return Graph([x], [y], ["y"])


def random_network(seed: int) -> Graph:
    """Up to ten layers of all kinds, with branches, several images and outputs."""
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.integers((1, 2, 2), (100, 24, 24))]
    x = Value(Type(str(rng.choice(BYTES)), (int(rng.integers(1, 3)), *sizes)), "x")
    net = Net(rng, [x])
    steps = [net.conv, net.conv, net.conv, net.function, net.pair, net.pool, net.move]
    for _ in range(int(rng.integers(2, 11))):
        net.live.append(steps[int(rng.integers(len(steps)))]())
    ends = [net.live[-1], *([net.pick()] if rng.random() < 0.3 else [])]
    ends = [v for v in dict.fromkeys(ends) if v is not x] or [net.function(x)]
    return Graph([x], ends, [f"y{i}" for i in range(len(ends))])
