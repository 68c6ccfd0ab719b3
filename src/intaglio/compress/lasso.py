"""Regularised training: coupled channels that the loss does not need shrink towards 0.

    recipe.train(data, how, loss=GroupLasso(1e-3))
    recipe.prune(macs=0.5)

Each set of channels that pruning removes together is one group of the lasso (Yuan and Lin, 2006):
the penalty is the sum of the groups' norms, so that whole groups become small, not single weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intaglio.compress.pruning.groups import find_coupling
from intaglio.compress.pruning.masks import rows_of
from intaglio.compress.train import Loss, cross_entropy
from intaglio.compress.twin import Twin
from intaglio.errors import BadInput
from intaglio.ir import Node, Value

TINY = 1e-12  # keeps the gradient of a norm finite at 0


@dataclass(frozen=True)
class _Layer:
    """A layer of a group: its weights, and the group's class of output channels."""

    node: Node
    weights: Value
    known: Tensor  # output channels that have a class
    classes: Tensor  # of these


class GroupLasso:
    """A loss with a penalty on the norms of coupled channels; `loss` is the rest of it."""

    def __init__(self, weight: float = 1e-3, loss: Loss = cross_entropy):
        if not 0 < weight < float("inf"):
            raise BadInput(f"weight is {weight!r}; give a number above 0, such as 1e-3")
        self.weight, self.loss = weight, loss
        self.adapters: nn.Module | None = getattr(loss, "adapters", None)
        self._twin: Twin | None = None
        self._place: torch.device | None = None
        self._groups: list[tuple[int, list[_Layer]]] = []

    def to(self, device: torch.device) -> GroupLasso:
        """Move what the rest of the loss holds, such as teachers."""
        if hasattr(self.loss, "to"):
            self.loss.to(device)
        return self

    def __call__(self, twin: Twin, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(twin, x, y) + self.weight * self.penalty(twin)

    def penalty(self, twin: Twin) -> Tensor:
        """The sum of the norms of all groups, each with the root of its number of weights."""
        if self._twin is not twin or self._place != twin.device:
            self._twin, self._place, self._groups = twin, twin.device, _groups(twin)
        total = torch.zeros((), device=twin.device)
        for count, layers in self._groups:
            square, size = (torch.zeros(count, device=twin.device) for _ in range(2))
            for one in layers:
                weights: Any = twin.value(one.weights)
                rows: Any = rows_of(one.node, weights)
                energy = rows.flatten(1).square().sum(1)[one.known]
                square = square.index_add(0, one.classes, energy)
                wide = torch.full_like(energy, float(rows[0].numel()))
                size = size.index_add(0, one.classes, wide)
            total = total + ((square + TINY).sqrt() * size.sqrt()).sum()
        return total


def _groups(twin: Twin) -> list[tuple[int, list[_Layer]]]:
    """Groups that can be pruned: the number of classes, and the layers that make them."""
    found = []
    for g in find_coupling(twin.source).prunable():
        layers = []
        for n in g.layers:
            w, out = n.inputs[1], n.outputs[0]
            if w is None or w not in twin.constants:
                continue
            classes = torch.full((out.shape[_axis(n)],), -1)
            for i, channels in enumerate(g.classes):
                if out in channels:
                    classes[torch.from_numpy(channels[out])] = i
            known = torch.nonzero(classes >= 0)[:, 0]
            layers.append(_Layer(n, w, known.to(twin.device), classes[known].to(twin.device)))
        if layers:
            found.append((len(g), layers))
    if not found:
        raise BadInput(
            "no channels can be pruned in this model, or it is quantised; use GroupLasso with "
            "floats, before quantize()"
        )
    return found


def _axis(node: Node) -> int:
    return 1 if node.op.startswith(("conv", "deform")) else -1
