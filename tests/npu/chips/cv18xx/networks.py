"""Whole networks, quantised, with random weights: MobileNetV1, V2 and ResNet-18."""

from __future__ import annotations

from functools import partial

from tests.npu.chips.cv18xx.quantized_layers import Layers
from tests.npu.chips.k210.mobilenets import mobilenet_v1, mobilenet_v2

from intaglio.ir import Graph

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def resnet18(size: int = 224, classes: int = 1000, seed: int = 0) -> Graph:
    """ResNet-18 with its classifier."""
    net = Layers(seed, (1, 3, size, size))
    x = net.rectified(net.conv(net.input, 64, 7, 2))
    x = net.halved(x)
    for channels, stride in STAGES:
        for first in (True, False):
            step = stride if first else 1
            y = net.rectified(net.conv(x, channels, 3, step))
            y = net.conv(y, channels, 3)
            if step != 1:
                x = net.conv(x, channels, 1, step)
            x = net.rectified(net.add(x, y))
    return net.graph(net.conv(net.mean(x), classes, 1, pad=(0, 0, 0, 0)))


NETWORKS = {
    "mobilenet_v1": partial(mobilenet_v1, size=224),
    "mobilenet_v2": partial(mobilenet_v2, size=224),
    "resnet18": partial(resnet18, size=224),
}
