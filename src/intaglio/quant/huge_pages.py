"""Disable huge pages for numpy arrays during calibration."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

_lock = threading.Lock()
_users, _before = 0, True  # nested uses, and numpy's setting before the first


@contextlib.contextmanager
def without_huge_pages() -> Iterator[None]:
    """Inside the block numpy requests no huge pages for arrays of 4 MB and more.

    Calibration writes most of its memory once. A virtual machine that returns free memory to its
    host must fetch every huge page anew: writing at 0.45 GB/s was measured there, and 1.8 GB/s
    with normal pages, which are mostly reused.
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
