"""Atomic writes of files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from intaglio.errors import BadInput


def write_atomically(path: str | Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a temporary file and rename it to `path`, so that no reader sees half a file."""
    path = Path(path)
    try:
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as e:
        raise BadInput(f"cannot write {path}: {e.strerror}") from None
    try:
        with os.fdopen(fd, "wb") as file:
            for part in (data,) if isinstance(data, bytes) else data:
                file.write(part)
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as e:
        os.unlink(temporary)
        raise BadInput(f"cannot write {path}: {e.strerror}") from None


def refuse_unwritable(*paths: str | Path | None) -> None:
    """BadInput if one of these cannot be written. Call it before long work."""
    for path in (Path(p) for p in paths if p is not None):
        if path.is_dir():
            raise BadInput(f"cannot write {path}: it is a folder")
        try:
            fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        except OSError as e:
            raise BadInput(f"cannot write {path}: {e.strerror}") from None
        os.close(fd)
        os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
