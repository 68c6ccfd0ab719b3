"""Triton's classification extension: an output's best classes, as strings `score:class:label`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intaglio.ir import Array
from intaglio.serve.refusals import bad_request

PARAMETER = "classification"  # of a requested output: how many classes
DATATYPE = "BYTES"
MAX_LABELS = 1 << 20


def classes_wanted(name: str, parameters: Mapping[str, Any]) -> int:
    """How many classes a request asks of an output; 0: it asks for the tensor."""
    given = parameters.get(PARAMETER, 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 31:
        raise bad_request(
            f"output '{name[:64]}' has {PARAMETER} {str(given)[:20]!r}; give a number of classes"
        )
    return given


def best_classes(
    a: Array, count: int, batched: bool, labels: Sequence[str]
) -> tuple[list[int], list[bytes]]:
    """Shape and strings of the best classes: of each row, or of all numbers without a batch.

    Equal scores stay in order; NaN comes last.
    """
    rows = a.reshape(a.shape[0] if batched and a.ndim else 1, -1)
    count = min(count, rows.shape[1])
    words: list[bytes] = []
    for row in rows:
        ranked = np.where(np.isnan(row), -np.inf, row) if row.dtype.kind not in "iub" else row
        order = len(row) - 1 - np.argsort(ranked[::-1], kind="stable")[::-1][:count]
        words += [_described(row[i], int(i), labels) for i in order]
    return [len(rows), count] if batched else [count], words


def _described(score: Any, i: int, labels: Sequence[str]) -> bytes:
    number = str(int(score)) if score.dtype.kind in "iub" else f"{float(score):f}"
    return (f"{number}:{i}:{labels[i]}" if i < len(labels) else f"{number}:{i}").encode()


def as_bytes(words: Sequence[bytes]) -> bytes:
    """Strings of a binary tensor: each after its length."""
    return b"".join(part for w in words for part in (len(w).to_bytes(4, "little"), w))


def class_numbers(words: Sequence[str | bytes]) -> Array:
    """The classes that the strings name; ValueError if they name none."""
    separator = ":"
    text = [w.decode() if isinstance(w, bytes) else w for w in words]
    return np.array([int(w.split(separator, 2)[1]) for w in text], np.int64)


def strings_of(raw: bytes) -> list[bytes]:
    """The strings of a binary tensor; ValueError if it is cut off."""
    found, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "little")
        at += 4 + size
        if at > len(raw):
            raise ValueError("a string is cut off")
        found.append(raw[at - size : at])
    return found
