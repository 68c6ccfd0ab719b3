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
        # Rows: first byte, one past the last, queue, index in it, whether it writes.
        self.table = np.zeros((5, 64), np.int64)
        self.n = 0

    def overlap(self, low: int, high: int, write: bool, queue: int, wait: list[int]) -> None:
        """Raise `wait` for conflicting accesses; forget accesses that this one makes redundant."""
        lows, highs = self.table[0, : self.n], self.table[1, : self.n]
        hits = np.flatnonzero((highs > low) & (lows < high))
        if not hits.size:
            return
        lows, highs, queues, indices, writes = self.table[:, hits]
        conflicts = queues != queue if write else (queues != queue) & (writes > 0)
        for other in set(queues[conflicts].tolist()):
            last = int(indices[conflicts & (queues == other)].max())
            wait[other] = max(wait[other], last + 1)
        redundant = (low <= lows) & (highs <= high)  # who waits for this one has waited for those
        if not write:
            redundant &= (queues == queue) & (writes == 0)
        if redundant.any():
            kept = np.ones(self.n, bool)
            kept[hits[redundant]] = False
            left = int(kept.sum())
            self.table[:, :left] = self.table[:, : self.n][:, kept]
            self.n = left

    def add(self, low: int, high: int, queue: int, index: int, writes: bool) -> None:
        if self.n == self.table.shape[1]:
            self.table = np.concatenate([self.table, np.zeros_like(self.table)], 1)
        self.table[:, self.n] = low, high, queue, index, writes
        self.n += 1


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
