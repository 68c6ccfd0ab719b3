"""Integer arithmetic where a model says it in floats: dequantize, compute, quantize become one op.

The float detour rounds differently on every machine; the integer op has one exact result.
"""

from __future__ import annotations

from intaglio.passes.integer.batch_norm import AFFINE
from intaglio.passes.integer.data_movement import MOVES
from intaglio.passes.integer.elementwise import PAIRS
from intaglio.passes.integer.int16 import WORDS
from intaglio.passes.integer.linear import PRODUCTS, SUMS
from intaglio.passes.integer.lookup_tables import TABLES, table_of_floats

INTEGER = [*AFFINE, *MOVES, *TABLES, *PRODUCTS, *PAIRS]
TO_FLOATS = [*SUMS, table_of_floats]
ROUNDING = [*PRODUCTS, *PAIRS, *SUMS]  # they round otherwise than floats do

__all__ = ["INTEGER", "ROUNDING", "TO_FLOATS", "WORDS"]
