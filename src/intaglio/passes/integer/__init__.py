"""Integer arithmetic for quantised graphs: dequantize, compute, quantize become one integer op.

The float form rounds differently on every machine; the integer op has one exact result.
"""

from __future__ import annotations

from intaglio.passes.integer.batch_norm import AFFINE
from intaglio.passes.integer.data_movement import MOVES
from intaglio.passes.integer.elementwise import PAIRS
from intaglio.passes.integer.int16 import INT16
from intaglio.passes.integer.linear import PRODUCTS, SUMS
from intaglio.passes.integer.lookup_tables import TABLES, float_lookup_table

INTEGER = [*AFFINE, *MOVES, *TABLES, *PRODUCTS, *PAIRS]
TO_FLOATS = [*SUMS, float_lookup_table]
ROUNDING = [*PRODUCTS, *PAIRS, *SUMS]  # their rounding differs from the float form

__all__ = ["INT16", "INTEGER", "ROUNDING", "TO_FLOATS"]
