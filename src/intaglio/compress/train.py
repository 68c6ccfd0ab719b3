"""Training a twin: batches, learning rate, checkpoints that survive a killed process."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intaglio import progress
from intaglio.compress.data import Labelled
from intaglio.compress.twin import Twin
from intaglio.errors import BadFile, BadInput, RunError

Loss = Callable[[Twin, Tensor, Tensor], Tensor]
OPTIMIZERS = ("adam", "sgd")
LARGEST_GRADIENT = 10.0  # norm to which gradients are clipped


@dataclass(frozen=True)
class Training:
    """How a twin is trained."""

    epochs: int = 10
    batch: int = 128
    rate: float = 1e-3
    optimizer: str = "adam"  # one of OPTIMIZERS
    momentum: float = 0.9  # of sgd
    decay: float = 1e-4
    flip: bool = False  # mirror pictures at random
    crop: int = 0  # move pictures by up to as many pixels
    seed: int = 0
    every: int = 200  # steps between checkpoints; one is written after each epoch too

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch", 1), ("crop", 0), ("every", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise BadInput(f"{name} is {value!r}; give a whole number of at least {least}")
        if self.optimizer not in OPTIMIZERS:
            raise BadInput(f"optimizer is {self.optimizer!r}; known are adam, sgd")
        if not (isinstance(self.rate, int | float) and 0 < self.rate < 100):
            raise BadInput(f"rate is {self.rate!r}; give a learning rate such as 0.01")
        for name in ("momentum", "decay"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise BadInput(f"{name} is {value!r}; give a number from 0 to 1")
        if not isinstance(self.flip, bool):
            raise BadInput(f"flip is {self.flip!r}; give true or false")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise BadInput(f"seed is {self.seed!r}; give a whole number of at least 0")


@dataclass
class History:
    """Mean loss and accuracy after every epoch."""

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)  # on the test data; empty without


def cross_entropy(twin: Twin, x: Tensor, y: Tensor) -> Tensor:
    """The usual loss of classification; a twin that ends in softmax is trained before it."""
    return F.cross_entropy(twin.scores(x).flatten(1), y)


@torch.no_grad()
def accuracy(twin: Twin, data: Labelled, batch: int = 250) -> float:
    """Top-1 accuracy in percent, with the arithmetic of the target."""
    was, right = twin.training, 0
    twin.eval()
    for x, y in data.batches(batch):
        right += int((twin.scores(x).flatten(1).argmax(1) == y).sum())
    twin.train(was)
    return 100.0 * right / len(data)


class Trainer:
    """Trains a twin step by step. A killed run goes on from its checkpoint, with equal results."""

    def __init__(
        self,
        twin: Twin,
        data: Labelled,
        how: Training = Training(),  # frozen
        *,
        test: Labelled | None = None,
        loss: Loss = cross_entropy,
        checkpoint: str | Path | None = None,
        more: nn.Module | None = None,
    ):
        self.twin, self.data, self.how, self.test, self.loss = twin, data, how, test, loss
        self.path = None if checkpoint is None else Path(checkpoint)
        self.more = more or nn.Module()  # parameters of the loss, such as adapters
        groups = twin.parameter_groups(how.rate, how.decay)
        if extra := list(self.more.parameters()):
            groups.append({"params": extra, "lr": how.rate, "weight_decay": how.decay})
        groups = [g for g in groups if g["params"]]
        self.rates = [float(g["lr"]) for g in groups]
        if how.optimizer == "adam":
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(groups, how.rate)
        else:
            self.optimizer = torch.optim.SGD(groups, how.rate, how.momentum)
        self.epoch = self.step = 0
        self.total = 0.0
        self.history = History()
        if self.path is not None and self.path.exists():
            self._resume()

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return max(len(self.data) // self.how.batch, 1)

    def run(self) -> History:
        """Train to the end, and return what every epoch reached."""
        while self.epoch < self.how.epochs:
            self._epoch()
        self.twin.eval()
        return self.history

    def _epoch(self) -> None:
        rng = np.random.default_rng((self.how.seed, self.epoch))
        self.twin.train()
        batches = self.data.batches(self.how.batch, rng, self.how.flip, self.how.crop)
        for i, (x, y) in enumerate(batches):
            if i < self.step:  # done before the process ended
                continue
            self._step(x, y)
            what = f"epoch {self.epoch + 1} of {self.how.epochs}, loss {self.total / (i + 1):.4f}"
            progress.report(what, i + 1, self.steps)
            if self.step % self.how.every == 0:
                self.save()
        self.history.loss.append(self.total / max(self.step, 1))
        if self.test is not None:
            self.history.accuracy.append(accuracy(self.twin, self.test))
        self.epoch, self.step, self.total = self.epoch + 1, 0, 0.0
        self.save()

    def _step(self, x: Tensor, y: Tensor) -> None:
        done = (self.epoch * self.steps + self.step) / max(self.how.epochs * self.steps, 1)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * done))
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.twin, x, y)
        value = float(loss.detach())
        if not math.isfinite(value):
            kept = f"; the last checkpoint is {self.path}" if self.path else ""
            raise RunError(
                f"the loss is {value} in epoch {self.epoch + 1}, step {self.step + 1}; a lower "
                f"rate than {self.how.rate:g} keeps it finite{kept}"
            )
        loss.backward()
        nn.utils.clip_grad_norm_(self.twin.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.twin.constrain()
        self.step, self.total = self.step + 1, self.total + value

    # ---- checkpoints ----------------------------------------------------------------------------
    def save(self) -> None:
        """Write the checkpoint. The old one stays whole until the new one is on the disk."""
        if self.path is None:
            return
        state = {
            "twin": self.twin.state_dict(),
            "more": self.more.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "at": [self.epoch, self.step, self.total],
            "history": asdict(self.history),
            "how": asdict(self.how),
        }
        part = self.path.with_name(self.path.name + ".part")
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)

    def _resume(self) -> None:
        assert self.path is not None
        try:
            state = torch.load(self.path, weights_only=True)
            if state["how"] != asdict(self.how):
                changed = [k for k, v in asdict(self.how).items() if state["how"].get(k) != v]
                raise BadInput(
                    f"{self.path} was written with another {changed[0]}; remove it to start anew, "
                    "or give the same training options"
                )
            self.twin.load_state_dict(state["twin"])
            self.more.load_state_dict(state["more"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.step, self.total = state["at"]
            self.history = History(**state["history"])
        except BadInput:
            raise
        except Exception as e:
            words = " ".join(str(e).split())[:120]
            raise BadFile(
                f"{self.path} is no checkpoint of this training: {words}; remove it to start anew"
            ) from None
