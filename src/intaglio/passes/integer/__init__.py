"""Integer arithmetic where a model says it in floats: dequantize, compute, quantize become one op.

The float detour rounds differently on every machine; the integer op has one exact result.
"""

from __future__ import annotations

from intaglio.passes.integer.affine import AFFINE
from intaglio.passes.integer.elementwise import PAIRS
from intaglio.passes.integer.moves import MOVES
from intaglio.passes.integer.products import PRODUCTS, SUMS
from intaglio.passes.integer.tables import TABLES, table_of_floats
from intaglio.passes.integer.words import WORDS

INTEGER = [*AFFINE, *MOVES, *TABLES, *PRODUCTS, *PAIRS]
TO_FLOATS = [*SUMS, table_of_floats]
ROUNDING = [*PRODUCTS, *PAIRS, *SUMS]  # they round otherwise than floats do

__all__ = ["INTEGER", "ROUNDING", "TO_FLOATS", "WORDS"]
