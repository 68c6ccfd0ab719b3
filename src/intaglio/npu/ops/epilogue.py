"""The last stage of an NPU op: from the real-valued result t to the output's element type.

Integers: `clamp(rint(t) + y_zero, low, high)`. A `table` then maps this number v to
`table[clamp(v - base, 0, entries - 1)]`. Floats: `clamp(t, least, most)`, rounded to f16; their
`table` is piecewise linear (f16_arithmetic.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Value
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.ops.feature_maps import FEATURES, INTEGER_FEATURES, check_zero_point
from intaglio.ops.quantized import MAX_ENTRIES


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Clamp, round, add the zero point, look up in a table."""

    dtype: str
    y_zero: int = 0
    low: int = 0
    high: int = 0
    base: int = 0
    least: float = -math.inf
    most: float = math.inf

    def check(self, source: str, table: Value | None = None) -> None:
        """BadInput unless this makes `dtype` from the result of an op on `source` elements."""
        if self.dtype in (*f16_arithmetic.TYPES, "f32"):
            self._check_floats(source, table)
            return
        if self.dtype not in INTEGER_FEATURES:
            raise BadInput(f"the result is {self.dtype}; it is one of {', '.join(FEATURES)}")
        if table is not None and source in f16_arithmetic.TYPES:
            raise BadInput(f"a table makes {self.dtype} from {source}; it makes {source}")
        before_table = self.dtype if table is None else "i16"
        check_zero_point(self.y_zero, before_table, "y_zero")
        first, last = dtypes.limits(before_table)
        if not first <= self.low <= self.high <= last:
            raise BadInput(
                f"bounds are {self.low} and {self.high}; "
                f"they are ordered and lie between {first} and {last}"
            )
        if table is not None:
            check_table(table, (self.dtype,), self.base)

    def _check_floats(self, source: str, table: Value | None) -> None:
        if not self.least <= self.most:
            raise BadInput(f"bounds {self.least} and {self.most} are not in order")
        if table is not None and (source not in f16_arithmetic.TYPES or self.dtype != source):
            raise BadInput(f"a result of {self.dtype} from {source} has no table")
        if table is not None:
            check_f16_table(table)

    def apply(self, real: Array, table: Array | None = None) -> Array:
        """The output of real-valued results."""
        if self.dtype in (*f16_arithmetic.TYPES, "f32"):
            return f16_arithmetic.epilogue(real, self.dtype, self.least, self.most, table)
        real = np.where(np.isnan(real), np.float32(self.low) - np.float32(self.y_zero), real)
        whole = np.clip(np.rint(real) + np.float32(self.y_zero), self.low, self.high)
        if table is None:
            return whole.astype(dtypes.numpy_of(self.dtype))
        return table[np.clip(whole.astype(np.int32) - self.base, 0, len(table) - 1)]


def check_table(table: Value, dtypes_allowed: tuple[str, ...], base: int) -> None:
    """BadInput unless `table` is a lookup table of integers whose first entry is number `base`."""
    fits = table.type.rank == 1 and 1 <= table.type.size <= MAX_ENTRIES
    if not fits or table.dtype not in dtypes_allowed:
        raise BadInput(
            f"the table is {table.type}; one row of at most {MAX_ENTRIES} "
            f"{' or '.join(dtypes_allowed)} is needed"
        )
    check_zero_point(base, "i16", "base, the number of the table's first entry,")


def check_f16_table(table: Value) -> None:
    """BadInput unless `table` is a piecewise-linear table of f16."""
    if table.type != f16_arithmetic.TABLE:
        raise BadInput(f"the table is {table.type}; {f16_arithmetic.TABLE} is needed")
