"""Protocol buffers as they are stored, without their schemas: enough to read a few known fields."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intaglio.errors import BadFile
from intaglio.ir import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Field = tuple[int, int, int | memoryview]  # number, kind, value


def fields(data: memoryview, what: str) -> Iterator[Field]:
    """The fields of one message, in order; BadFile where the bytes are none."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at, what)
        number, kind = key >> 3, key & 7
        value: int | memoryview
        if kind == VARINT:
            value, at = varint(data, at, what)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            value = data[at : at + size]
            at += size
        elif kind == BYTES:
            size, at = varint(data, at, what)
            value = data[at : at + size]
            at += size
        else:
            raise BadFile(f"{what}: no field has kind {kind}, at byte {at}")
        if at > end or not number:
            raise BadFile(f"{what} is damaged or cut off at byte {end}")
        yield number, kind, value


def varint(data: memoryview, at: int, what: str) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise BadFile(f"{what} is damaged or cut off at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def text(value: int | memoryview) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else str(value)


def inside(value: int | memoryview, what: str) -> memoryview:
    """A message or packed numbers; BadFile where the field is a number."""
    if not isinstance(value, memoryview):
        raise BadFile(f"{what}: a number stands where a message is needed")
    return value


def whole(value: int | memoryview, what: str) -> int:
    """A whole number as protobuf stores it: negative ones are large."""
    if isinstance(value, memoryview):
        raise BadFile(f"{what}: bytes stand where a number is needed")
    return value - (1 << 64) if value >= 1 << 63 else value


def wholes(value: int | memoryview, what: str) -> list[int]:
    """One number, or several packed ones."""
    if not isinstance(value, memoryview):
        return [whole(value, what)]
    found, at = [], 0
    while at < len(value):
        one, at = varint(value, at, what)
        found.append(whole(one, what))
    return found


def floats(value: int | memoryview, what: str, dtype: str = "<f4") -> Array:
    """Packed floats, or one of them."""
    raw = inside(value, what)
    size = np.dtype(dtype).itemsize
    if len(raw) % size:
        raise BadFile(f"{what}: {len(raw)} bytes are no whole floats")
    return np.frombuffer(raw, dtype)
