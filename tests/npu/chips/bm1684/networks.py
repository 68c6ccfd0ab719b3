"""Quantised networks for BM1684 with random weights: maps have the zero points that it has."""

from __future__ import annotations

import numpy as np
from tests.npu.chips.bm1684x import networks
from tests.npu.chips.k210 import mobilenets
from tests.npu.chips.k210.quantized_cnn import Cnn

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant


class Plain(Cnn):
    """A network whose maps of i8 have zero point 0, or that of ReLU, -128."""

    def of(self, v: Value) -> tuple[Value, Value]:
        if v not in self.quant:
            scale = np.float32(self.rng.uniform(0.5, 2)) * np.float32(0.05)
            zero = np.uint8(0) if v.dtype == "u8" else np.int8(self.rng.choice([0, -128]))
            self.quant[v] = constant(scale), constant(np.asarray(zero))
        return self.quant[v]


def layer(seed: int) -> Graph:
    """One layer: up to 300 channels, odd sizes, windows, strides, dilations, ties."""
    rng = np.random.default_rng(seed)
    high, wide = (int(n) for n in rng.integers(1, 60, 2))
    channels, outputs = (int(2 ** rng.uniform(0, 8.2)) for _ in range(2))
    net = Plain(seed, (1, channels, high, wide), str(rng.choice(["i8", "u8"])))
    x, kind = net.input, rng.choice(["conv", "conv", "depthwise", "add", "pool", "mean", "padded"])
    if kind in ("conv", "depthwise"):
        return net.graph(_conv(net, rng, outputs, kind == "depthwise"))
    if kind == "add":
        b = Value(Type(str(rng.choice(["i8", "u8"])), x.shape), "b")
        return Graph([x, b], [ops.qlinear_add(x, *net.of(x), b, *net.of(b), *net._out())], ["y"])
    if kind == "mean":
        return net.graph(net.mean(x))
    size = max(2, min(3, high, wide))
    if min(high, wide) < 2:
        return net.graph(net.mean(x))
    pad = (size // 2,) * 4 if kind == "padded" else (0,) * 4
    return net.graph(net.max_pool(x, size, int(rng.integers(1, 3)), pad))


def _conv(net: Plain, rng: np.random.Generator, outputs: int, deep: bool) -> Value:
    x = net.input
    channels, sizes = x.shape[1], x.shape[2:]
    outputs = channels if deep else outputs
    kernel = tuple(int(min(k, n)) for k, n in zip(rng.integers(1, 6, 2), sizes, strict=True))
    window = {
        "stride": tuple(map(int, rng.integers(1, 4, 2))),
        "dilation": tuple(int(rng.integers(1, 3)) if k > 1 else 1 for k in kernel),
        "pad": tuple(int(rng.integers(0, k)) for k in kernel * 2),
        "groups": outputs if deep else 1,
    }
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, window["dilation"], strict=True)]
    if any(r > n for r, n in zip(reach, sizes, strict=True)):
        window["dilation"] = (1, 1)
    w = rng.integers(-127, 128, (outputs, 1 if deep else channels, *kernel)).astype(np.int8)
    size = 70 * np.sqrt(w[0].size)
    factor = rng.uniform(0.2, 2, outputs) / size
    if rng.random() < 0.4:  # one shift for all channels, and many ties
        factor = np.full(outputs, 2.0 ** -int(np.log2(size)))
    y, (xs, xz) = net._out(), net.of(x)
    scales = (factor * y[0].data / xs.data).astype(np.float32)
    bias = constant(rng.integers(-3000, 3000, outputs).astype(np.int32))
    zeros = constant(np.zeros(outputs, np.int8))
    return ops.qlinear_conv(x, xs, xz, constant(w), constant(scales), zeros, *y, bias, **window)


