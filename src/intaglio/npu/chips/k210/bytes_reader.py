"""Reads numbers from the bytes of a file; every offset and size is checked."""

from __future__ import annotations

import struct
from typing import Any

from intaglio.errors import BadFile


class Bytes:
    """The bytes of a file or of one of its sections."""

    def __init__(self, data: bytes):
        self.data = data

    def need(self, at: int, size: int, what: str) -> None:
        """BadFile unless `size` bytes lie at `at`."""
        if at + size > len(self.data):
            raise BadFile(
                f"kmodel: {what} lies at bytes {at} to {at + size}; there are {len(self.data)}"
            )

    def part(self, at: int, size: int, what: str) -> bytes:
        """Some bytes."""
        self.need(at, size, what)
        return self.data[at : at + size]

    def numbers(self, form: str, at: int) -> tuple[Any, ...]:
        """Numbers by a format of `struct`, little-endian."""
        form = "<" + form
        self.need(at, struct.calcsize(form), "a record")
        return struct.unpack_from(form, self.data, at)
