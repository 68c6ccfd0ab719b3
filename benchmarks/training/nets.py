"""ResNets for CIFAR-10 (He et al., 2015, section 4.2): 6n + 2 layers, shortcuts without weights.

The names of parameters are those of akamaster/pytorch_resnet_cifar10, whose trained weights fit:
ResNet-20 91.73 %, ResNet-56 93.39 % (its README).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import intaglio
from intaglio.errors import BadInput
from intaglio.ir import Graph

WIDTHS = (16, 32, 64)
FILES = {
    "resnet20": "resnet20-12fca82f.th",
    "resnet32": "resnet32-d509ac18.th",
    "resnet56": "resnet56-4bfd9763.th",
}
BLOCKS = {"resnet20": 3, "resnet32": 5, "resnet56": 9}


class Block(nn.Module):
    """Two convolutions and a shortcut; where it narrows, zeros stand for the new channels."""

    def __init__(self, few: int, many: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(few, many, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(many)
        self.conv2 = nn.Conv2d(many, many, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(many)
        self.stride, self.extra = stride, (many - few) // 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra, self.extra))
        return F.relu(y + x)


class ResNet(nn.Module):
    """A ResNet of 6 * blocks + 2 layers for pictures of 32 x 32."""

    def __init__(self, blocks: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        few = WIDTHS[0]
        for i, many in enumerate(WIDTHS):
            first = Block(few, many, 2 if i else 1)
            stage = nn.Sequential(first, *(Block(many, many, 1) for _ in range(blocks - 1)))
            setattr(self, f"layer{i + 1}", stage)
            few = many
        self.linear = nn.Linear(few, 10)
        for m in self.modules():
            if isinstance(m, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(m.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def module(name: str, seed: int = 0, weights: Path | None = None) -> ResNet:
    """A network with random weights, or with those of a folder of published files."""
    torch.manual_seed(seed)
    net = ResNet(BLOCKS[name])
    if weights is not None:
        path = weights / FILES[name]
        if not path.exists():
            raise BadInput(f"{path} is missing; it is a file of akamaster/pytorch_resnet_cifar10")
        state = torch.load(path, map_location="cpu", weights_only=False)["state_dict"]
        net.load_state_dict({k.removeprefix("module."): v for k, v in state.items()}, strict=False)
    return net.eval()


def graph(name: str, seed: int = 0, weights: Path | None = None) -> Graph:
    """The network as a graph with its batch norms."""
    return intaglio.load(module(name, seed, weights), inputs=torch.zeros(1, 3, 32, 32))
