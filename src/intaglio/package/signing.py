"""Ed25519 signatures of package files, in section SIGN; csrc/signature.c checks them."""

from __future__ import annotations

import ctypes
import hashlib
import os
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import heap
from intaglio.arguments import described
from intaglio.errors import BadInput, BadKey, option
from intaglio.ir import Array
from intaglio.package import format as f
from intaglio.package.keys import library, missing_extra
from intaglio.package.write import table_of, write_head
from intaglio.status import CError

LABEL = b"intaglio package signature 1\0"  # signed before the digest
KIND = b"SIGN"


@dataclass(frozen=True)
class Signature:
    """The signature of a file: who signed it, and whether the file is still what was signed."""

    public_key: str  # in hexadecimal digits
    intact: bool


def signature_of(data: Array) -> Signature | None:
    """The signature of a file, or None. Anybody can sign: compare the key with one you trust."""
    rows = [r for r in table_of(data) if r["kind"] == KIND]
    if len(rows) != 1 or int(rows[0]["offset"]) + f.SIGNATURE.itemsize > len(data):
        return None
    key = _record(data, rows[0])["public_key"].tobytes()
    error = CError()
    status = library().itg_check_signature(data.ctypes.data, len(data), key, ctypes.byref(error))
    return Signature(key.hex(), not status)


def sign(data: Array, private_key: Any) -> Array:
    """The file with a signature of `private_key`, in place of one that it may have."""
    signer = private_key_of(private_key)
    _refuse_swappable(data)
    result = _with_section(data)
    header = result[: f.HEADER.itemsize].view(f.HEADER)[0]
    isa, flags = int(header["isa"]), int(header["flags"])
    table = table_of(result).copy()
    row = table[np.flatnonzero(table["kind"] == KIND)[0] :][:1]
    record = _record(result, row[0])
    record["public_key"] = np.frombuffer(signer.public_key().public_bytes_raw(), np.uint8)
    record["signature"], row["crc"] = 0, 0
    write_head(result, table, isa, flags)
    result[: f.HEADER.itemsize].view(f.HEADER)["crc"] = 0
    digest = hashlib.sha256(result.data).digest()
    record["signature"] = np.frombuffer(signer.sign(LABEL + digest), np.uint8)
    row["crc"] = zlib.crc32(record.tobytes())
    write_head(result, table, isa, flags)
    return result


def _refuse_swappable(data: Array) -> None:
    """BadInput for a package whose weights may be swapped: a signature would not cover them."""
    for row in table_of(data):
        start, size = int(row["offset"]), int(row["size"])
        if row["kind"] != b"WGTS" or start + size > len(data) or size % f.WEIGHTS.itemsize:
            continue
        if np.any(data[start : start + size].view(f.WEIGHTS)["flags"] & f.ANY_CONTENT):
            raise BadInput(
                "weights of the package may be swapped, which a signature cannot cover; save it "
                "without swappable"
            )


def private_key_of(source: Any) -> Any:
    """An Ed25519PrivateKey: itself, its 32 bytes, or from a PEM file."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise missing_extra("signing") from None
    if isinstance(source, Ed25519PrivateKey):
        return source
    if isinstance(source, bytes | bytearray) and len(source) == 32:
        return Ed25519PrivateKey.from_private_bytes(bytes(source))
    if not isinstance(source, str | os.PathLike) or not os.fspath(source):
        raise BadInput(
            f"{option('sign')} is {described(type(source))}; give the path of a PEM file, 32 bytes "
            "or an Ed25519PrivateKey"
        )
    try:
        with open(source, "rb") as file:
            key = serialization.load_pem_private_key(file.read(1 << 16), None)
    except OSError as e:
        raise BadKey(f"cannot read private key {source}: {e.strerror}") from None
    except TypeError:
        raise BadKey(
            f"private key {source} has a password; remove it, or give an Ed25519PrivateKey"
        ) from None
    except ValueError:
        raise BadKey(
            f"{source} holds no private key; a PEM file of Ed25519 is needed; "
            "`intaglio keygen --signing` makes one"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(
            f"private key {source} is of another kind; packages are signed with Ed25519; "
            "`intaglio keygen --signing` makes one"
        )
    return key


def _record(data: Array, row: Any) -> Any:
    start = int(row["offset"])
    return data[start : start + f.SIGNATURE.itemsize].view(f.SIGNATURE)[0]


def _with_section(data: Array) -> Array:
    """A copy of the file that has a section SIGN, at its end if it is new."""
    header = data[: f.HEADER.itemsize].view(f.HEADER)[0]
    table = table_of(data)
    if KIND in table["kind"]:
        return data.copy()
    after = f.HEADER.itemsize + table.nbytes
    first = min((int(offset) for offset in table["offset"]), default=len(data))
    shift = max(0, f.align(after + f.SECTION.itemsize) - first)  # room for one more row
    rows = np.zeros(len(table) + 1, f.SECTION)
    rows[:-1] = table
    rows["offset"][:-1] += shift
    place = f.align(len(data) + shift)
    rows[-1] = (KIND, 0, place, f.SIGNATURE.itemsize, 0, 0)
    result = heap.own_block(f.align(place + f.SIGNATURE.itemsize))
    result[: first + shift] = 0
    result[first + shift : len(data) + shift] = data[first:]
    result[len(data) + shift :] = 0
    write_head(result, rows, int(header["isa"]), int(header["flags"]))
    return result
