"""The constants of a model as one block of bytes."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

ALIGN = 4  # bytes; the widest element, and what paired loads need


class Blob:
    """Collects constants; equal ones are stored once."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self._known: dict[bytes, int] = {}

    def add(self, data: Array) -> int:
        """The offset of a constant, little-endian."""
        raw = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<")).tobytes()
        if raw not in self._known:
            self.bytes.extend(bytes(-len(self.bytes) % ALIGN))
            self._known[raw] = len(self.bytes)
            self.bytes.extend(raw)
        return self._known[raw]
