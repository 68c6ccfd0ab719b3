"""Memory of very large results, which the next run gets when the caller has dropped them.

Memory of more than 32 MB goes back to the system when it is freed (glibc), and its page faults take
longer than many a model takes to write it. Smaller results come from the heap, without page faults.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.ir import Array

MIN_BYTES = 32 << 20
MAX_FREE = 2  # blocks that wait for the next runs


class ResultMemory:
    """Blocks of one session. Each belongs to one array, and to views of it, until all are gone."""

    def __init__(self) -> None:
        self._free: list[Array] = []  # its methods are atomic: threads need no lock

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """`np.empty`, in the memory of a result that nobody has any more."""
        size = math.prod(shape) * dtype.itemsize
        owner = _Owner(self._taken(size), self)
        whole: Array = np.asarray(owner)
        return whole[:size].view(dtype).reshape(shape)

    def _taken(self, size: int) -> Array:
        with contextlib.suppress(IndexError):  # another thread was faster
            for _ in range(len(self._free)):
                block = self._free.pop(0)
                if size <= block.nbytes <= 2 * size:
                    return block
                self._free.append(block)
        return np.empty(size, np.uint8)

    def give_back(self, block: Array) -> None:
        """Keep a block that no array uses, in the place of the oldest one."""
        self._free.append(block)
        with contextlib.suppress(IndexError):
            while len(self._free) > MAX_FREE:
                self._free.pop(0)


class _Owner:
    """What all arrays over a block refer to: it goes when the last of them does."""

    def __init__(self, block: Array, memory: ResultMemory):
        self._block, self._memory = block, weakref.ref(memory)
        self.__array_interface__ = {
            "version": 3,
            "shape": block.shape,
            "typestr": "|u1",
            "data": (block.ctypes.data, False),
        }

    def __del__(self) -> None:
        memory = self._memory()
        if memory is not None:  # the session is still there
            memory.give_back(self._block)
