"""Equal constants, kept once: those of one package, and those of several plans."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from intaglio.ir import Array
from intaglio.plan import Plan

HASHED_BYTES = 1024  # at both ends of an array, compared before the whole arrays are
T = TypeVar("T")


def bytes_of(data: Array) -> Array:
    """The bytes of an array in C order."""
    raw: Array = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return raw


class ByContent(Generic[T]):
    """A table from the bytes of arrays to values."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes, bytes], list[tuple[Array, T]]] = {}

    def get(self, raw: Array) -> T | None:
        """The value of equal bytes; None if there are none."""
        for other, value in self._rows.get(_ends(raw), ()):
            if other.ctypes.data == raw.ctypes.data or np.array_equal(other, raw):
                return value
        return None

    def add(self, raw: Array, value: T) -> None:
        """Keep a value for these bytes, which must not change."""
        self._rows.setdefault(_ends(raw), []).append((raw, value))

    def remove(self, raw: Array, value: T) -> None:
        """Forget what was added."""
        key = _ends(raw)
        left = [row for row in self._rows.pop(key) if row[1] is not value]
        if left:
            self._rows[key] = left

    def find(self, raw: Array, otherwise: T) -> T:
        """The value of equal bytes; if there are none, `otherwise`, which is kept for these."""
        value = self.get(raw)
        if value is None:
            self.add(raw, otherwise)
        return otherwise if value is None else value


def _ends(raw: Array) -> tuple[int, bytes, bytes]:
    return len(raw), raw[:HASHED_BYTES].tobytes(), raw[-HASHED_BYTES:].tobytes()


class ConstantPool:
    """The constants of plans that are compiled one after the other."""

    def __init__(self) -> None:
        self._known: ByContent[Array] = ByContent()

    def share(self, plan: Plan) -> None:
        """Let the plan use the bytes of equal constants of earlier plans."""
        for t in plan.tensors():
            if t.fixed and t.data is not None:
                raw = bytes_of(t.data)
                same = self._known.find(raw, raw)
                t.data = same.view(t.data.dtype).reshape(t.data.shape)
