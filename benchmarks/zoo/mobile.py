"""MobileNet V1-V3 (Howard et al. 2017, Sandler et al. 2018, Howard et al. 2019) and EfficientNet
(Tan & Le 2019; Lite0 drops the gates and clamps at 6): stacks of depthwise convolutions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from benchmarks.zoo.layers import Activation, Classifier, ConvNorm, SqueezeExcite, multiple_of_8


def mobilenet_v1() -> nn.Module:
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2)]
    channels = 32
    rows = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    for outputs, stride in [*rows, *[(512, 1)] * 5, (1024, 2), (1024, 1)]:
        layers.append(ConvNorm(channels, channels, 3, stride, groups=channels))
        layers.append(ConvNorm(channels, outputs))
        channels = outputs
    return nn.Sequential(*layers, Classifier(1024, 1000))


class Inverted(nn.Module):
    """Expand, filter each channel, maybe gate the channels, project; add the input if it fits."""

    def __init__(
        self,
        inputs: int,
        expanded: int,
        outputs: int,
        kernel: int,
        stride: int,
        activation: Activation,
        gate: Callable[[int], nn.Module] | None = None,
        dilation: int = 1,
    ) -> None:
        super().__init__()
        act = activation
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(ConvNorm(inputs, expanded, activation=act))
        layers.append(
            ConvNorm(expanded, expanded, kernel, stride, expanded, act, dilation=dilation)
        )
        if gate:
            layers.append(gate(expanded))
        layers.append(ConvNorm(expanded, outputs, activation=None))
        self.body, self.add = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.add else self.body(x)


# expansion, kernel, stride of the first, channels, how many
MOBILENET_V2 = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 3, 2, 32, 3),
    (6, 3, 2, 64, 4),
    (6, 3, 1, 96, 3),
    (6, 3, 2, 160, 3),
    (6, 3, 1, 320, 1),
]
EFFICIENTNET = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
]


def _stack(
    rows: list[tuple[int, int, int, int, int]], activation: Activation, gated: bool = False
) -> nn.Module:
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2, activation=activation)]
    channels = 32
    for expansion, kernel, first, outputs, count in rows:
        for i in range(count):
            gate = None
            if gated:  # as wide as a quarter of what enters the block, not of what it expands to
                gate = partial(
                    SqueezeExcite, squeezed=channels // 4, activation=nn.SiLU, gate=nn.Sigmoid
                )
            stride, expanded = first if i == 0 else 1, channels * expansion
            layers.append(Inverted(channels, expanded, outputs, kernel, stride, activation, gate))
            channels = outputs
    layers.append(ConvNorm(channels, 1280, activation=activation))
    return nn.Sequential(*layers, Classifier(1280, 1000))


def mobilenet_v2() -> nn.Module:
    return _stack(MOBILENET_V2, nn.ReLU6)


def efficientnet_lite0() -> nn.Module:
    return _stack(EFFICIENTNET, nn.ReLU6)


def efficientnet_b0() -> nn.Module:
    return _stack(EFFICIENTNET, nn.SiLU, gated=True)


# kernel, expanded channels, channels, gated, hard swish, stride
MOBILENET_V3_SMALL = [
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
]


MOBILENET_V3_LARGE = [
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
]


def mobilenet_v3_layers(
    rows: list[tuple[int, int, int, bool, bool, int]], dilated: int = 0
) -> list[nn.Module]:
    """The layers before the classifier; the last `dilated` blocks keep the size and see farther."""
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2, activation=nn.Hardswish)]
    channels = 16
    for i, (kernel, expanded, outputs, gated, swish, stride) in enumerate(rows):
        gate = partial(SqueezeExcite, squeezed=multiple_of_8(expanded / 4)) if gated else None
        act = nn.Hardswish if swish else nn.ReLU
        stride, dilation = (1, 2) if i >= len(rows) - dilated else (stride, 1)
        layers.append(Inverted(channels, expanded, outputs, kernel, stride, act, gate, dilation))
        channels = outputs
    layers.append(ConvNorm(channels, 6 * channels, activation=nn.Hardswish))
    return layers


def mobilenet_v3_small() -> nn.Module:
    layers = mobilenet_v3_layers(MOBILENET_V3_SMALL)
    return nn.Sequential(*layers, Classifier(576, 1024, 1000, activation=nn.Hardswish))
