"""One value per pixel: a small U-Net (Ronneberger et al. 2015), up by transposed convolution or by
resizing, super-resolution by sub-pixel convolution (ESPCN, Shi et al. 2016), and segmentation by
LR-ASPP on a dilated MobileNetV3-Large (Howard et al. 2019)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.zoo.layers import ConvNorm
from benchmarks.zoo.mobile import MOBILENET_V3_LARGE, mobilenet_v3_layers

WIDTHS = (16, 32, 64, 128)


def _double(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(ConvNorm(inputs, outputs, 3), ConvNorm(outputs, outputs, 3))


def _deconv(inputs: int, outputs: int) -> nn.Module:
    return nn.ConvTranspose2d(inputs, outputs, 2, 2)


def _resize(inputs: int, outputs: int) -> nn.Module:
    up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
    return nn.Sequential(up, ConvNorm(inputs, outputs))


class UNet(nn.Module):
    """Down to an eighth and up again, each level joined with its like; class scores per pixel."""

    def __init__(self, up: Callable[[int, int], nn.Module], classes: int = 2) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(WIDTHS))
        self.enter, self.pool = _double(3, WIDTHS[0]), nn.MaxPool2d(2)
        self.down = nn.ModuleList([_double(a, b) for a, b in pairs])
        self.up = nn.ModuleList([up(b, a) for a, b in reversed(pairs)])
        self.join = nn.ModuleList([_double(2 * a, a) for a, _ in reversed(pairs)])
        self.out = nn.Conv2d(WIDTHS[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        kept = []
        for down in self.down:
            kept.append(x)
            x = down(self.pool(x))
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.out(x)


def unet_deconv() -> nn.Module:
    return UNet(_deconv)


def unet_resize() -> nn.Module:
    return UNet(_resize)


def espcn(scale: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, scale**2, 3, padding=1),
        nn.PixelShuffle(scale),
    )


class LrAspp(nn.Module):
    """Scores of each pixel: those of layers at 1/8 of its size plus gated ones at 1/16."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        layers = mobilenet_v3_layers(MOBILENET_V3_LARGE, dilated=3)
        self.low, self.high = nn.Sequential(*layers[:5]), nn.Sequential(*layers[5:])
        self.body = ConvNorm(960, 128)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(960, 128, 1, bias=False), nn.Sigmoid()
        )
        self.low_scores, self.high_scores = nn.Conv2d(40, classes, 1), nn.Conv2d(128, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        low = self.low(x)
        high = self.high(low)
        high = _to_size(self.body(high) * self.gate(high), low)
        return _to_size(self.low_scores(low) + self.high_scores(high), x)


def _to_size(x: Tensor, like: Tensor) -> Tensor:
    size = like.shape[-2:]
    return nn.functional.interpolate(x, size=size, mode="bilinear", align_corners=False)


def lraspp() -> nn.Module:
    return LrAspp()
