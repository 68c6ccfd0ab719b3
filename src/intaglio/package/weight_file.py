"""Weight files: constants of packages in a file of their own. csrc/weights.c reads the same."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from intaglio.errors import BadFile, BadInput, option
from intaglio.ir import Array
from intaglio.package import format as f

_FOLLOWS_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class WeightFile:
    """The checked contents of a weight file: blobs of bytes, with their hashes."""

    def __init__(self, data: Array, name: str, hashed: bool = False):
        """`hashed` compares the SHA-256 of every blob, which a signature covers."""
        self.name, self.data = name, data
        header = self._check_header()
        self.layout = header["layout"].tobytes()
        self._check_blobs(hashed)

    def _check_header(self) -> np.void:
        size, head = len(self.data), f.WEIGHTS_HEADER.itemsize
        if size < head:
            self._refuse(f"has {size} bytes, its header alone has {head}; it is truncated")
        header = self.data[:head].view(f.WEIGHTS_HEADER)[0]
        if header["magic"] != f.WEIGHTS_MAGIC:
            raise BadFile(f"'{self.name}' does not start with ITGW; it is no weight file")
        if header["version"] != f.WEIGHTS_VERSION or header["flags"]:
            self._refuse(
                f"has format version {header['version']} and flags {header['flags']}, this reader "
                f"knows version {f.WEIGHTS_VERSION}; write it again"
            )
        if header["size"] != size:
            self._refuse(f"has {size} bytes, its header says {header['size']}; it is truncated")
        if int(header["blobs"]) > (size - head) // f.BLOB.itemsize:
            self._refuse(f"says it has {header['blobs']} blobs; that does not fit")
        end = head + int(header["blobs"]) * f.BLOB.itemsize
        self.blobs: Array = self.data[head:end].view(f.BLOB)
        bare = header.copy()
        bare["crc"] = 0
        described = bare.tobytes() + self.blobs.tobytes()
        if zlib.crc32(described) != header["crc"]:
            self._refuse("has a header with another checksum; it is damaged")
        self.content = hashlib.sha256(described).digest()
        return header  # type: ignore[no-any-return]

    def _check_blobs(self, hashed: bool) -> None:
        end = f.WEIGHTS_HEADER.itemsize + self.blobs.nbytes
        for i, row in enumerate(self.blobs):
            start, size = int(row["offset"]), int(row["size"])
            if start != f.align(end) or size > len(self.data) - start or row["reserved"]:
                self._refuse(f"has blob {i} outside of the file, or not after the one before")
            raw = self.data[start : start + size].data
            if zlib.crc32(raw) != row["crc"]:
                self._refuse(f"has another checksum of blob {i}; it is damaged")
            if hashed and hashlib.sha256(raw).digest() != row["hash"].tobytes():
                self._refuse(f"has a blob {i} that was not signed; get a good copy")
            end = start + size
        if f.align(end) != len(self.data):
            self._refuse("goes on behind its last blob; it is damaged")

    def _refuse(self, words: str) -> None:
        raise BadFile(f"weight file '{self.name}' {words}")

    @cached_property
    def places(self) -> dict[tuple[int, bytes], int]:
        """The offset of a blob, by its size and SHA-256."""
        return {(int(r["size"]), r["hash"].tobytes()): int(r["offset"]) for r in self.blobs[::-1]}

    @classmethod
    def open(cls, path: str | Path, hashed: bool = False) -> WeightFile:
        """Map a weight file that the user named."""
        return cls(_mapped(path, os.path.basename(path)), os.path.basename(path), hashed)


def find(name: str, folder: str | Path | None, hashed: bool) -> WeightFile:
    """The file that a package names: a regular file of that plain name in its folder."""
    if not is_plain_name(name):
        raise BadFile(
            f"package names the weight file '{name}'; only plain names of files beside it are "
            "allowed"
        )
    if folder is None:
        raise BadFile(
            f"package has its weights in '{name}', and was not opened as a file; give "
            f"{option('weights')}"
        )
    return WeightFile(_mapped(Path(folder) / name, name, _FOLLOWS_NO_LINK), name, hashed)


def is_plain_name(name: str) -> bool:
    """Whether this is the name of a file in the folder of the package, and nothing else."""
    strange = any(c in "/\\:" or ord(c) < 32 or ord(c) == 127 for c in name)
    return bool(name) and len(name.encode()) <= 255 and name[0] != "." and not strange


def _mapped(path: str | Path, name: str, flags: int = 0) -> Array:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except OSError as e:
        if e.errno == errno.ENOENT and flags:
            raise BadFile(
                f"weight file '{name}' is missing; it belongs beside the package; put it there, or "
                f"give {option('weights')}"
            ) from None
        if e.errno == errno.ELOOP:
            raise BadFile(
                f"weight file '{name}' is a symbolic link, which is not followed; give "
                f"{option('weights')}"
            ) from None
        raise BadFile(f"cannot open weight file '{name}': {e.strerror}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise BadFile(f"weight file '{name}' is no regular file")
        if not found.st_size:
            raise BadFile(f"weight file '{name}' is empty")
        return np.frombuffer(mmap.mmap(fd, 0, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(fd)


class NewWeightFile:
    """A weight file that is being made: blobs are added, then it is written."""

    def __init__(self) -> None:
        self._blobs: list[Array] = []

    def add(self, raw: Array) -> int:
        """Add a blob; returns its number."""
        self._blobs.append(raw)
        return len(self._blobs) - 1

    def __len__(self) -> int:
        return len(self._blobs)

    @property
    def offsets(self) -> list[int]:
        """Where each blob lies in the file."""
        places, end = [], f.WEIGHTS_HEADER.itemsize + len(self._blobs) * f.BLOB.itemsize
        for raw in self._blobs:
            places.append(f.align(end))
            end = places[-1] + len(raw)
        return places

    def pieces(self, layout: bytes) -> tuple[list[memoryview], bytes]:
        """The bytes of the file in pieces, and its content hash; nothing is copied."""
        table, offsets = np.zeros(len(self._blobs), f.BLOB), self.offsets
        for row, raw, offset in zip(table, self._blobs, offsets, strict=True):
            row["offset"], row["size"], row["crc"] = offset, len(raw), zlib.crc32(raw.data)
            row["hash"] = np.frombuffer(hashlib.sha256(raw.data).digest(), np.uint8)
        header = np.zeros(1, f.WEIGHTS_HEADER)
        header["magic"], header["version"] = f.WEIGHTS_MAGIC, f.WEIGHTS_VERSION
        header["blobs"], header["layout"] = len(table), np.frombuffer(layout, np.uint8)
        last = offsets[-1] + len(self._blobs[-1]) if offsets else header.nbytes
        header["size"] = f.align(last)
        described = header.tobytes() + table.tobytes()
        header["crc"] = zlib.crc32(described)
        parts = list(_padded([header.tobytes() + table.tobytes(), *(b.data for b in self._blobs)]))
        return parts, hashlib.sha256(described).digest()


def _padded(parts: Sequence[bytes | memoryview]) -> Iterator[memoryview]:
    for part in parts:
        yield memoryview(part)
        yield memoryview(bytes(-len(part) % f.ALIGN))


def weight_file_name(path: str | Path) -> str:
    """The name that a package gives to a weight file; BadInput if it cannot have this name."""
    name = os.path.basename(path)
    if not is_plain_name(name):
        raise BadInput(
            f"weight file {os.fspath(path)!r} has no plain name; a name has no colon and does not "
            "begin with a dot"
        )
    return name
