"""Seeded random weights that keep the magnitude of signals from layer to layer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from numpy import ndarray
from torch import Tensor, nn

from benchmarks.zoo.layers import Scale


def draw(net: nn.Module, feeds: Mapping[str, ndarray]) -> None:
    """Fill `net` at random; batch norms get their statistics from a run on `feeds`."""
    with torch.no_grad():
        for module in net.modules():
            _fill(module)
        net.eval()
        norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
        hooks = [n.register_forward_pre_hook(_measure) for n in norms]
        if hooks:
            net(*map(torch.from_numpy, feeds.values()))
        for hook in hooks:
            hook.remove()


def _measure(norm: nn.BatchNorm2d, inputs: tuple[Tensor]) -> None:
    """Set a batch norm's statistics from its input."""
    norm.running_mean.copy_(inputs[0].mean((0, 2, 3)))
    norm.running_var.copy_(inputs[0].var((0, 2, 3)))


def _fill(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.normal_(module.bias, std=0.1)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        if module.bias is not None:
            nn.init.normal_(module.bias, std=0.1)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight)
    elif isinstance(module, nn.BatchNorm2d):
        # Shifts that are positive on average keep rounding errors from growing with the depth: a
        # rectifier turns half of a centred signal into a mean, which the next norm then removes.
        nn.init.uniform_(module.weight, 0.25, 1.0)
        nn.init.normal_(module.bias, mean=0.25, std=0.25)
    elif isinstance(module, Scale):
        nn.init.uniform_(module.factor, 0.1, 0.5)
    elif isinstance(module, nn.LayerNorm):
        nn.init.uniform_(module.weight, 0.5, 1.5)
        nn.init.normal_(module.bias, std=0.2)
    elif not list(module.children()):
        for parameter in module.parameters(recurse=False):
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
