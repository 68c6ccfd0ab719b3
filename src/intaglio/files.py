"""Reads and atomic writes of regular files."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from intaglio.errors import BadInput

KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
}


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; OSError for a pipe or a device, which might block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise OSError(errno.EINVAL, f"it is {_kind(mode)}, not a file")
    return open(fd, "rb")


def read_regular(path: str | Path, limit: int = 2 << 30) -> bytes:
    """The bytes of a regular file; OSError if there are more than `limit`.

    2 GiB is the most that a file of protobuf or flatbuffers can have.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"it has {size} bytes; the limit is {limit}")
        return file.read()


def write_atomically(path: str | Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write `data` to a regular file, so that no reader sees half of it, even after a power cut.

    A symbolic link stays: the file that it points to is replaced. A killed process leaves the
    old file and no temporary one (on file systems that have O_TMPFILE).
    """
    with _errors_of(path):
        folder, name, mode = _destination(path)
        with _opened(folder) as at, _Unnamed(folder, at) as new:
            with open(new.fd, "wb", closefd=False) as file:
                file.writelines((data,) if isinstance(data, bytes) else data)
            if mode is not None:
                os.fchmod(new.fd, mode)
            os.fsync(new.fd)
            new.replace(name)
            with suppress(OSError):  # some file systems cannot sync a folder
                os.fsync(at)


def refuse_unwritable(*paths: str | Path | None) -> None:
    """BadInput if one of these cannot be written. Call it before long work."""
    for path in (p for p in paths if p is not None):
        with _errors_of(path):
            folder, _, _ = _destination(path)
            with _opened(folder) as at, _Unnamed(folder, at):
                pass


class _Unnamed:
    """A new file without a name in an open folder: the kernel deletes it if nobody names it."""

    def __init__(self, folder: str, at: int) -> None:
        self.at = at
        self.temporary = ""
        try:
            self.fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except (AttributeError, OSError):  # not every system and file system has O_TMPFILE
            self._create_named()

    def _create_named(self) -> None:
        self.temporary = f".intaglio-{secrets.token_hex(8)}.tmp"
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        self.fd = os.open(self.temporary, flags, 0o666, dir_fd=self.at)

    def replace(self, name: str) -> None:
        if not self.temporary:
            temporary = f".intaglio-{secrets.token_hex(8)}.tmp"
            # with a folder's descriptor Python calls linkat, which can follow the link in /proc
            os.link(f"/proc/self/fd/{self.fd}", temporary, src_dir_fd=self.at, dst_dir_fd=self.at)
            self.temporary = temporary
        os.replace(self.temporary, name, src_dir_fd=self.at, dst_dir_fd=self.at)
        self.temporary = ""

    def __enter__(self) -> _Unnamed:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self.temporary:
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self.at)


def _destination(path: str | Path) -> tuple[str, str, int | None]:
    """Folder and name of the file behind `path`, and its mode if it is there already."""
    if str(path).endswith(os.sep):
        raise BadInput(f"cannot write {path}: it is a folder; give the name of a file")
    folder, name = os.path.split(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise BadInput(f"cannot write {path}: there is no folder '{folder}'; make it first")
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return folder, name, None
    if not stat.S_ISREG(found.st_mode):
        kind = _kind(found.st_mode)
        raise BadInput(f"cannot write {path}: it is {kind}; give the name of a file")
    if not os.access(path, os.W_OK):
        raise BadInput(f"cannot write {path}: Permission denied")
    return folder, name, stat.S_IMODE(found.st_mode)


def _kind(mode: int) -> str:
    return next((kind for is_kind, kind in KINDS.items() if is_kind(mode)), "no regular file")


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _errors_of(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise BadInput(f"cannot write {path}: {e.strerror}") from None
