"""Structured sparsity: only non-zero weights are stored, in the forms that chips read.

A form keeps `many` of every `of` consecutive weights along the inputs or the outputs of an atom. It
stores their values, line by line, then the position of each in its group, in `bits` bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array


@dataclass(frozen=True, slots=True)
class Form:
    """A form of structured sparsity: `many` of `of` weights along one axis of an atom."""

    name: str  # as chip files call it
    many: int
    of: int
    bits: int  # of a position
    outputs: bool = False  # groups run along outputs; else along inputs

    def fits(self, outs: int, ins: int) -> bool:
        """Does an atom of this size have whole groups, and whole bytes of positions?"""
        return (outs if self.outputs else ins) % self.of == 0 and outs * ins % 8 == 0

    def bytes(self, outs: int, ins: int) -> int:
        """Bytes of one atom: values, then positions."""
        values = outs * ins * self.many // self.of
        return values + values * self.bits // 8


FORMS = {1: Form("2:4 in", 2, 4, 2), 2: Form("2:4 out", 2, 4, 2, True), 3: Form("4:16", 4, 16, 4)}


def compress(atoms: Array, form: int) -> Array | None:
    """Atoms [n, outputs, inputs] of i8 as bytes [n, size]; None if a group has more non-zeros."""
    f = FORMS[form]
    n, outs, ins = atoms.shape
    if not f.fits(outs, ins):
        return None
    lines = (atoms.swapaxes(1, 2) if f.outputs else atoms).reshape(n, -1, f.of)
    if (np.count_nonzero(lines, -1) > f.many).any():
        return None
    order = np.argsort(lines == 0, axis=-1, kind="stable")[..., : f.many]  # non-zeros first
    positions = np.sort(order, axis=-1)
    values = np.take_along_axis(lines, positions, -1).reshape(n, -1)
    step = 8 // f.bits
    shifts = f.bits * np.arange(step)
    packed = (positions.reshape(n, -1, step) << shifts).sum(-1).astype(np.uint8)
    return np.concatenate([values.view(np.uint8), packed], 1)


def expand(raw: Array, outs: int, ins: int, form: int) -> Array:
    """The atoms [n, outputs, inputs] of such bytes; of equal positions the last one counts."""
    f = FORMS[form]
    data = raw.view(np.uint8).reshape(-1, f.bytes(outs, ins))
    count = outs * ins * f.many // f.of
    values = data[:, :count].view(np.int8).reshape(len(data), -1, f.many)
    shifts = f.bits * np.arange(8 // f.bits)
    positions = (data[:, count:, None] >> shifts & (1 << f.bits) - 1).reshape(values.shape)
    lines = np.zeros((*values.shape[:2], f.of), np.int8)
    for k in range(f.many):
        np.put_along_axis(
            lines, positions[..., k : k + 1].astype(np.int64), values[..., k : k + 1], -1
        )
    if f.outputs:
        return lines.reshape(len(data), ins, outs).swapaxes(1, 2)
    return lines.reshape(len(data), outs, ins)
