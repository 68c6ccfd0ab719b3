"""Networks that move or derive channels cheaply: ShuffleNetV2 1.0 (Ma et al. 2018) and
GhostNet 1.0 (Han et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.zoo.layers import Classifier, ConvNorm, SqueezeExcite, multiple_of_8


def shuffle(x: Tensor, groups: int = 2) -> Tensor:
    """Channel shuffle: interleave the channels of `groups` groups."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleUnit(nn.Module):
    """Work on one half of the channels (or, with a stride, on all of them twice), then shuffle."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        entering = half if stride == 1 else inputs
        self.work = nn.Sequential(
            ConvNorm(entering, half),
            ConvNorm(half, half, 3, stride, half, None),
            ConvNorm(half, half),
        )
        self.skip = None
        if stride == 2:
            self.skip = nn.Sequential(
                ConvNorm(inputs, inputs, 3, stride, inputs, None), ConvNorm(inputs, half)
            )

    def forward(self, x: Tensor) -> Tensor:
        if self.skip is None:
            kept, worked = x.chunk(2, 1)
            return shuffle(torch.cat([kept, self.work(worked)], 1))
        return shuffle(torch.cat([self.skip(x), self.work(x)], 1))


def shufflenet_v2() -> nn.Module:
    layers: list[nn.Module] = [ConvNorm(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 24
    for outputs, count in ((116, 4), (232, 8), (464, 4)):
        for i in range(count):
            layers.append(ShuffleUnit(channels, outputs, 2 if i == 0 else 1))
            channels = outputs
    return nn.Sequential(*layers, ConvNorm(464, 1024), Classifier(1024, 1000))


class Ghost(nn.Module):
    """Half of the channels by a convolution, the other half from those by a depthwise one."""

    def __init__(self, inputs: int, outputs: int, relu: bool) -> None:
        super().__init__()
        act, made = nn.ReLU if relu else None, -(-outputs // 2)
        self.outputs = outputs
        self.primary = ConvNorm(inputs, made, activation=act)
        self.cheap = ConvNorm(made, made, 3, groups=made, activation=act)

    def forward(self, x: Tensor) -> Tensor:
        made = self.primary(x)
        return torch.cat([made, self.cheap(made)], 1)[:, : self.outputs]


class GhostBottleneck(nn.Module):
    def __init__(
        self, inputs: int, expanded: int, outputs: int, kernel: int, gated: bool, stride: int
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [Ghost(inputs, expanded, relu=True)]
        if stride == 2:
            layers.append(ConvNorm(expanded, expanded, kernel, 2, expanded, None))
        if gated:
            layers.append(SqueezeExcite(expanded, multiple_of_8(expanded / 4)))
        self.work = nn.Sequential(*layers, Ghost(expanded, outputs, relu=False))
        self.skip: nn.Module = nn.Identity()
        if stride == 2 or inputs != outputs:
            self.skip = nn.Sequential(
                ConvNorm(inputs, inputs, kernel, stride, inputs, None),
                ConvNorm(inputs, outputs, activation=None),
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.work(x) + self.skip(x)


# kernel, expanded channels, channels, gated, stride
GHOSTNET = [
    (3, 16, 16, False, 1),
    (3, 48, 24, False, 2),
    (3, 72, 24, False, 1),
    (5, 72, 40, True, 2),
    (5, 120, 40, True, 1),
    (3, 240, 80, False, 2),
    (3, 200, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 480, 112, True, 1),
    (3, 672, 112, True, 1),
    (5, 672, 160, True, 2),
    *[(5, 960, 160, False, 1), (5, 960, 160, True, 1)] * 2,
]


def ghostnet() -> nn.Module:
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2)]
    channels = 16
    for kernel, expanded, outputs, gated, stride in GHOSTNET:
        layers.append(GhostBottleneck(channels, expanded, outputs, kernel, gated, stride))
        channels = outputs
    return nn.Sequential(*layers, ConvNorm(160, 960), Classifier(960, 1280, 1000))
