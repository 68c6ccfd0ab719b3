"""Which instructions must have ended before another begins: found from the bytes they touch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from intaglio import dtypes
from intaglio.npu.own.isa import QUEUES, Feature

Span = tuple[int, int]  # lowest byte, and one past the highest
FREE = ("weights", "input", "output")  # nobody writes the first two; stores alone touch the last


def span(f: Feature) -> Span:
    """The bytes between the first and the last that a box touches."""
    item = dtypes.TABLE[f.dtype].numpy.itemsize
    blocks = (f.first + f.channels - 1) // f.c2
    last = f.offset + blocks * f.plane + (f.height - 1) * f.row + (f.width - 1) * f.pixel
    lanes = min(f.first + f.channels, f.c2)
    first = f.offset + (f.first * item if not blocks else 0)
    return first, last + lanes * item


class _Touches:
    """Who touched which bytes of one memory; those that meet a span are found all at once."""

    def __init__(self) -> None:
        self.spans = np.zeros((2, 64), np.int64)  # lowest bytes, and one past the highest
        self.who: list[tuple[int, int, bool]] = []  # queue, index, and whether it writes

    def meet(self, low: int, high: int, write: bool, queue: int, wait: list[int]) -> None:
        """Wait for those in the way, and forget those that nobody has to wait for any more."""
        n = len(self.who)
        lows, highs = self.spans[0, :n], self.spans[1, :n]
        gone = []
        for i in np.flatnonzero((highs > low) & (lows < high)).tolist():
            other, index, writes = self.who[i]
            if (write or writes) and other != queue:
                wait[other] = max(wait[other], index + 1)
            inside = low <= lows[i] and highs[i] <= high
            if inside and (write or (other == queue and not writes)):
                gone.append(i)  # whoever waits for this one has waited for that
        for i in reversed(gone):  # the last takes its place
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


class Waits:
    """The memories of one core, and who touched what in them."""

    def __init__(self) -> None:
        self.count = [0] * len(QUEUES)
        self.touches: defaultdict[str, _Touches] = defaultdict(_Touches)

    def add(
        self, queue: str, reads: Iterable[tuple[str, Span]], writes: Sequence[tuple[str, Span]]
    ) -> tuple[int, int, int]:
        """Note an instruction; returns how many of each queue it waits for."""
        q = QUEUES.index(queue)
        wait = [0] * len(QUEUES)
        every = [(m, s, False) for m, s in reads if m not in FREE]
        every += [(m, s, True) for m, s in writes if m not in FREE]
        for memory, (low, high), write in every:
            self.touches[memory].meet(low, high, write, q, wait)
        for memory, (low, high), write in every:
            self.touches[memory].add(low, high, q, self.count[q], write)
        self.count[q] += 1
        return wait[0], wait[1], wait[2]
