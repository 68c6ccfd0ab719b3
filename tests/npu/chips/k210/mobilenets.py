"""MobileNetV1 and V2 and a detector of the same size, quantised, with random weights."""

from __future__ import annotations

from tests.npu.chips.k210.quantized_cnn import Cnn

from intaglio.ir import Graph, Value

V1 = [
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
]
V2 = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


def mobilenet_v1(size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0) -> Graph:
    """MobileNetV1 with its classifier."""
    net = Cnn(seed, (1, 3, size, size))
    x = net.conv(net.input, int(32 * width), 3, 2)
    for channels, stride in V1:
        x = net.conv(x, x.shape[1], 3, stride, depthwise=True)
        x = net.conv(x, int(channels * width), 1)
    return net.graph(net.conv(net.mean(x), classes, 1, pad=(0, 0, 0, 0)))


def mobilenet_v2(size: int = 224, classes: int = 1000, seed: int = 0) -> Graph:
    """MobileNetV2 with its classifier."""
    net = Cnn(seed, (1, 3, size, size))
    x = net.conv(net.input, 32, 3, 2)
    for expansion, channels, repeats, stride in V2:
        for i in range(repeats):
            x = _block(net, x, expansion, channels, stride if i == 0 else 1)
    x = net.conv(x, 1280, 1)
    return net.graph(net.conv(net.mean(x), classes, 1, pad=(0, 0, 0, 0)))


def _block(net: Cnn, x: Value, expansion: int, channels: int, stride: int) -> Value:
    y = net.conv(x, x.shape[1] * expansion, 1) if expansion > 1 else x
    y = net.conv(y, y.shape[1], 3, stride, depthwise=True)
    y = net.conv(y, channels, 1)
    return net.add(x, y) if stride == 1 and x.shape[1] == channels else y


def tiny_yolo(seed: int = 0) -> Graph:
    """A detector like YOLOv2-tiny, of a size that the K210's memory holds."""
    net = Cnn(seed, (1, 3, 224, 320))
    x = net.input
    for channels in (16, 32, 64, 128, 256):
        x = net.max_pool(net.table(net.conv(x, channels)))
    x = net.max_pool(net.table(net.conv(x, 512)), 2, 1, (0, 0, 1, 1))
    x = net.table(net.conv(x, 256))
    return net.graph(net.conv(x, 125, 1))
