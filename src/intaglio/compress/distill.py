"""Distillation: a student learns from the outputs and features of one or more teachers.

    loss = Distillation([Teacher(big)], [Logits(temperature=4.0)])
    Trainer(student, data, how, loss=loss, more=loss.adapters)

A teacher is a twin, a graph or any `torch.nn.Module` (modules have no named features). The
student's own earlier weights make self-distillation: `Teacher(copy of its graph)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intaglio.compress.twin import Twin
from intaglio.errors import BadInput, did_you_mean
from intaglio.ir import Graph
from intaglio.quant.prepare import prepare

Features = dict[str, Tensor]


class Teacher:
    """A network that is not trained: logits, and for graphs the tensors of given names."""

    def __init__(self, model: Twin | Graph | nn.Module):
        self.model = Twin(prepare(model)) if isinstance(model, Graph) else model
        self.model.eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, x: Tensor, names: Sequence[str]) -> tuple[Tensor, Features]:
        if isinstance(self.model, Twin):
            if torch.is_autocast_enabled("cuda") and not self.model.layers:
                self.model.freeze(torch.bfloat16)
            return tensors(self.model, x, names, "teacher")
        if names:
            raise BadInput(
                f"feature '{names[0]}' of a torch module: modules have no named tensors; give the "
                "teacher as a graph: intaglio.load(module, inputs=example)"
            )
        return self.model(x).flatten(1), {}


def tensors(twin: Twin, x: Tensor, names: Sequence[str], who: str) -> tuple[Tensor, Features]:
    """Logits and named tensors as real numbers."""
    kept: dict[str, Tensor] = {}
    scores = twin.run([x], keep=kept if names else None, bare=True)[0].flatten(1)
    found = {}
    for name in names:
        key = name if name in kept else f"{name}_stored"
        if key not in kept:
            hint = did_you_mean(name, kept, 3)
            raise BadInput(f"the {who} has no tensor '{name}'{hint}; inspect the model for names")
        found[name] = twin.real(key, kept[key])
    return scores, found


class Method(Protocol):
    """One part of the loss."""

    names: tuple[tuple[str, str], ...]  # tensors of the student and of the teacher
    weight: float

    def __call__(
        self, student: Tensor, teacher: Tensor, mine: Features, theirs: Features
    ) -> Tensor: ...


@dataclass
class Logits:
    """Softened class probabilities (Hinton et al., arXiv 1503.02531)."""

    temperature: float = 4.0
    weight: float = 0.9
    names: tuple[tuple[str, str], ...] = ()

    def __call__(
        self, student: Tensor, teacher: Tensor, mine: Features, theirs: Features
    ) -> Tensor:
        if student.shape != teacher.shape:
            raise BadInput(
                f"the teacher has {teacher.shape[1]} outputs, the student {student.shape[1]}; "
                "logits need as many; use Hints or Relations between teachers of other shapes"
            )
        t = self.temperature
        soft = F.log_softmax(student / t, 1)
        return F.kl_div(soft, F.softmax(teacher / t, 1), reduction="batchmean") * t * t


class Hints(nn.Module):
    """Features through an adapter, a 1x1 convolution made at first use (arXiv 1412.6550)."""

    def __init__(
        self, names: Sequence[tuple[str, str]], shapes: Sequence[tuple[int, int]],
        weight: float = 1.0,
    ):  # fmt: skip
        """`shapes`: channels of the student's and the teacher's tensor, for each pair of names."""
        super().__init__()
        self.names, self.weight = tuple(names), weight
        self.adapters = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in shapes)

    def forward(self, student: Tensor, teacher: Tensor, mine: Features, theirs: Features) -> Tensor:
        total = student.new_zeros(())
        for (a, b), adapter in zip(self.names, self.adapters, strict=True):
            x, y = mine[a], theirs[b]
            if x.dim() > 2 and x.shape[2:] != y.shape[2:]:
                x = F.adaptive_avg_pool2d(x, y.shape[2:])
            found = adapter(x.flatten(2) if x.dim() > 2 else x[:, :, None])
            total = total + F.mse_loss(found, y.flatten(2) if y.dim() > 2 else y[:, :, None])
        return total


@dataclass
class Attention:
    """Maps of mean squared activation (arXiv 1612.03928)."""

    names: tuple[tuple[str, str], ...]
    weight: float = 100.0

    def __call__(
        self, student: Tensor, teacher: Tensor, mine: Features, theirs: Features
    ) -> Tensor:
        total = student.new_zeros(())
        for a, b in self.names:
            x, y = mine[a], theirs[b]
            if x.shape[2:] != y.shape[2:]:
                x = F.adaptive_avg_pool2d(x, y.shape[2:])
            maps = [F.normalize(v.square().mean(1).flatten(1)) for v in (x, y)]
            total = total + (maps[0] - maps[1]).square().mean()
        return total


@dataclass
class Relations:
    """Distances between the samples of a batch (arXiv 1904.05068); shapes may differ."""

    names: tuple[tuple[str, str], ...] = ()  # none: the logits
    weight: float = 1.0

    def __call__(
        self, student: Tensor, teacher: Tensor, mine: Features, theirs: Features
    ) -> Tensor:
        pairs = [(mine[a], theirs[b]) for a, b in self.names] or [(student, teacher)]
        total = student.new_zeros(())
        for x, y in pairs:
            total = total + F.smooth_l1_loss(*(_distances(v.flatten(1)) for v in (x, y)))
        return total


def _distances(x: Tensor) -> Tensor:
    far = (x[:, None] - x[None]).square().sum(2).clamp_min(1e-12).sqrt()
    return far / far.mean().clamp_min(1e-12)


class Distillation:
    """The loss of a student: labels, and what each method takes from each teacher."""

    def __init__(self, teachers: Sequence[Teacher], methods: Sequence[Method], labels: float = 0.1):
        if not teachers or not methods:
            raise BadInput("distillation needs a teacher and a method; give at least one of each")
        self.teachers, self.methods, self.labels = list(teachers), list(methods), labels
        self.adapters = nn.ModuleList(m for m in methods if isinstance(m, nn.Module))

    def to(self, device: torch.device) -> Distillation:
        """Move teachers and adapters."""
        for teacher in self.teachers:
            teacher.model.to(device)
        self.adapters.to(device)
        return self

    def __call__(self, twin: Twin, x: Tensor, y: Tensor) -> Tensor:
        mine = [a for m in self.methods for a, _ in m.names]
        theirs = [b for m in self.methods for _, b in m.names]
        scores, own = tensors(twin, x, mine, "student")
        total = self.labels * F.cross_entropy(scores, y)
        for teacher in self.teachers:  # an ensemble: the mean of all
            logits, seen = teacher(x, theirs)
            for m in self.methods:
                total = total + m.weight * m(scores, logits, own, seen) / len(self.teachers)
        return total
