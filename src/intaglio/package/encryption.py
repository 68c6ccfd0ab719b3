"""Encryption of package files with AES-256-GCM; csrc/decrypt.c opens them.

The key of a file is HKDF-SHA256 of the user's key and a random salt, so that no two files share it.
Its messages are numbered, and the number is the nonce: none is used twice.
"""

from __future__ import annotations

import ctypes
import secrets
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from intaglio import heap
from intaglio.arguments import described
from intaglio.errors import BadFile, BadInput, option
from intaglio.ir import Array
from intaglio.package import format as f
from intaglio.package.keys import (
    BYTES,
    Key,
    KeySource,
    PublicKeySource,
    library,
    missing_extra,
    open_options,
)
from intaglio.package.write import seal, table_of, write_head
from intaglio.status import CError, error_of

LEVELS = ("weights", "graph", "all")  # code 1, 2, 3
WEIGHTS = (b"CNST", b"CODE")  # the sections that level "weights" encrypts
LABEL = b"intaglio package encryption 1"  # of HKDF
PART_BYTES = 64 << 20  # at most in one message, so that encrypting takes little more memory
RECORD = f.NONE  # number of the message that authenticates section CRPT
TAG = 16  # bytes


def is_encrypted(data: Array) -> bool:
    """Whether these are the bytes of an encrypted package."""
    if len(data) < f.HEADER.itemsize:
        return False
    header = data[: f.HEADER.itemsize].view(f.HEADER)[0]
    return bool(header["magic"] == f.MAGIC and header["flags"] & f.ENCRYPTED)


def level_of(data: Array) -> str:
    """The level of an encrypted file, which anybody may read; BadFile if it is damaged."""
    for row in table_of(data):
        start = int(row["offset"])
        if row["kind"] == b"CRPT" and start + f.CRYPT.itemsize <= len(data):
            level = int(data[start : start + f.CRYPT.itemsize].view(f.CRYPT)[0]["level"])
            if 1 <= level <= len(LEVELS):
                return LEVELS[level - 1]
    raise BadFile("section CRPT of the encrypted file is damaged")


def decrypt(data: Array, key: KeySource | None, public_key: PublicKeySource | None = None) -> Array:
    """The package in a file, decrypted; `data` itself if it is not encrypted.

    The signature is checked if there is a `public_key`. The bytes of a decrypted package lie in
    memory that core dumps leave out and that is wiped when the last array of it is gone.
    """
    lib, error = library(), CError()
    image, size = ctypes.c_void_p(), ctypes.c_uint64()
    with open_options(key, public_key) as o:
        address = data.ctypes.data
        status = 0
        if o.public_key:
            status = lib.itg_check_signature(address, len(data), o.public_key, ctypes.byref(error))
        if not status:
            results = ctypes.byref(image), ctypes.byref(size)
            status = lib.itg_decrypt(
                address, len(data), ctypes.byref(o), *results, ctypes.byref(error)
            )
        if status:
            raise error_of(status, error.words)
    if not image.value:
        return data
    memory = (ctypes.c_uint8 * size.value).from_address(image.value)
    weakref.finalize(memory, lib.itg_secret_free, image, size.value)
    result = np.frombuffer(memoryview(memory), np.uint8)
    try:
        return seal(result, every=True)  # checksums of what was encrypted were left out
    except (ValueError, IndexError):
        raise BadFile("package in the encrypted file is damaged; encrypt it again") from None


