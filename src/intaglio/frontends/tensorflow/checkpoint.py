"""Reader of TensorFlow checkpoints: an index (a LevelDB table of keys) and data files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, Unsupported
from intaglio.files import read_regular
from intaglio.frontends import protobuf
from intaglio.frontends.tensorflow.checksum import crc32c, masked
from intaglio.frontends.tensorflow.tensor import DTYPES, read_shape
from intaglio.ir import Array

MAGIC = 0xDB4775248B80FB57  # the last eight bytes of a table
FOOTER, TRAILER = 48, 5


@dataclass
class Entry:
    """Type, shape and location of a tensor."""

    dtype: str = "f32"
    shape: tuple[int, ...] | None = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    check: int = 0
    sliced: bool = False


class Checkpoint:
    """The tensors of a checkpoint by name, read on demand."""

    def __init__(self, prefix: Path):
        self.prefix, self.shards = prefix, 1
        self.entries: dict[str, Entry] = {}
        what = f"'{prefix.name}.index'"
        try:
            data = read_regular(prefix.with_name(f"{prefix.name}.index"))
        except OSError as e:
            raise BadFile(
                f"tensorflow: cannot read {what} of '{prefix.parent}': "
                f"{(e.strerror or str(e)).lower()}"
            ) from None
        for key, value in _table(memoryview(data), what):
            if not key:
                self._header(value, what)
            else:
                self.entries[key.decode("utf-8", "replace")] = _entry(value, what)

    def _header(self, message: memoryview, what: str) -> None:
        for n, _, value in protobuf.fields(message, what):
            if n == 1:
                self.shards = protobuf.whole(value, what)
            elif n == 2 and value:
                raise Unsupported(
                    f"tensorflow: {what} was written on a big-endian machine; save it on a "
                    "little-endian one"
                )

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def read(self, name: str) -> Array:
        """The array under a key."""
        e = self.entries[name]
        what = f"variable '{name}'"
        if e.sliced:
            raise Unsupported(f"tensorflow: {what} is stored in slices; save it in one piece")
        if e.dtype not in dtypes.TABLE:
            raise Unsupported(f"tensorflow: {what} holds {e.dtype}; only numbers are supported")
        kind = dtypes.numpy_of(e.dtype)
        if e.shape is None or min(e.shape, default=0) < 0:
            raise BadFile(f"tensorflow: {what} has the open shape {e.shape}; it must be known")
        if math.prod(e.shape) * kind.itemsize != e.size:
            raise BadFile(
                f"tensorflow: {what} has {e.size} bytes, which do not fit {e.dtype} of {e.shape}"
            )
        path = self.prefix.with_name(f"{self.prefix.name}.data-{e.shard:05d}-of-{self.shards:05d}")
        try:
            if e.offset < 0 or e.offset + e.size > path.stat().st_size:
                raise BadFile(f"tensorflow: '{path.name}' is truncated: {what} is not in it")
            with path.open("rb") as file:
                file.seek(e.offset)
                data = file.read(e.size)
        except OSError as error:
            words = (error.strerror or str(error)).lower()
            raise BadFile(f"tensorflow: cannot read '{path}': {words}") from None
        if masked(crc32c(data)) != e.check:
            raise BadFile(f"tensorflow: the bytes of {what} in '{path.name}' are damaged")
        return np.frombuffer(data, kind.newbyteorder("<")).astype(kind).reshape(e.shape)


def _entry(message: memoryview, what: str) -> Entry:
    e = Entry()
    for n, _, value in protobuf.fields(message, what):
        match n:
            case 1:
                code = protobuf.whole(value, what)
                e.dtype = DTYPES.get(code, f"element type {code}")
            case 2:
                e.shape = read_shape(protobuf.inside(value, what), what)
            case 3:
                e.shard = protobuf.whole(value, what)
            case 4:
                e.offset = protobuf.whole(value, what)
            case 5:
                e.size = protobuf.whole(value, what)
            case 6:
                e.check = int.from_bytes(protobuf.inside(value, what), "little")
            case 7:
                e.sliced = True
    return e


# ---- the table -----------------------------------------------------------------------------------
def _table(data: memoryview, what: str) -> Iterator[tuple[bytes, memoryview]]:
    footer = data[-FOOTER:]
    if len(footer) < FOOTER or int.from_bytes(footer[-8:], "little") != MAGIC:
        raise BadFile(f"tensorflow: {what} is not the index of a checkpoint, or is truncated")
    at = 0
    places = []
    for _ in range(4):  # offset and size of the metaindex block, then of the index block
        number, at = protobuf.varint(footer, at, what)
        places.append(number)
    for _, handle in _block(data, places[2], places[3], what):
        offset, at = protobuf.varint(handle, 0, what)
        size, _ = protobuf.varint(handle, at, what)
        yield from _block(data, offset, size, what)


def _block(
    data: memoryview, offset: int, size: int, what: str
) -> Iterator[tuple[bytes, memoryview]]:
    """Keys and values of a block; a key shares a prefix with the previous one."""
    end = offset + size
    if end + TRAILER > len(data):
        raise BadFile(f"tensorflow: {what} is truncated")
    if data[end]:
        raise Unsupported(
            f"tensorflow: {what} is compressed; save the checkpoint without compression"
        )
    if masked(crc32c(data[offset : end + 1])) != int.from_bytes(data[end + 1 : end + 5], "little"):
        raise BadFile(f"tensorflow: {what} is damaged at byte {offset}")
    block = data[offset:end]
    restarts = int.from_bytes(block[-4:], "little")
    rows = block[: max(len(block) - 4 * (restarts + 1), 0)]
    key, at = b"", 0
    while at < len(rows):
        shared, at = protobuf.varint(rows, at, what)
        more, at = protobuf.varint(rows, at, what)
        length, at = protobuf.varint(rows, at, what)
        if shared > len(key) or at + more + length > len(rows):
            raise BadFile(f"tensorflow: {what} is damaged at byte {offset + at}")
        key = key[:shared] + bytes(rows[at : at + more])
        yield key, rows[at + more : at + more + length]
        at += more + length
