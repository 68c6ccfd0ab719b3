"""Training on a GPU: samples that live there, and steps that are recorded once and replayed.

Small networks are bound by the time to launch kernels. A recorded step (a CUDA graph) launches all
of them at once, and the steps of several trainers run side by side, each on its own stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intaglio.compress.data import Labelled
from intaglio.errors import BadInput

MOST_BYTES = 16 << 30  # of samples that are kept on a GPU
EAGER_STEPS = 3  # before a step is recorded: they make what the optimiser keeps
AT_ONCE = 5000  # samples that are augmented at once


def find(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as e:
        words = " ".join(str(e).split())[:100]
        raise BadInput(f"device is {name!r}: {words}; give auto, cpu or cuda") from None
    return device


class Samples:
    """Labelled samples on a GPU, shuffled and augmented there, an epoch at a time."""

    def __init__(self, data: Labelled, device: torch.device):
        self.data, self.device = data, device
        self.x = torch.from_numpy(np.ascontiguousarray(data.x)).to(device)
        self.y = torch.from_numpy(data.y).to(device)
        shape = [1] * data.x.ndim
        shape[data.channel] = -1
        self.mean, self.std = (
            torch.tensor(v, dtype=torch.float32, device=device).reshape(shape)
            for v in (data.mean, data.std)
        )

    @staticmethod
    def fit(data: Labelled, device: torch.device) -> bool:
        """Whether samples are few enough to be kept on this device."""
        return device.type == "cuda" and np.asarray(data.x).nbytes <= MOST_BYTES

    def floats(self, x: Tensor) -> Tensor:
        """Some samples as the model takes them."""
        return (x.float() - self.mean) / self.std

    def batches(
        self, size: int, rng: np.random.Generator, flip: bool, crop: int, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of an epoch as they are stored, from the batch `start` on."""
        n = len(self.data)
        order = torch.from_numpy(rng.permutation(n)).to(self.device)
        if (flip or crop) and self.x.dim() == 4:
            turned = torch.from_numpy(rng.random(n) < 0.5).to(self.device) & flip
            by = torch.from_numpy(rng.integers(0, 2 * crop + 1, (n, 2))).to(self.device)
            parts = [slice(i, i + AT_ONCE) for i in range(0, n, AT_ONCE)]
            x = torch.cat([self._moved(order[p], turned[p], by[p], crop) for p in parts])
        else:
            x = self.x[order]
        y = self.y[order]
        last = max(n // size, 1) * size
        for i in range(start * size, last, size):
            yield x[i : i + size], y[i : i + size]

    def _moved(self, order: Tensor, turned: Tensor, by: Tensor, crop: int) -> Tensor:
        """Samples mirrored where `turned`, and moved by `by` with borders of 0."""
        last = self.data.channel != 1
        x = self.x[order]
        x = x if last else x.permute(0, 2, 3, 1)
        high, wide = x.shape[1:3]
        rows = torch.arange(high, device=self.device) + by[:, :1] - crop
        columns = torch.arange(wide, device=self.device) + by[:, 1:] - crop
        columns = torch.where(turned[:, None], columns.flip(1), columns)
        inside = ((rows >= 0) & (rows < high))[:, :, None] & ((columns >= 0) & (columns < wide))[
            :, None
        ]
        each = torch.arange(len(x), device=self.device)[:, None, None]
        y = x[each, rows.clamp(0, high - 1)[:, :, None], columns.clamp(0, wide - 1)[:, None]]
        y = y * inside[..., None]
        return y if last else y.permute(0, 3, 1, 2)


class Recorded:
    """A step that is recorded as a CUDA graph after a few eager ones, and then replayed."""

    def __init__(self, step: Callable[[Tensor, Tensor], None]):
        self.step, self.done = step, 0
        self.graph: Any = None
        self.x: Tensor | None = None
        self.y: Tensor | None = None

    def __call__(self, x: Tensor, y: Tensor) -> None:
        if self.x is None or self.y is None or x.shape != self.x.shape:
            self.x, self.y = x.clone(), y.clone()
            self.graph = None
        self.x.copy_(x)
        self.y.copy_(y)
        if self.graph is not None:
            self.graph.replay()
            return
        if self.done < EAGER_STEPS:
            self.step(self.x, self.y)
            self.done += 1
            return
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            self.step(self.x, self.y)
        self.graph = graph
        graph.replay()
