"""ResNet (He et al. 2015, the stride on the 3x3), ResNeXt (Xie et al. 2017) and SqueezeNet 1.1
(Iandola et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.zoo.layers import Classifier, ConvNorm


class Residual(nn.Module):
    """relu(body(x) + x), where x is projected if its shape changes."""

    def __init__(self, body: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        same = stride == 1 and inputs == outputs
        self.body, self.act = body, nn.ReLU()
        self.skip = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.body(x) + self.skip(x))


def _basic(inputs: int, width: int, stride: int) -> Residual:
    body = nn.Sequential(
        ConvNorm(inputs, width, 3, stride), ConvNorm(width, width, 3, activation=None)
    )
    return Residual(body, inputs, width, stride)


def _bottleneck(inputs: int, width: int, stride: int, groups: int = 1) -> Residual:
    """ResNet's bottleneck; with 32 groups ResNeXt's, whose 3x3 layer is twice as wide."""
    inner = width if groups == 1 else 2 * width
    body = nn.Sequential(
        ConvNorm(inputs, inner),
        ConvNorm(inner, inner, 3, stride, groups),
        ConvNorm(inner, 4 * width, activation=None),
    )
    return Residual(body, inputs, 4 * width, stride)


def _resnet(block: Callable[..., Residual], expansion: int, depths: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        for i in range(depth):
            width = 64 << stage
            layers.append(block(channels, width, 2 if stage and i == 0 else 1))
            channels = width * expansion
    return nn.Sequential(*layers, Classifier(channels, 1000))


def resnet18() -> nn.Module:
    return _resnet(_basic, 1, (2, 2, 2, 2))


def resnet50() -> nn.Module:
    return _resnet(_bottleneck, 4, (3, 4, 6, 3))


def resnext50() -> nn.Module:
    return _resnet(partial(_bottleneck, groups=32), 4, (3, 4, 6, 3))


class Fire(nn.Module):
    """Squeeze to few channels, then expand by a 1x1 and a 3x3 side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze, self.act = nn.Conv2d(inputs, squeezed, 1), nn.ReLU()
        self.point = nn.Conv2d(squeezed, expanded, 1)
        self.square = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.squeeze(x))
        return torch.cat([self.act(self.point(x)), self.act(self.square(x))], 1)


def squeezenet1_1() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU()]
    channels = 64
    for squeezed, count in ((16, 2), (32, 2), (48, 2), (64, 2)):
        if squeezed != 64:
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for _ in range(count):
            layers.append(Fire(channels, squeezed, 4 * squeezed))
            channels = 8 * squeezed
    head = [nn.Dropout(), nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head)