def encrypt(data: Array, level: str, key: KeySource, salt: bytes | None = None) -> Array:
    """The encrypted file of a package. `salt` is random; only tests give it."""
    if level not in LEVELS:
        known = ", ".join(f'"{name}"' for name in LEVELS)
        raise BadInput(f"{option('encrypt')} is {described(level)}; it is one of {known}")
    if is_encrypted(data):
        raise BadInput("package is encrypted already; give the one that is not")
    body = data.copy()
    kinds = {"weights": WEIGHTS}.get(level)
    table = table_of(body).copy()
    hidden = np.isin(table["kind"], kinds) if kinds else np.ones(len(table), bool)
    table["crc"][hidden] = 0  # a checksum would tell whether two files have the same weights
    write_head(body, table, int(body[: f.HEADER.itemsize].view(f.HEADER)[0]["isa"]))
    parts = list(_parts(body, table, level, hidden))
    crypt = np.zeros(1, f.CRYPT)
    crypt["level"], crypt["parts"] = LEVELS.index(level) + 1, len(parts)
    crypt["salt"] = np.frombuffer(salt or secrets.token_bytes(32), np.uint8)
    rows = np.zeros(len(parts), f.PART)
    sizes = [f.CRYPT.itemsize + rows.nbytes, len(body)]
    result, places = _envelope(sizes)
    with Key(key).revealed() as user:
        gcm = _cipher(user, crypt["salt"].tobytes())
        for i, (row, (start, end, encrypted)) in enumerate(zip(rows, parts, strict=True)):
            row["size"], row["encrypted"] = end - start, encrypted
            piece = body[start:end].data
            made = gcm.encrypt(_nonce(i), *((piece, None) if encrypted else (b"", piece)))
            row["tag"] = np.frombuffer(made[-TAG:], np.uint8)
            at = places[1] + start
            result[at : at + end - start] = (
                np.frombuffer(made, np.uint8, end - start) if encrypted else body[start:end]
            )
        record = crypt.tobytes() + rows.tobytes()
        crypt["tag"] = np.frombuffer(gcm.encrypt(_nonce(RECORD), b"", record), np.uint8)
    record = crypt.tobytes() + rows.tobytes()
    result[places[0] : places[0] + len(record)] = np.frombuffer(record, np.uint8)
    return _sealed(result, sizes, places)


def _parts(body: Array, table: Array, level: str, hidden: Array) -> Iterator[tuple[int, int, bool]]:
    """Start, end and whether to encrypt, for pieces that make up the whole package."""
    after_table = f.HEADER.itemsize + table.nbytes
    ranges = {
        "weights": sorted(
            (int(row["offset"]), int(row["offset"]) + int(row["size"])) for row in table[hidden]
        ),
        "graph": [(after_table, len(body))],
        "all": [(0, len(body))],
    }[level]
    end = 0
    for start, stop in [*ranges, (len(body), len(body))]:
        yield from ((a, b, False) for a, b in _split(end, start))
        yield from ((a, b, True) for a, b in _split(start, stop))
        end = stop


def _split(start: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(start, end, PART_BYTES):
        yield at, min(at + PART_BYTES, end)


def _envelope(sizes: list[int]) -> tuple[Array, list[int]]:
    """Memory for the file, and the offsets of its sections CRPT and BODY."""
    first = f.align(f.HEADER.itemsize + 2 * f.SECTION.itemsize)
    places = [first, f.align(first + sizes[0])]
    result = heap.own_block(f.align(places[1] + sizes[1]))
    result[: places[1]] = 0
    result[places[1] + sizes[1] :] = 0
    return result, places


def _sealed(result: Array, sizes: list[int], places: list[int]) -> Array:
    table = np.zeros(2, f.SECTION)
    table["kind"], table["offset"], table["size"] = [b"CRPT", b"BODY"], places, sizes
    table["crc"][0] = zlib.crc32(result[places[0] : places[0] + sizes[0]].data)
    write_head(result, table, 0, f.ENCRYPTED)
    return result


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")


def _cipher(user: Any, salt: bytes) -> Any:
    """AES-256-GCM with the key of this file."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise missing_extra("encryption") from None
    key = (ctypes.c_uint8 * BYTES)()
    library().itg_hkdf_sha256(user, salt, LABEL, key)
    try:
        return AESGCM(memoryview(key).cast("B"))
    finally:
        library().itg_wipe(key, BYTES)
