"""Public architectures with seeded weights, to measure and to optimise.

Each net is written here in short torch code from its paper and exported as users export theirs.
This table needs no torch; building and exporting do (`pip install intaglio[zoo]`).

python -m benchmarks.zoo --list
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import nn

Array = np.ndarray


@dataclass(frozen=True)
class Input:
    """One input: floats drawn from a normal distribution, or integers below `below`."""

    name: str
    shape: tuple[int, ...]
    below: int = 0

    def draw(self, rng: np.random.Generator) -> Array:
        if self.below:
            return rng.integers(0, self.below, self.shape, np.int64)
        return rng.standard_normal(self.shape, np.float32)


@dataclass(frozen=True)
class Model:
    """The builder, the inputs and the expected million MACs of a network."""

    builder: str  # module.function [argument], beside this file
    inputs: tuple[Input, ...]
    mmac: int | None = None  # as published for the net, taps on zero padding not counted

    def build(self, seed: int = 0) -> nn.Module:
        """The net in evaluation mode, its weights drawn from `seed`."""
        import torch

        from benchmarks.zoo import weights

        torch.manual_seed(seed)
        path, *arguments = self.builder.split()
        module, function = path.split(".")
        make = getattr(importlib.import_module(f"benchmarks.zoo.{module}"), function)
        net: nn.Module = make(*map(int, arguments))
        weights.draw(net, self.feeds(seed, batch=8))
        return net

    def feeds(self, seed: int = 0, batch: int = 1) -> dict[str, Array]:
        """Seeded inputs by name."""
        rng = np.random.default_rng(seed)
        drawn = {i.name: [i.draw(rng) for _ in range(batch)] for i in self.inputs}
        return {name: np.concatenate(parts) for name, parts in drawn.items()}


def _image(size: int = 224, channels: int = 3) -> tuple[Input, ...]:
    return (Input("input", (1, channels, size, size)),)


def _tokens(length: int, vocabulary: int) -> tuple[Input, ...]:
    return (
        Input("input_ids", (1, length), vocabulary),
        Input("attention_mask", (1, length), 2),
        Input("token_type_ids", (1, length), 2),
    )


MODELS = {
    "mobilenet_v1": Model("mobile.mobilenet_v1", _image(), 568),
    "mobilenet_v2": Model("mobile.mobilenet_v2", _image(), 300),
    "mobilenet_v3_small": Model("mobile.mobilenet_v3_small", _image(), 55),
    "efficientnet_lite0": Model("mobile.efficientnet_lite0", _image(), 381),
    "efficientnet_b0": Model("mobile.efficientnet_b0", _image()),
    "shufflenet_v2": Model("channels.shufflenet_v2", _image(), 145),
    "ghostnet": Model("channels.ghostnet", _image()),
    "squeezenet1_1": Model("classic.squeezenet1_1", _image(), 337),
    "resnet18": Model("classic.resnet18", _image(), 1680),
    "resnet50": Model("classic.resnet50", _image(), 3948),
    "resnext50_32x4d": Model("classic.resnext50", _image(), 4211),
    "fastvit_t8": Model("fastvit.fastvit_t8", _image(256), 679),
    "fastvit_t8_branches": Model("fastvit.fastvit_t8_branches", _image(256)),
    "yolov5s_320": Model("yolo.yolov5s 320", _image(320), 1992),
    "yolov5s_640": Model("yolo.yolov5s 640", _image(640), 8091),
    "yolov8n_320": Model("yolo.yolov8n 320", _image(320), 1047),
    "yolov8n_640": Model("yolo.yolov8n 640", _image(640), 4280),
    "minilm_l6": Model("transformer.bert 384 6 12", _tokens(128, 30522), 1435),
    "bert_mini": Model("transformer.bert 256 4 4", _tokens(128, 30522), 436),
    "vit_tiny_224": Model("transformer.vit_tiny", _image(), 1254),
    "gpt2_like": Model("transformer.gpt2_like", (Input("input_ids", (1, 128), 8192),)),
    "swin_like": Model("swin.swin_like", _image()),
    "lstm": Model("recurrent.lstm", (Input("input", (1, 64, 128)),), 61),
    "gru": Model("recurrent.gru", (Input("input", (1, 64, 128)),), 46),
    "unet_small": Model("dense.unet_deconv", _image(256)),
    "unet_resize": Model("dense.unet_resize", _image(128)),
    "lraspp_320": Model("dense.lraspp", _image(320), 765),
    "espcn_x3": Model("dense.espcn", _image(224, 1)),
}
