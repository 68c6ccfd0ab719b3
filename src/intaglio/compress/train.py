"""Training a twin: batches, learning rate, checkpoints that survive a killed process."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intaglio import progress
from intaglio.compress import device as devices
from intaglio.compress.data import Labelled
from intaglio.compress.twin import Twin
from intaglio.errors import BadFile, BadInput, RunError

Loss = Callable[[Twin, Tensor, Tensor], Tensor]
OPTIMIZERS = ("adam", "sgd")
LARGEST_GRADIENT = 10.0  # norm to which gradients are clipped
PLACES = ("device",)  # options that do not change what is trained


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
    device: str = "auto"  # a GPU where there is one
    half: bool = False  # products of floats in bf16, on a GPU

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
        for name in ("flip", "half"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"{name} is {getattr(self, name)!r}; give true or false")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise BadInput(f"seed is {self.seed!r}; give a whole number of at least 0")
        if not isinstance(self.device, str):
            raise BadInput(f"device is {self.device!r}; give auto, cpu or cuda")


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
    was, place = twin.training, twin.device
    twin.eval()
    right = torch.zeros((), dtype=torch.int64, device=place)
    for x, y in data.batches(batch):
        found = twin.scores(x.to(place)).flatten(1).argmax(1)
        right += (found == y.to(place)).sum()
    twin.train(was)
    return 100.0 * int(right) / len(data)


class Trainer:
    """Trains a twin step by step. A killed run goes on from its checkpoint, with equal results.

    `run()` leaves the twin on the CPU. `run_together` trains several side by side on a GPU.
    """

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
        self.device = devices.find(how.device)
        self.more = more or nn.Module()  # parameters of the loss, such as adapters
        self._place(self.device)
        if hasattr(loss, "to"):
            loss.to(self.device)  # teachers stay there: other trainers may share them
        groups = twin.parameter_groups(how.rate, how.decay)
        if extra := list(self.more.parameters()):
            groups.append({"params": extra, "lr": how.rate, "weight_decay": how.decay})
        groups = [g for g in groups if g["params"]]
        self.rates = [float(g["lr"]) for g in groups]
        self.optimizer = self._optimizer(groups)
        self.epoch = self.step = 0
        self.total = torch.zeros((), device=self.device)
        self.history = History()
        if self.path is not None and self.path.exists():
            self._resume()
        on_gpu = self.device.type == "cuda"
        self.samples = devices.Samples(data, self.device) if devices.Samples.fit(
            data, self.device) else None  # fmt: skip
        self.stream = torch.cuda.Stream() if on_gpu else None
        recorded = on_gpu and twin.recordable
        self._run: Callable[[Tensor, Tensor], None] = (
            devices.Recorded(self._learn) if recorded else self._learn
        )

    def _place(self, device: torch.device) -> None:
        self.twin.to(device)
        self.more.to(device)
        if device.type == "cuda":
            self.twin.to(memory_format=torch.channels_last)

    def _optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        how, on_gpu = self.how, self.device.type == "cuda"
        for g in groups if on_gpu else ():
            g["lr"] = torch.tensor(g["lr"], device=self.device)  # a recorded step reads it
        rate: Any = torch.tensor(how.rate, device=self.device) if on_gpu else how.rate
        if how.optimizer == "adam":
            more = {"fused": True, "capturable": True} if on_gpu else {}
            return torch.optim.AdamW(groups, rate, **more)
        return torch.optim.SGD(groups, rate, how.momentum, fused=True if on_gpu else None)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return max(len(self.data) // self.how.batch, 1)

    def run(self) -> History:
        """Train to the end, and return what every epoch reached."""
        for _ in self.advance():
            pass
        return self.history

    def advance(self) -> Iterator[None]:
        """Train step by step: the caller decides when the next one begins."""
        while self.epoch < self.how.epochs:
            yield from self._steps()
        self.twin.eval()
        self._place(torch.device("cpu"))
        self._run = self._learn

    def _here(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def _epoch(self) -> None:
        for _ in self._steps():
            pass

    def _steps(self) -> Iterator[None]:
        """The steps of what is left of an epoch."""
        with self._here():
            batches = self._batches()
            self.twin.train()
            if self.step == 0:
                self.total.zero_()
        while True:
            with self._here():
                batch = next(batches, None)
                if batch is None:
                    break
                self._step(*batch)
            yield
        with self._here():
            self.check()
            self.history.loss.append(float(self.total) / max(self.step, 1))
            if self.test is not None:
                self.history.accuracy.append(accuracy(self.twin, self.test))
            self.epoch, self.step = self.epoch + 1, 0
            self.save()

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """What is left of this epoch."""
        how, rng = self.how, np.random.default_rng((self.how.seed, self.epoch))
        if self.samples is not None:
            yield from self.samples.batches(how.batch, rng, how.flip, how.crop, self.step)
            return
        start = self.step
        for i, (x, y) in enumerate(self.data.batches(how.batch, rng, how.flip, how.crop)):
            if i >= start:  # those before were done before the process ended
                yield x.to(self.device), y.to(self.device)

    def _step(self, x: Tensor, y: Tensor) -> None:
        done = (self.epoch * self.steps + self.step) / max(self.how.epochs * self.steps, 1)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            now = rate * 0.5 * (1 + math.cos(math.pi * done))
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(now)
            else:
                group["lr"] = now
        self._run(x, y)
        self.step += 1
        what = f"epoch {self.epoch + 1} of {self.how.epochs}"
        if self.device.type == "cpu":
            self.check()
            what += f", loss {float(self.total) / self.step:.4f}"
        progress.report(what, self.step, self.steps)
        if self.path is not None and self.step % self.how.every == 0:
            self.check()
            self.save()

    def _learn(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        half = self.how.half and self.device.type == "cuda" and not self.twin.layers
        with torch.autocast("cuda", torch.bfloat16, enabled=half, cache_enabled=False):
            loss = self.loss(self.twin, x if self.samples is None else self.samples.floats(x), y)
        self.total += loss.detach()
        if self.device.type == "cpu" and not math.isfinite(float(loss.detach())):
            return  # `check` tells of it; the weights stay as they were
        loss.backward()
        nn.utils.clip_grad_norm_(self.twin.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.twin.constrain()

    def check(self) -> None:
        """RunError if the loss is no longer finite."""
        value = float(self.total)
        if not math.isfinite(value):
            kept = f"; the last checkpoint is {self.path}" if self.path else ""
            raise RunError(
                f"the loss is {value} in epoch {self.epoch + 1}, step {self.step}; a lower "
                f"rate than {self.how.rate:g} keeps it finite{kept}"
            )

    # ---- checkpoints ----------------------------------------------------------------------------
    def save(self) -> None:
        """Write the checkpoint. The old one stays whole until the new one is on the disk."""
        if self.path is None:
            return
        state = {
            "twin": self.twin.state_dict(),
            "more": self.more.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "at": [self.epoch, self.step, float(self.total)],
            "history": asdict(self.history),
            "how": self._options(),
        }
        part = self.path.with_name(self.path.name + ".part")
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)

    def _options(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self.how).items() if k not in PLACES}

    def _resume(self) -> None:
        assert self.path is not None
        try:
            state = torch.load(self.path, map_location=self.device, weights_only=True)
            if state["how"] != self._options():
                changed = [k for k, v in self._options().items() if state["how"].get(k) != v]
                raise BadInput(
                    f"{self.path} was written with another {changed[0]}; remove it to start anew, "
                    "or give the same training options"
                )
            self.twin.load_state_dict(state["twin"])
            self.more.load_state_dict(state["more"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.epoch, self.step, total = state["at"]
            self.total.fill_(total)
            self.history = History(**state["history"])
        except BadInput:
            raise
        except Exception as e:
            words = " ".join(str(e).split())[:120]
            raise BadFile(
                f"{self.path} is no checkpoint of this training: {words}; remove it to start anew"
            ) from None


def run_together(trainers: Sequence[Trainer]) -> list[History]:
    """Run trainers side by side, a step of each in turn: small networks share a GPU."""
    going = [t.advance() for t in trainers]
    while going:
        going = [g for g in going if next(g, going) is None]
    return [t.history for t in trainers]
