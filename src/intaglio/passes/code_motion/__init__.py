"""Work in another place or order, so that there is less of it, or it meets what can take it in."""

from __future__ import annotations

from intaglio.passes.code_motion.hoist_activations import MEET, MEET_FLOATS
from intaglio.passes.code_motion.hoist_slices import TAKE, TAKE_FLOATS
from intaglio.passes.code_motion.merge_parallel import MERGE, MERGE_FLOATS, parallel_products

MOVE = [*MEET, *MERGE, *TAKE]  # exact
MOVE_FLOATS = [*MEET_FLOATS, *MERGE_FLOATS, *TAKE_FLOATS]  # other kernels may round otherwise

__all__ = ["MEET_FLOATS", "MOVE", "MOVE_FLOATS", "parallel_products"]
