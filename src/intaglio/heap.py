"""Memory for arrays of the compiler: large blocks, which get huge pages.

Page faults of new memory cost more than the work on it, above all with small pages. A block is
freed with its last array; there is no cache of free blocks.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.ir import Array

PAGE = 2 << 20  # bytes of a huge page; numpy asks for them in arrays of 4 MB and more
BLOCK = 16 * PAGE
MIN_BLOCK_ARRAY = 16 << 10  # bytes; smaller arrays come from malloc
MAX_BLOCK_ARRAY = BLOCK // 4  # bytes; larger arrays get a block of their own
ALIGN = 64


class Arena:
    """Memory for packed weights, in the order in which they are made.

    The memory is reserved at once and later becomes the package: nothing is copied. If too little
    memory can be reserved, arrays lie elsewhere and are copied to the same offsets.
    """

    HEAD = 4096  # bytes before the first array, for the header and the section table

    def __init__(self, size: int):
        self.memory = (
            _reserved(self.HEAD + size) if size > MAX_BLOCK_ARRAY else np.empty(0, np.uint8)
        )
        self.end = self.HEAD
        self.places: dict[int, tuple[int, int]] = {}  # address -> offset, size
        self._elsewhere: list[Array] = []  # kept alive, so that their addresses stay unique

    @property
    def whole(self) -> bool:
        """Whether every array lies at its offset."""
        return not self._elsewhere

    def take(self, size: int) -> Array:
        """Allocate the next `size` bytes."""
        start = self.end
        self.end += -(-size // ALIGN) * ALIGN
        result = self.memory[start : start + size]
        if self.end > len(self.memory):
            result = empty((size,), np.uint8)
            self._elsewhere.append(result)
        self.places[result.ctypes.data] = start, size
        return result

    def __enter__(self) -> Arena:
        _current.arenas.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.arenas.remove(self)


def _reserved(size: int) -> Array:
    """Address space without pages behind it yet; empty if the system refuses."""
    try:
        block = np.empty(size + PAGE, np.uint8)
    except MemoryError:
        return np.empty(0, np.uint8)
    start = -block.ctypes.data % PAGE
    return block[start : start + size]


class _Current(threading.local):
    """This thread's current block, if an array in it is alive, and the end of its used part."""

    block: weakref.ref[Array] | None = None
    end = 0

    def __init__(self) -> None:
        self.arenas: list[Arena] = []  # of running compilations, innermost last


_current = _Current()


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """`np.empty` from a block, aligned to 64 bytes unless the array is small."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < MIN_BLOCK_ARRAY:
        return np.empty(shape, kind)
    if size > MAX_BLOCK_ARRAY:
        result: Array = own_block(size).view(kind).reshape(shape)
        return result
    block = _current.block() if _current.block is not None else None
    if block is None or _current.end + size > len(block) - PAGE:
        block = np.empty(BLOCK + PAGE, np.uint8)
        _current.block, _current.end = weakref.ref(block), -block.ctypes.data % PAGE
    start = _current.end
    _current.end += -(-size // ALIGN) * ALIGN
    result = block[start : start + size].view(kind).reshape(shape)
    return result


def package_array(shape: Sequence[int], dtype: Any) -> Array:
    """An array for a constant of the package that this thread is compiling."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < MIN_BLOCK_ARRAY or not _current.arenas:
        return empty(shape, kind)
    result: Array = _current.arenas[-1].take(size).view(kind).reshape(shape)
    return result


def own_block(size: int) -> Array:
    """An aligned array of bytes in a block of its own, for data that lives long."""
    step = PAGE if size > MAX_BLOCK_ARRAY else ALIGN
    block = np.empty(-(-size // step) * step + step, np.uint8)
    start = -block.ctypes.data % step
    return block[start : start + size]