def network(seed: int) -> Graph:
    """Up to eight layers of all kinds, with branches and several outputs."""
    rng = np.random.default_rng(seed)
    sizes = int(rng.integers(1, 100)), *map(int, rng.integers(4, 30, 2))
    net = Plain(seed, (1, *sizes), str(rng.choice(["i8", "u8"])))
    x, outputs = net.input, []
    kinds = ["conv", "conv", "point", "deep", "add", "pool", "concat", "twice", "part", "stride"]
    kinds.append("groups")
    for _ in range(int(rng.integers(3, 9))):
        kind, many = rng.choice(kinds), int(rng.integers(1, 140))
        if kind == "deep":
            x = net.conv(x, x.shape[1], 3, depthwise=True)
        elif kind == "add":
            x = net.add(net.conv(x, many, 1), net.conv(x, many, 3))
        elif kind == "pool":
            x = net.max_pool(net.conv(x, many, 1), 3, int(rng.integers(1, 3)), (1, 1, 1, 1))
        elif kind == "concat":
            other = net.conv(x, int(rng.integers(1, 100)), 1)
            x = networks._concat(net, net.conv(x, many, 1), other)
        elif kind == "twice" and x.shape[2] < 40:
            x = networks._twice(net, x)
        elif kind == "part" and x.shape[1] > 4:
            x = net.conv(networks._part(net, x, 1, x.shape[1] - 2), many, 1)
        elif kind == "groups" and x.shape[1] % 2 == 0:
            x = net.conv(x, 2 * (many // 2 + 1), 3, groups=2)
        elif kind == "stride" and min(x.shape[2:]) > 3:
            x = net.conv(x, many, 3, 2)
        else:
            x = net.conv(x, many, 1 if kind == "point" else 3)
        if rng.random() < 0.15:
            outputs.append(x)
    return net.graph(*dict.fromkeys([x, *outputs]))


def tables(seed: int) -> Graph:
    """Convolutions with lookup tables behind them."""
    rng = np.random.default_rng(seed)
    sizes = int(rng.integers(1, 100)), *map(int, rng.integers(4, 40, 2))
    net = Plain(seed, (1, *sizes), str(rng.choice(["i8", "u8"])))
    x = net.input
    for _ in range(int(rng.integers(1, 4))):
        made = net.conv(x, int(rng.integers(1, 140)), 3) if rng.random() < 0.8 else x
        x = networks._table(net, made)
    return net.graph(net.conv(x, 9, 1) if rng.random() < 0.5 else x)


def gates(seed: int) -> Graph:
    """Convolutions multiplied by one number for each channel, as in squeeze and excitation."""
    rng = np.random.default_rng(seed)
    sizes = int(rng.integers(1, 100)), *map(int, rng.integers(4, 40, 2))
    net = Plain(seed, (1, *sizes))
    x = net.input
    for _ in range(int(rng.integers(1, 4))):
        many = int(rng.integers(1, 140))
        x = net.conv(x, many, 3)
        small = net.mean(x) if rng.random() < 0.6 else x
        gate = net.conv(small, many, 1, pad=(0, 0, 0, 0))
        if rng.random() < 0.5:
            gate = networks._table(net, gate)
        y = net._out()
        while all(net.of(v)[1].data == -128 for v in (x, gate)) and y[1].data != -128:
            y = net._out()
        made = ops.qlinear_mul(x, *net.of(x), gate, *net.of(gate), *y)
        net.quant[made] = y
        x = made
    return net.graph(x)


def whole(name: str, monkeypatch: object) -> Graph:
    """MobileNetV1, V2 or a ResNet at 224, or YOLOv8n up to its heads."""
    for module in (networks, mobilenets):
        monkeypatch.setattr(module, "Cnn", Plain)  # type: ignore[attr-defined]
    made = {
        "mobilenet_v1": mobilenets.mobilenet_v1,
        "mobilenet_v2": mobilenets.mobilenet_v2,
        "resnet18": lambda: networks.resnet(18),
        "resnet50": lambda: networks.resnet(50),
        "yolov8n": lambda: networks.yolov8n(320),
    }
    return made[name]()
