"""Atomic writes of files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from intaglio.errors import BadInput


def write_atomically(path: str | Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a temporary file and rename it to `path`, so that no reader sees half a file.

    A device or a pipe, which a rename would replace by a file, is written directly.
    """
    _refuse_folder(path)
    path = Path(path)
    parts = (data,) if isinstance(data, bytes) else data
    try:
        if path.exists() and not path.is_file():
            with open(path, "wb", buffering=0) as file:
                _write_all(file, parts)
        else:
            _replace(Path(os.path.realpath(path)), parts)
    except OSError as e:
        raise BadInput(f"cannot write {path}: {e.strerror}") from None


def refuse_unwritable(*paths: str | Path | None) -> None:
    """BadInput if one of these cannot be written. Call it before long work."""
    for given in (p for p in paths if p is not None):
        _refuse_folder(given)
        path = Path(os.path.realpath(given))
        if Path(given).exists() and not Path(given).is_file():
            continue  # a device or a pipe
        try:
            fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        except OSError as e:
            raise BadInput(f"cannot write {given}: {e.strerror}") from None
        os.close(fd)
        os.unlink(temporary)


def _refuse_folder(path: str | Path) -> None:
    if Path(path).is_dir() or str(path).endswith(os.sep):
        raise BadInput(f"cannot write {path}: it is a folder; give the name of a file")


def _replace(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            _write_all(file, parts)
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:  # an interrupt, too, leaves no half file behind
        os.unlink(temporary)
        raise


def _write_all(file: IO[bytes], parts: Iterable[bytes | memoryview]) -> None:
    for part in parts:
        left = memoryview(part).cast("B")
        while left:  # an unbuffered file may take a part only
            left = left[file.write(left) :]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
