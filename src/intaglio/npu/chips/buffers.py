"""Places buffers with lifetimes in a memory: the K210's in lines, others in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Buffer:
    """A block of memory that is in use from step `first` to step `last`."""

    size: int
    first: int
    last: int
    start: int = -1

    def overlaps(self, other: Buffer) -> bool:
        """Whether both are in use at the same time."""
        return self.first <= other.last and other.first <= self.last

    def extend(self, step: int) -> None:
        """Keep it in use at this step too."""
        self.first, self.last = min(self.first, step), max(self.last, step)


def place(buffers: Sequence[Buffer], align: int = 1) -> int:
    """Give every buffer an address; returns the size of the memory. Large buffers come first."""
    orders = (
        lambda b: (-b.size, b.first),
        lambda b: (b.first, -b.size),
        lambda b: (-(b.last - b.first), -b.size),
    )
    best: tuple[int, list[int]] | None = None
    for order in orders:
        placed: list[Buffer] = []
        for buffer in sorted(buffers, key=order):
            buffer.start = lowest(buffer, placed, align)
            placed.append(buffer)
        size = max((b.start + b.size for b in buffers), default=0)
        if best is None or size < best[0]:
            best = size, [b.start for b in buffers]
    assert best is not None
    for buffer, start in zip(buffers, best[1], strict=True):
        buffer.start = start
    return best[0]


def lowest(buffer: Buffer, placed: list[Buffer], align: int) -> int:
    """The lowest address at which nothing else lies meanwhile."""
    at = 0
    for other in sorted((b for b in placed if b.overlaps(buffer)), key=lambda b: b.start):
        if at + buffer.size <= other.start:
            break
        at = max(at, -(-(other.start + other.size) // align) * align)
    return at
