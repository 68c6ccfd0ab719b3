"""Hazards: the instructions that an instruction must wait for, by the bytes that they touch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from intaglio import dtypes
from intaglio.npu.own.isa import QUEUES, Feature

Span = tuple[int, int]  # first byte, and one past the last
# No hazards here: nothing writes the first two, and only the store queue accesses the last.
UNTRACKED = ("weights", "input", "output")


def span(f: Feature) -> Span:
    """The bytes from the first to the last that a box accesses."""
    item = dtypes.TABLE[f.dtype].numpy.itemsize
    blocks = (f.first + f.channels - 1) // f.c2
    last = f.offset + blocks * f.plane + (f.height - 1) * f.row + (f.width - 1) * f.pixel
    lanes = min(f.first + f.channels, f.c2)
    first = f.offset + (f.first * item if not blocks else 0)
    return first, last + lanes * item


class _Accesses:
    """The accesses to one memory that later instructions may have to wait for."""

    def __init__(self) -> None:
        self.spans = np.zeros((2, 64), np.int64)  # first bytes, and one past the last
        self.who: list[tuple[int, int, bool]] = []  # queue, index in it, and whether it writes

    def overlap(self, low: int, high: int, write: bool, queue: int, wait: list[int]) -> None:
        """Raise `wait` for conflicting accesses; forget accesses that this one makes redundant."""
        n = len(self.who)
        lows, highs = self.spans[0, :n], self.spans[1, :n]
        redundant = []
        for i in np.flatnonzero((highs > low) & (lows < high)).tolist():
            other, index, writes = self.who[i]
            if (write or writes) and other != queue:
                wait[other] = max(wait[other], index + 1)
            inside = low <= lows[i] and highs[i] <= high
            if inside and (write or (other == queue and not writes)):
                redundant.append(i)  # who waits for this one has waited for that one, too
        for i in reversed(redundant):  # the last entry fills the hole
            last = len(self.who) - 1
            self.spans[:, i] = self.spans[:, last]
            self.who[i] = self.who[last]
            self.who.pop()

    def add(self, low: int, high: int, queue: int, index: int, writes: bool) -> None:
        n = len(self.who)
        if n == self.spans.shape[1]:
            self.spans = np.concatenate([self.spans, np.zeros_like(self.spans)], 1)
        self.spans[:, n] = low, high
        self.who.append((queue, index, writes))


class Hazards:
    """Finds the waits of one core's instructions, given in program order."""

    def __init__(self) -> None:
        self.count = [0] * len(QUEUES)
        self.accesses: defaultdict[str, _Accesses] = defaultdict(_Accesses)

    def add(
        self, queue: str, reads: Iterable[tuple[str, Span]], writes: Sequence[tuple[str, Span]]
    ) -> tuple[int, int, int]:
        """Add an instruction; returns how many instructions of each queue it waits for."""
        q = QUEUES.index(queue)
        wait = [0] * len(QUEUES)
        every = [(m, s, False) for m, s in reads if m not in UNTRACKED]
        every += [(m, s, True) for m, s in writes if m not in UNTRACKED]
        for memory, (low, high), write in every:
            self.accesses[memory].overlap(low, high, write, q, wait)
        for memory, (low, high), write in every:
            self.accesses[memory].add(low, high, q, self.count[q], write)
        self.count[q] += 1
        return wait[0], wait[1], wait[2]
