"""Which instructions must have ended before another begins: found from the bytes they touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from intaglio import dtypes
from intaglio.npu.isa import QUEUES, Feature

Span = tuple[int, int]  # lowest byte, and one past the highest


def span(f: Feature) -> Span:
    """The bytes between the first and the last that a box touches."""
    item = dtypes.TABLE[f.dtype].numpy.itemsize
    blocks = (f.first + f.channels - 1) // f.c2
    last = f.offset + blocks * f.plane + (f.height - 1) * f.row + (f.width - 1) * f.pixel
    lanes = min(f.first + f.channels, f.c2)
    first = f.offset + (f.first * item if not blocks else 0)
    return first, last + lanes * item


@dataclass(slots=True)
class _Touch:
    low: int
    high: int
    queue: int
    index: int
    writes: bool


class Waits:
    """The memories of one core, and who touched what in them."""

    def __init__(self) -> None:
        self.count = [0] * len(QUEUES)
        self.touches: dict[str, list[_Touch]] = {}

    def add(self, queue: str, reads: Iterable[tuple[str, Span]],
            writes: Sequence[tuple[str, Span]]) -> tuple[int, int, int]:  # fmt: skip
        """Note an instruction; returns how many of each queue it waits for."""
        q = QUEUES.index(queue)
        wait = [0] * len(QUEUES)
        every = [(m, s, False) for m, s in reads] + [(m, s, True) for m, s in writes]
        for memory, (low, high), write in every:
            left = []
            for t in self.touches.get(memory, ()):
                apart = t.high <= low or high <= t.low
                if not apart and (write or t.writes) and t.queue != q:
                    wait[t.queue] = max(wait[t.queue], t.index + 1)
                inside = low <= t.low and t.high <= high
                if inside and (write or (t.queue == q and not t.writes)):
                    continue  # whoever waits for this one has waited for that
                left.append(t)
            self.touches[memory] = left
        for memory, (low, high), write in every:
            self.touches.setdefault(memory, []).append(_Touch(low, high, q, self.count[q], write))
        self.count[q] += 1
        return wait[0], wait[1], wait[2]
