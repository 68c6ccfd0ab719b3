"""The memory of work that makes much of it for a short time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

_lock = threading.Lock()
_users, _before = 0, True  # how many are in here, and what numpy did before the first


@contextlib.contextmanager
def small_pages() -> Iterator[None]:
    """In here numpy asks for no large pages, as it does for arrays of 4 MB and more.

    Calibration writes to most of its memory once. In a virtual machine that hands free memory back
    to its host, large pages are always new to both: 0.45 GB/s were measured there, and 1.8 GB/s
    with small ones, most of which were in use a moment before.
    """
    global _users, _before
    core = getattr(np, "_core", None) or getattr(np, "core", None)
    switch = getattr(getattr(core, "multiarray", None), "_set_madvise_hugepage", None)
    if switch is None:
        yield
        return
    with _lock:
        if not _users:
            _before = switch(False)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                switch(_before)
