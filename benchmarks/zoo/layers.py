"""Layers that several families of nets share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module] | None


def multiple_of_8(channels: float) -> int:
    """Rounded to a multiple of 8, never down by more than a tenth: the mobile nets' rule."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class ConvNorm(nn.Sequential):
    """Convolution that keeps the size (divided by its stride), batch norm, activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        activation: Activation = nn.ReLU,
        pad: int | None = None,
        dilation: int = 1,
    ) -> None:
        pad = kernel // 2 * dilation if pad is None else pad
        conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, dilation, groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), *([activation()] if activation else []))


class SqueezeExcite(nn.Module):
    """Scale each channel by a gate computed from the means of all channels."""

    def __init__(
        self,
        channels: int,
        squeezed: int,
        activation: Callable[[], nn.Module] = nn.ReLU,
        gate: Callable[[], nn.Module] = nn.Hardsigmoid,
    ) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.act = nn.Conv2d(channels, squeezed, 1), activation()
        self.expand, self.gate = nn.Conv2d(squeezed, channels, 1), gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class Scale(nn.Module):
    """One factor per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class Classifier(nn.Sequential):
    """Mean over the image, then a linear layer for each of `sizes`."""

    def __init__(self, inputs: int, *sizes: int, activation: Callable[[], nn.Module] = nn.ReLU):
        layers: list[nn.Module] = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        for outputs in sizes:
            layers += [nn.Linear(inputs, outputs), activation()]
            inputs = outputs
        super().__init__(*layers[:-1])


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attention in single operations, as in most published models."""
    scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    return torch.matmul(scores.softmax(-1), v)


class Mlp(nn.Sequential):
    """Two linear layers around an activation."""

    def __init__(self, width: int, hidden: int, activation: Callable[[], nn.Module] = nn.GELU):
        super().__init__(nn.Linear(width, hidden), activation(), nn.Linear(hidden, width))
