"""Address space that is reserved at once and takes memory only where it is used."""

from __future__ import annotations

import bisect
import mmap

import numpy as np

from intaglio.ir import Array

ALIGN = 64


class ReservedMemory:
    """A block of address space, with a list of its free parts. Offsets are multiples of 64.

    OSError if the system refuses so much, or cannot reserve at all.
    """

    def __init__(self, size: int):
        if not hasattr(mmap, "MAP_PRIVATE"):
            raise OSError("this system cannot reserve address space")
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._map = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, flags)
        self.bytes: Array = np.frombuffer(self._map, np.uint8)
        self._free: list[tuple[int, int]] = [(0, len(self.bytes))]  # start, end; in order

    def take(self, size: int, first: int = 0, last: int | None = None) -> int | None:
        """The offset of `size` bytes between `first` and `last`; None if there is no such place."""
        size = -(-size // ALIGN) * ALIGN
        for i, (start, end) in enumerate(self._free):
            at = max(start, first)
            if at + size <= (end if last is None else min(end, last)):
                parts = [(start, at), (at + size, end)]
                self._free[i : i + 1] = [(a, b) for a, b in parts if a < b]
                return at
        return None

    def give_back(self, start: int, size: int) -> None:
        """Free a place; whole pages of it go back to the system."""
        end = start + -(-size // ALIGN) * ALIGN
        i = bisect.bisect(self._free, (start, end))
        first, last = start, end
        if i < len(self._free) and self._free[i][0] == end:
            last = self._free.pop(i)[1]
        if i and self._free[i - 1][1] == start:
            i -= 1
            first = self._free.pop(i)[0]
        self._free.insert(i, (first, last))
        page = mmap.PAGESIZE
        whole, until = max(-(-start // page) * page, 0), end // page * page
        if whole < until and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, whole, until - whole)

    @property
    def used_end(self) -> int:
        """The end of the last part in use."""
        last = self._free[-1] if self._free else (len(self.bytes),) * 2
        return last[0] if last[1] == len(self.bytes) else len(self.bytes)
