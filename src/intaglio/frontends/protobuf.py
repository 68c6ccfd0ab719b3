"""A reader of the protobuf wire format without schemas, for a few known fields."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intaglio.errors import BadFile
from intaglio.ir import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Field = tuple[int, int, int | memoryview]  # number, kind, value


def fields(data: memoryview, what: str) -> Iterator[Field]:
    """The fields of one message, in order; BadFile if the bytes are not a message."""
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
            raise BadFile(f"{what} is damaged: unknown wire type {kind} at byte {at}")
        if at > end or not number:
            raise BadFile(f"{what} is damaged or truncated at byte {end}")
        yield number, kind, value


def varint(data: memoryview, at: int, what: str) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise BadFile(f"{what} is damaged or truncated at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def text(value: int | memoryview) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else str(value)


def inside(value: int | memoryview, what: str) -> memoryview:
    """The bytes of a message or of packed numbers; BadFile if the field is a number."""
    if not isinstance(value, memoryview):
        raise BadFile(f"{what} is damaged: a field holds a number where a message is needed")
    return value


def whole(value: int | memoryview, what: str) -> int:
    """An unsigned integer; negative int64 values appear as large ones."""
    if isinstance(value, memoryview):
        raise BadFile(f"{what} is damaged: a field holds bytes where a number is needed")
    return value - (1 << 64) if value >= 1 << 63 else value


def wholes(value: int | memoryview, what: str) -> list[int]:
    """One integer, or several packed ones."""
    if not isinstance(value, memoryview):
        return [whole(value, what)]
    found, at = [], 0
    while at < len(value):
        one, at = varint(value, at, what)
        found.append(whole(one, what))
    return found


def floats(value: int | memoryview, what: str, dtype: str = "<f4") -> Array:
    """Packed floats, or a single one."""
    raw = inside(value, what)
    size = np.dtype(dtype).itemsize
    if len(raw) % size:
        raise BadFile(f"{what} is damaged: {len(raw)} bytes are not a whole number of floats")
    return np.frombuffer(raw, dtype)
