"""EfficientNet-Lite0 with trained weights: the zoo's net, padded as TensorFlow pads."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.zoo.mobile import efficientnet_lite0

EPSILON = 1e-3  # of its batch norms


class Padded(nn.Module):
    """A convolution of stride 2 whose padding is larger behind than in front."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        total = conv.kernel_size[0] - conv.stride[0]
        before, behind = total // 2, total - total // 2
        self.pad = nn.ZeroPad2d((before, behind, before, behind))
        conv.padding = (0, 0)
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.conv(self.pad(x))
        return made


def trained(weights: str | Path) -> nn.Module:
    """The net; its layers come in the same order as those of the file, under other names."""
    net = efficientnet_lite0()
    given = torch.load(weights, map_location="cpu", weights_only=True)
    if [t.shape for t in given.values()] != [t.shape for t in net.state_dict().values()]:
        raise ValueError(f"{weights}: these are not the weights of an EfficientNet-Lite0")
    net.load_state_dict(dict(zip(net.state_dict(), given.values(), strict=True)))
    for module in list(net.modules()):
        if isinstance(module, nn.BatchNorm2d):
            module.eps = EPSILON
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d) and child.stride[0] == 2:
                setattr(module, name, Padded(child))
    return net.eval()


def export(weights: str | Path, file: str | Path) -> None:
    """Write the trained net as ONNX."""
    torch.onnx.export(
        trained(weights),
        (torch.zeros(1, 3, 224, 224),),
        str(file),
        dynamo=False,
        input_names=["input"],
        output_names=["logits"],
        opset_version=13,
    )
