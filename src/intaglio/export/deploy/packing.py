"""Orders of weights that the forms of the kernels multiply fastest."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

FORMS = ("plain", "dsp", "helium", "neon")
DSP_ORDER = (0, 2, 1, 3)  # SXTB16 makes the pairs 0 1 and 2 3 of four bytes in this order
COLUMN_BYTES = {"plain": 1, "dsp": 2, "helium": 1, "neon": 1}
COLUMN_UNIT = {"plain": 1, "dsp": 4, "helium": 1, "neon": 4}
COLUMNS = {"plain": 2, "dsp": 2, "helium": 1, "neon": 4}  # windows that are unfolded at a time


def pack_rows(rows: Array, form: str) -> Array:
    """Weights [outputs, products] in the order of a form, as a flat array."""
    if form == "dsp":
        return _interleaved_pairs(rows)
    if form == "helium":
        return _interleaved_fours(rows)
    if form == "neon":
        return _interleaved_eights(rows)
    return rows.reshape(-1)


def pack_dense(rows: Array) -> Array:
    """Weights [outputs, products] of a fully connected layer in the form DSP."""
    m, k = rows.shape
    padded = np.zeros((m, -(-k // 4) * 4), rows.dtype)
    padded[:, :k] = rows
    fours = padded[: m // 4 * 4].reshape(m // 4, 4, -(-k // 4), 4).transpose(0, 2, 1, 3)
    return np.concatenate([fours.reshape(-1), padded[m // 4 * 4 :].reshape(-1)])


def unfolded_bytes(k: int, windows: int, form: str) -> int:
    """Bytes of the windows of `k` products that are unfolded at a time."""
    unit = COLUMN_UNIT[form]
    return min(COLUMNS[form], windows) * (-(-k // unit) * unit) * COLUMN_BYTES[form]


def _interleaved_pairs(rows: Array) -> Array:
    m, k = rows.shape
    fours = -(-k // 4)
    padded = np.zeros((m, fours * 4), rows.dtype)
    padded[:, :k] = rows
    ordered = padded.reshape(m, fours, 4)[:, :, DSP_ORDER]
    pairs = ordered[: m // 2 * 2].reshape(m // 2, 2, fours, 4).transpose(0, 2, 1, 3)
    return np.concatenate([pairs.reshape(-1), ordered[m // 2 * 2 :].reshape(-1)])


def _interleaved_eights(rows: Array) -> Array:
    m, k = rows.shape
    fours, whole = -(-k // 4), m // 8 * 8
    padded = np.zeros((m, fours * 4), rows.dtype)
    padded[:, :k] = rows
    eights = padded[:whole].reshape(m // 8, 8, fours, 4).transpose(0, 2, 1, 3)
    return np.concatenate([eights.reshape(-1), padded[whole:].reshape(-1)])


def _interleaved_fours(rows: Array) -> Array:
    m, k = rows.shape
    parts, whole = [], k // 16 * 16
    for block in (rows[i : i + 4] for i in range(0, m // 4 * 4, 4)):
        parts.append(block[:, :whole].reshape(4, k // 16, 16).transpose(1, 0, 2).reshape(-1))
        parts.append(block[:, whole:].reshape(-1))
    return np.concatenate([*parts, rows[m // 4 * 4 :].reshape(-1)])
