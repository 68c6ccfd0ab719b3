"""Mutations of weight files with corrected checksums."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
from tests.package.mutate import NUMBERS, mutate
from tests.package.samples import SAMPLES

from intaglio.package import format as f
from intaglio.package.weight_split import split

HEAD = f.WEIGHTS_HEADER.itemsize
Pair = tuple[bytes, bytes]  # a package and its weight file


def pairs() -> list[Pair]:
    """The sample packages with their weights in a file."""
    found = []
    for make in SAMPLES.values():
        whole = np.frombuffer(make().package().bytes, np.uint8)
        made = split(whole, "w.weights", [], swappable=True)
        assert made.weights is not None
        found.append((made.package.tobytes(), b"".join(made.weights)))
    return found


def rows(data: bytearray) -> int:
    """The number of rows of the table that lie in the file."""
    if len(data) < HEAD:
        return 0
    return min(int.from_bytes(data[8:12], "little"), (len(data) - HEAD) // f.BLOB.itemsize)


def fix(data: bytearray) -> None:
    """Put the checksums of the header and of all blobs right."""
    for i in range(rows(data)):
        at = HEAD + i * f.BLOB.itemsize
        offset, size = struct.unpack_from("<QQ", data, at)
        if offset + size <= len(data):
            struct.pack_into("<I", data, at + 48, zlib.crc32(data[offset : offset + size]))
    if len(data) >= HEAD:
        struct.pack_into("<I", data, 12, 0)
        end = HEAD + rows(data) * f.BLOB.itemsize
        struct.pack_into("<I", data, 12, zlib.crc32(data[:end]))


def _number(rng: random.Random, data: bytearray, at: int, width: int) -> None:
    old = int.from_bytes(data[at : at + width], "little")
    new = rng.choice([rng.choice(NUMBERS), old + rng.choice([-64, -1, 1, 64]), old * 2, old // 2])
    data[at : at + width] = (new & (2 ** (8 * width) - 1)).to_bytes(width, "little")


def change_header(rng: random.Random, data: bytearray) -> None:
    at, width = rng.choice([(0, 4), (4, 4), (8, 4), (8, 4), (16, 8), (16, 8), (24, 8), (32, 8)])
    _number(rng, data, at, width)


def change_row(rng: random.Random, data: bytearray) -> None:
    if count := rows(data):
        at = HEAD + rng.randrange(count) * f.BLOB.itemsize
        _number(rng, data, at + rng.choice([0, 0, 8, 8, 16, 52]), rng.choice([4, 8]))


def change_blob(rng: random.Random, data: bytearray) -> None:
    """An index, a shape or a zero point, which kernels must check at run time."""
    start = HEAD + rows(data) * f.BLOB.itemsize
    if start + 8 <= len(data):
        at = start + 8 * rng.randrange((len(data) - start) // 8)
        data[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS) & (2**64 - 1))


def resize(rng: random.Random, data: bytearray) -> None:
    if rng.random() < 0.6:
        del data[rng.randrange(len(data)) :]
    else:
        data += bytes(rng.choice([1, 56, 64, 500]))
    if len(data) >= HEAD and rng.random() < 0.8:
        struct.pack_into("<Q", data, 16, len(data))


CHANGES: list[tuple[int, Callable[[random.Random, bytearray], None]]] = [
    (3, change_header),
    (4, change_row),
    (4, change_blob),
    (1, resize),
]


def mutate_weights(rng: random.Random, data: bytes) -> bytes:
    """A weight file that differs from `data` in a few places but has good checksums (mostly)."""
    changed = bytearray(data)
    weights, changes = zip(*CHANGES, strict=True)
    for change in rng.choices(changes, weights, k=rng.choice([1, 1, 1, 2, 3])):
        if len(changed) >= HEAD:
            change(rng, changed)
    if rng.random() < 0.9:
        fix(changed)
    return bytes(changed)


def mutate_pair(rng: random.Random, pair: Pair) -> Pair:
    """The package, its weight file or both changed."""
    package, weights = pair
    which = rng.random()
    if which < 0.6:
        package = mutate(rng, package)
    if which > 0.4:
        weights = mutate_weights(rng, weights)
    return package, weights
