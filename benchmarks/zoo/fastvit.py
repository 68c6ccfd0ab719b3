"""FastViT-T8 (Vasu et al. 2023): convolutions only, whose branches merge after training.

`fastvit_t8` has every branch merged, as users deploy it; `fastvit_t8_branches` has the branches
of the training code, side by side, as users export it who forget to merge them."""

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.zoo.layers import Scale, SqueezeExcite

DEPTHS, WIDTHS, EXPANSION = (2, 2, 4, 2), (48, 96, 192, 384), 3


def _branch(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Merged(nn.Module):
    """A convolution with bias; while training, the sum of normalised branches.

    The branches are one of the window, one of `small` (if any) and, where shapes allow, the input.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        small: int = 0,
        branches: bool = False,
        skip: bool = True,
    ) -> None:
        super().__init__()
        same = skip and inputs == outputs and stride == 1
        self.branches: nn.ModuleList | None = None
        if branches:
            kernels = [kernel, *([small] if small else [])]
            parts = [_branch(inputs, outputs, k, stride, groups) for k in kernels]
            self.branches = nn.ModuleList([*parts, *([nn.BatchNorm2d(inputs)] if same else [])])
        else:
            self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        if self.branches is None:
            y: Tensor = self.conv(x)
            return y
        first, *others = self.branches
        y = first(x)
        for branch in others:
            y = y + branch(x)
        return y


class Mixer(nn.Module):
    """RepMixer while training: x + scale * (branches(x) - norm(x)), all within a channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = Merged(width, width, 3, 1, width, small=1, branches=True)
        self.norm, self.scale = nn.BatchNorm2d(width), Scale(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale(self.mix(x) - self.norm(x))


class Block(nn.Module):
    """Mix pixels by a depthwise 3x3, then add a depthwise 7x7 and two products, scaled."""

    def __init__(self, width: int, branches: bool) -> None:
        super().__init__()
        self.mixer = Mixer(width) if branches else Merged(width, width, 3, 1, width)
        self.see = _branch(width, width, 7, 1, width)
        self.grow, self.act = nn.Conv2d(width, EXPANSION * width, 1), nn.GELU()
        self.shrink, self.scale = nn.Conv2d(EXPANSION * width, width, 1), Scale(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mixer(x)
        return x + self.scale(self.shrink(self.act(self.grow(self.see(x)))))


def _embed(inputs: int, outputs: int, branches: bool) -> list[nn.Module]:
    """To half the size: a 7x7 within each channel, twice the channels, then a product."""
    wide = Merged(inputs, outputs, 7, 2, inputs, small=3, branches=branches)
    return [wide, Merged(outputs, outputs, branches=branches), nn.GELU()]


def _fastvit(branches: bool) -> nn.Module:
    width = WIDTHS[0]
    stem = [
        (Merged(3, width, 3, 2, 1, 1, branches), nn.GELU()),
        (Merged(width, width, 3, 2, width, 1, branches), nn.GELU()),
        (Merged(width, width, branches=branches), nn.GELU()),
    ]
    layers: list[nn.Module] = [layer for pair in stem for layer in pair]
    for depth, outputs in zip(DEPTHS, WIDTHS, strict=True):
        if outputs != width:
            layers += _embed(width, outputs, branches)
        layers += [Block(outputs, branches) for _ in range(depth)]
        width = outputs
    last = 2 * width
    gate = SqueezeExcite(last, last // 16, gate=nn.Sigmoid)
    layers += [Merged(width, last, 3, 1, width, 1, branches), gate, nn.GELU()]
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000)]
    return nn.Sequential(*layers, *pooled)


def fastvit_t8() -> nn.Module:
    return _fastvit(branches=False)


def fastvit_t8_branches() -> nn.Module:
    return _fastvit(branches=True)
