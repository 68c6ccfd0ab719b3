"""Memory for arrays that the compiler makes: large blocks, whose pages the system gives fast.

Memory that is new to a process costs more than the work that is done in it, and in small pages most
of all. A block is let go with the last array in it; nothing is held back for later.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.ir import Array

PAGE = 2 << 20  # bytes of a large page: numpy asks for these from 4 MB on, unless told otherwise
BLOCK = 16 * PAGE
SMALL, LARGE = 16 << 10, BLOCK // 4  # bytes: below, malloc has pages at hand; above, a block each
ALIGN = 64


class Arena:
    """Places in a package for what is packed into it, in the order in which that is made.

    The memory is reserved at once, and is that of the package later: nothing is copied. Where too
    little can be reserved, arrays lie elsewhere and are copied to the very same places.
    """

    HEAD = 4096  # bytes before the first array: for what a package starts with

    def __init__(self, size: int):
        self.memory = _reserved(self.HEAD + size) if size > LARGE else np.empty(0, np.uint8)
        self.end = self.HEAD
        self.places: dict[int, tuple[int, int]] = {}  # by address: first byte, and how many
        self._elsewhere: list[Array] = []  # kept, so that their addresses are no one else's

    @property
    def whole(self) -> bool:
        """Does every array lie in its place?"""
        return not self._elsewhere

    def take(self, size: int) -> Array:
        """The next bytes."""
        start = self.end
        self.end += -(-size // ALIGN) * ALIGN
        made = self.memory[start : start + size]
        if self.end > len(self.memory):
            made = empty((size,), np.uint8)
            self._elsewhere.append(made)
        self.places[made.ctypes.data] = start, size
        return made

    def __enter__(self) -> Arena:
        _current.arenas.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.arenas.remove(self)


def _reserved(size: int) -> Array:
    """Bytes that take no memory before they are written to; none where the system refuses."""
    try:
        block = np.empty(size + PAGE, np.uint8)
    except MemoryError:
        return np.empty(0, np.uint8)
    start = -block.ctypes.data % PAGE
    return block[start : start + size]


class _Current(threading.local):
    """The block of this thread that still has room, if any array in it lives, and where that is."""

    block: weakref.ref[Array] | None = None
    end = 0

    def __init__(self) -> None:
        self.arenas: list[Arena] = []  # of compilations that run, the innermost one last


_current = _Current()


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """An array like that of `np.empty`; it starts at a multiple of 64 bytes unless it is small."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < SMALL:
        return np.empty(shape, kind)
    if size > LARGE:
        made: Array = alone(size).view(kind).reshape(shape)
        return made
    block = _current.block() if _current.block is not None else None
    if block is None or _current.end + size > len(block) - PAGE:
        block = np.empty(BLOCK + PAGE, np.uint8)
        _current.block, _current.end = weakref.ref(block), -block.ctypes.data % PAGE
    start = _current.end
    _current.end += -(-size // ALIGN) * ALIGN
    made = block[start : start + size].view(kind).reshape(shape)
    return made


def lasting(shape: Sequence[int], dtype: Any) -> Array:
    """An array that is likely to go into the package that this thread is making."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < SMALL or not _current.arenas:
        return empty(shape, kind)
    made: Array = _current.arenas[-1].take(size).view(kind).reshape(shape)
    return made


def alone(size: int) -> Array:
    """So many bytes for something that outlives what else is made, aligned like all arrays here."""
    step = PAGE if size > LARGE else ALIGN
    block = np.empty(-(-size // step) * step + step, np.uint8)
    start = -block.ctypes.data % step
    return block[start : start + size]
