"""Room for arrays that the compiler makes: of large blocks, whose pages the system hands out fast.

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

PAGE = 2 << 20  # bytes of a large page: numpy asks for these from 4 MB on
BLOCK = 16 * PAGE
SMALL, LARGE = 16 << 10, BLOCK // 4  # bytes: below, malloc has pages at hand; above, a block each
ALIGN = 64


class _Current(threading.local):
    """The block of this thread that still has room, if any array in it lives, and where that is."""

    block: weakref.ref[Array] | None = None
    end = 0


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


def alone(size: int) -> Array:
    """So many bytes for something that outlives what else is made, aligned like all arrays here."""
    step = PAGE if size > LARGE else ALIGN
    block = np.empty(-(-size // step) * step + step, np.uint8)
    start = -block.ctypes.data % step
    return block[start : start + size]
