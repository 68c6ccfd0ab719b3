"""The bytes of a file on disk."""

from __future__ import annotations

import os
from pathlib import Path

from intaglio import heap
from intaglio.errors import BadFile
from intaglio.ir import Array


def read_bytes(path: str | Path) -> Array:
    """The bytes of a file in aligned memory; BadFile if it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = heap.own_block(os.fstat(file.fileno()).st_size)
            return data[: file.readinto(data.data)]
    except OSError as e:
        raise BadFile(f"cannot read {path}: {e.strerror}") from None
