"""Structured sparsity: only non-zero weights are stored, in the forms that chips read.

"2:4 in" and "2:4 out" keep two of every four consecutive weights along the inputs or the outputs of
an atom. "16:4" keeps a rectangle of two outputs and two inputs in every block of four outputs and
four inputs, per kernel tap: four of sixteen. The values are stored first, group by group, then the
positions: two bits for each value, or for a block two bits for each of its two rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array

SIDE = 4  # outputs and inputs of a block
HALF = 2  # of them that stay


@dataclass(frozen=True, slots=True)
class Form:
    """A form of structured sparsity: `many` of `of` weights along one axis or of a block."""

    name: str  # as chip files call it
    many: int
    of: int
    outputs: bool = False  # groups run along outputs; else along inputs
    block: bool = False  # groups are blocks of SIDE outputs and SIDE inputs
    bits: int = 2  # of positions, for each value

    def fits(self, outs: int, ins: int) -> bool:
        """Does an atom of this size have whole groups, and whole bytes of positions?"""
        if self.block:
            return outs % SIDE == 0 and ins % SIDE == 0
        return (outs if self.outputs else ins) % self.of == 0 and outs * ins % 8 == 0

    def bytes(self, outs: int, ins: int) -> int:
        """Bytes of one atom: values, then positions."""
        values = outs * ins * self.many // self.of
        return values + values * self.bits // 8


FORMS = {
    1: Form("2:4 in", 2, 4),
    2: Form("2:4 out", 2, 4, outputs=True),
    3: Form("16:4", 4, 16, block=True),
}
BY_NAME = {f.name: f for f in FORMS.values()}


def compress(atoms: Array, form: int) -> Array | None:
    """Atoms [n, outputs, inputs] of i8 as bytes [n, size]; None if a group has more non-zeros."""
    f = FORMS[form]
    n, outs, ins = atoms.shape
    if not f.fits(outs, ins):
        return None
    if f.block:
        return _compress_blocks(atoms)
    lines = (atoms.swapaxes(1, 2) if f.outputs else atoms).reshape(n, -1, f.of)
    if (np.count_nonzero(lines, -1) > f.many).any():
        return None
    positions = _first_of(lines != 0, f.many)
    values = np.take_along_axis(lines, positions, -1).reshape(n, -1)
    step = 8 // f.bits
    shifts = f.bits * np.arange(step)
    packed = (positions.reshape(n, -1, step) << shifts).sum(-1).astype(np.uint8)
    return np.concatenate([values.view(np.uint8), packed], 1)


def _first_of(used: Array, many: int) -> Array:
    """The positions of `many` entries along the last axis, ascending: used ones, then others."""
    order = np.argsort(~used, axis=-1, kind="stable")[..., :many]
    return np.sort(order, axis=-1)


def blocks(matrix: Array) -> Array:
    """[.., outputs, inputs] as [.., output block, input block, 4 outputs, 4 inputs]."""
    *rest, outs, ins = matrix.shape
    split = matrix.reshape(*rest, outs // SIDE, SIDE, ins // SIDE, SIDE)
    return np.moveaxis(split, -3, -2)


def _compress_blocks(atoms: Array) -> Array | None:
    n = len(atoms)
    cut = blocks(atoms).reshape(n, -1, SIDE, SIDE)
    used = cut != 0
    rows, columns = used.any(3), used.any(2)
    if (rows.sum(2) > HALF).any() or (columns.sum(2) > HALF).any():
        return None
    r, c = _first_of(rows, HALF), _first_of(columns, HALF)
    at = r[..., :, None] * SIDE + c[..., None, :]
    values = np.take_along_axis(cut.reshape(n, -1, SIDE**2), at.reshape(n, -1, HALF**2), -1)
    places = (np.concatenate([r, c], -1) << np.array([0, 2, 4, 6])).sum(-1).astype(np.uint8)
    return np.concatenate([values.reshape(n, -1).view(np.uint8), places], 1)


def expand(raw: Array, outs: int, ins: int, form: int) -> Array:
    """The atoms [n, outputs, inputs] of such bytes; of equal positions the last one counts."""
    f = FORMS[form]
    data = raw.view(np.uint8).reshape(-1, f.bytes(outs, ins))
    n, count = len(data), outs * ins * f.many // f.of
    values = data[:, :count].view(np.int8).reshape(n, -1, f.many)
    lines = np.zeros((*values.shape[:2], f.of), np.int8)
    if f.block:
        places = data[:, count:, None] >> np.array([0, 2, 4, 6]) & 3
        at = places[..., :2, None] * SIDE + places[..., None, 2:]
        positions = at.reshape(values.shape)
    else:
        shifts = f.bits * np.arange(8 // f.bits)
        positions = (data[:, count:, None] >> shifts & (1 << f.bits) - 1).reshape(values.shape)
    for k in range(f.many):
        np.put_along_axis(
            lines, positions[..., k : k + 1].astype(np.int64), values[..., k : k + 1], -1
        )
    if f.block:
        cut = lines.reshape(n, outs // SIDE, ins // SIDE, SIDE, SIDE)
        return np.ascontiguousarray(cut.swapaxes(2, 3)).reshape(n, outs, ins)
    if f.outputs:
        return lines.reshape(n, ins, outs).swapaxes(1, 2)
    return lines.reshape(n, outs, ins)


# ---- the best mask -----------------------------------------------------------------------------
_PAIRS = np.array([[i, j] for i in range(SIDE) for j in range(i + 1, SIDE)])


def best_mask(scores: Array, f: Form) -> Array:
    """Which of the weights [outputs, inputs, ..] to keep, so that the sum of scores is greatest.

    Sides that are no multiple of a group keep all their weights.
    """
    taps = scores.reshape(*scores.shape[:2], -1)
    keep = _best_rectangles(taps) if f.block else _best_of_lines(taps, f)
    return keep.reshape(scores.shape)


def _best_of_lines(taps: Array, f: Form) -> Array:
    axis = 0 if f.outputs else 1
    if taps.shape[axis] % f.of:
        return np.ones(taps.shape, bool)
    moved = np.moveaxis(taps, axis, -1)
    groups = moved.reshape(*moved.shape[:-1], -1, f.of)
    order = np.argsort(-groups, axis=-1, kind="stable").argsort(-1)
    return np.moveaxis((order < f.many).reshape(moved.shape), -1, axis)


def _best_rectangles(taps: Array) -> Array:
    outs, ins, many = taps.shape
    if outs % SIDE or ins % SIDE:
        return np.ones(taps.shape, bool)
    cut = blocks(np.moveaxis(taps, 2, 0))  # tap, output block, input block, 4, 4
    rows = cut[..., _PAIRS, :].sum(-2)  # .., pair of rows, 4 columns
    sums = rows[..., _PAIRS].sum(-1)  # .., pair of rows, pair of columns
    best = sums.reshape(*sums.shape[:-2], -1).argmax(-1)
    a, b = _PAIRS[best // len(_PAIRS)], _PAIRS[best % len(_PAIRS)]
    at = np.arange(SIDE)
    in_rows = (a[..., None] == at).any(-2)
    in_columns = (b[..., None] == at).any(-2)
    keep = in_rows[..., :, None] & in_columns[..., None, :]
    return np.moveaxis(np.moveaxis(keep, -2, -3).reshape(many, outs, ins), 0, 2)
