"""Freed memory: used again for requests, given back after models."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of malloc.h
MAX_REUSED = 32 << 20  # bytes; the most that glibc takes
KEPT = 64 << 20  # free bytes at the end of the heap


def keep_freed_memory() -> None:
    """Let malloc reuse the memory of large requests; glibc would return it to the system, which
    then clears every page anew: a third of the time of a request with a picture."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MAX_REUSED)
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_ARENA_MAX, 1)  # else each thread that loads models keeps memory of its own


def give_back_freed_memory() -> None:
    """Return free pages to the system, after a model is gone."""
    if gc.get_freeze_count():  # else a collection would look at all of the program's objects
        gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
