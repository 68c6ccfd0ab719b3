"""Weights of which most are zero, with only the others stored: the forms that chips read.

A form keeps `many` of every `of` weights that follow each other along the inputs or the outputs of
an atom: their values, line by line, then the place of each in its group, `bits` bits each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array


@dataclass(frozen=True, slots=True)
class Form:
    """How many of how many weights are stored, along which axis of an atom."""

    name: str  # as chips call it
    many: int
    of: int
    bits: int  # of a place
    outputs: bool = False  # groups are of outputs, else of inputs

    def fits(self, outs: int, ins: int) -> bool:
        """Has an atom of that many outputs and inputs whole groups, and whole bytes of places?"""
        return (outs if self.outputs else ins) % self.of == 0 and outs * ins % 8 == 0

    def bytes(self, outs: int, ins: int) -> int:
        """Of one atom: values, then places."""
        values = outs * ins * self.many // self.of
        return values + values * self.bits // 8


FORMS = {1: Form("2:4 in", 2, 4, 2), 2: Form("2:4 out", 2, 4, 2, True), 3: Form("4:16", 4, 16, 4)}


def compress(atoms: Array, form: int) -> Array | None:
    """Atoms [n, outputs, inputs] of i8 as bytes [n, size]; None where more is not zero."""
    f = FORMS[form]
    n, outs, ins = atoms.shape
    if not f.fits(outs, ins):
        return None
    lines = (atoms.swapaxes(1, 2) if f.outputs else atoms).reshape(n, -1, f.of)
    if (np.count_nonzero(lines, -1) > f.many).any():
        return None
    order = np.argsort(lines == 0, axis=-1, kind="stable")[..., : f.many]  # those that are not 0
    places = np.sort(order, axis=-1)
    values = np.take_along_axis(lines, places, -1).reshape(n, -1)
    step = 8 // f.bits
    shifts = f.bits * np.arange(step)
    packed = (places.reshape(n, -1, step) << shifts).sum(-1).astype(np.uint8)
    return np.concatenate([values.view(np.uint8), packed], 1)


def expand(raw: Array, outs: int, ins: int, form: int) -> Array:
    """The atoms [n, outputs, inputs] of such bytes; of equal places the last wins."""
    f = FORMS[form]
    data = raw.view(np.uint8).reshape(-1, f.bytes(outs, ins))
    count = outs * ins * f.many // f.of
    values = data[:, :count].view(np.int8).reshape(len(data), -1, f.many)
    shifts = f.bits * np.arange(8 // f.bits)
    places = (data[:, count:, None] >> shifts & (1 << f.bits) - 1).reshape(values.shape)
    lines = np.zeros((*values.shape[:2], f.of), np.int8)
    for k in range(f.many):
        np.put_along_axis(
            lines, places[..., k : k + 1].astype(np.int64), values[..., k : k + 1], -1
        )
    if f.outputs:
        return lines.reshape(len(data), ins, outs).swapaxes(1, 2)
    return lines.reshape(len(data), outs, ins)
