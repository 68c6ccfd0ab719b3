"""The product of two maps in the integers of CV18xx.

(a - a_zero) * (b - b_zero) * factor is the sum of a * b, a * -b_zero, b * -a_zero and a constant.
Each term is multiplied by 31 bits and rounded to 16, of which `shift` are after the point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node
from intaglio.npu.chips.cv18xx.arithmetic import (
    I16,
    MULTIPLIER_BITS,
    halves_away,
    multiplier_and_shift,
    saturated,
)

MAX_BITS = 12  # after the point of a term
LEAST_ZERO, MOST_ZERO = -255, 128  # constants have a byte, signed or not


@dataclass(frozen=True, slots=True)
class Product:
    """Terms are multiplied by multiplier / 2^(31 + product_shift), their sum by 1 / 2^shift."""

    left_zero: int
    right_zero: int
    multiplier: int
    product_shift: int
    offset: int
    shift: int
    is_alone: bool  # one command makes the result: there are no zero points

    def apply(self, a: Array, b: Array, dtype: str, relu: bool) -> Array:
        """The bytes of the product."""
        x, y = a.astype(np.int64), b.astype(np.int64)
        if self.is_alone:
            return saturated(self._term(x * y), dtype, relu)
        total = self._term(x * y)
        if self.right_zero:
            total = total + self._term(x * -self.right_zero)
        total = total + self.offset
        if self.left_zero:
            total = total + self._term(y * -self.left_zero)
        return saturated((total + (1 << self.shift >> 1)) >> self.shift, dtype, relu)

    def _term(self, v: Array) -> Array:
        wide = (v * self.multiplier + (1 << 30)) >> MULTIPLIER_BITS
        return halves_away(wide, self.product_shift)


def of_product(node: Node) -> Product:
    """The numbers of an npu.eltwise that multiplies; BadInput if its factor is out of range."""
    a, factor = node.attrs, node.attrs["a_factor"]
    x, y = node.inputs[:2]
    assert x is not None
    assert y is not None
    left, right, zero = a["a_zero"], a["b_zero"], a["y_zero"]
    if not 0 < factor < 1:
        raise BadInput(f"a product has the factor {factor:g}; factors are between 0 and 1")
    for z in (left, right):
        if not LEAST_ZERO <= z <= MOST_ZERO:
            raise BadInput(f"a zero point is {z}; it is at least {LEAST_ZERO}, at most {MOST_ZERO}")
    if not (left or right or zero) and "i8" in (x.dtype, y.dtype):
        multiplier, shift = _numbers(factor)
        return Product(0, 0, multiplier, shift, 0, 0, True)
    for bits in range(MAX_BITS, -1, -1):
        scale = factor * 2.0**bits
        if scale >= 1:
            continue
        offset = round(left * right * scale) + (zero << bits)
        if _fits(scale, offset, left, right, x.dtype, y.dtype):
            return Product(left, right, *_numbers(scale), offset, bits, False)
    raise BadInput(f"a product has the factor {factor:g}; sums of its terms do not fit 16 bits")


def _numbers(scale: float) -> tuple[int, int]:
    multiplier, shift = multiplier_and_shift(np.array(scale))
    return int(multiplier), int(shift)


def _fits(scale: float, offset: int, left: int, right: int, a_type: str, b_type: str) -> bool:
    """Whether all sums on the way to a product have 16 bits."""
    ends = []
    for x in dtypes.limits(a_type):
        for y in dtypes.limits(b_type):
            terms = x * y * scale, x * -right * scale, y * -left * scale
            ends += [terms[0], terms[1], terms[0] + terms[1], terms[2], terms[2] + offset]
            ends.append(sum(terms) + offset)
    room = 4  # roundings of the terms
    return I16[0] + room <= min(ends) and max(ends) <= I16[1] - room
