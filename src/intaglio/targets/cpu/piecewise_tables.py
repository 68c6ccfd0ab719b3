"""Smooth lookup tables as pieces of straight lines with exactly the same entries.

A table of n entries is split into at most 128 or 256 pieces of 2^shift entries. Entry r of piece b
is `(start[b] + rise[b] · r) >> 7`, in 16 bits. That takes three lookups among 128 bytes, which some
CPUs do with three instructions for 64 values, instead of one lookup among thousands of bytes.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

PIECES = 128, 256  # numbers of pieces to try


def shift_of(entries: int, pieces: int) -> int:
    """log2 of the number of entries of a piece."""
    return max(0, (-(-entries // pieces) - 1).bit_length())


def lines_of(table: Array) -> Array | None:
    """[3, pieces]: rise, low byte and high byte of the start of each piece; None if no
    lines fit.
    """
    return next((result for n in PIECES if (result := _lines(table, n)) is not None), None)


def _lines(table: Array, pieces: int) -> Array | None:
    shift, flip = shift_of(len(table), pieces), 128 if table.dtype == np.int8 else 0
    wide = np.zeros(pieces << shift, np.int64)
    wide[: len(table)] = table.astype(np.int64) + flip
    there = (np.arange(wide.size) < len(table)).reshape(pieces, 1, -1)
    low = wide.reshape(pieces, 1, -1) * 128
    slope = np.arange(-128, 128)[:, None] * np.arange(1 << shift)
    least = np.where(there, low - slope, 0).max(axis=-1, initial=0, where=there)
    most = np.where(there, low + 127 - slope, 32767).min(axis=-1, initial=32767, where=there)
    slack = most - least  # [pieces, slopes]: the range of valid starts
    best = slack.argmax(axis=1)
    if (np.take_along_axis(slack, best[:, None], 1) < 0).any():
        return None
    start = np.take_along_axis(least, best[:, None], 1)[:, 0]
    rows = [(best - 128) & 255, start & 255, start >> 8]
    return np.stack(rows).astype(np.uint8).view(table.dtype)


def table_of(lines: Array, entries: int) -> Array:
    """The table that `lines_of` was given."""
    shift, bytes_ = shift_of(entries, lines.shape[1]), lines.view(np.uint8).astype(np.int64)
    rise = lines[0].view(np.int8).astype(np.int64)
    at = np.arange(entries)
    piece, r = at >> shift, at & ((1 << shift) - 1)
    result = ((bytes_[1] + 256 * bytes_[2])[piece] + rise[piece] * r & 65535) >> 7
    flip = 128 if lines.dtype == np.int8 else 0
    return np.asarray((result & 255 ^ flip).astype(np.uint8).view(lines.dtype))
