"""Code motion: hoist slices, activations and constants, and merge parallel layers, to save work."""

from __future__ import annotations

from intaglio.passes.code_motion.hoist_activations import HOIST_ACTIVATIONS, HOIST_CONSTANTS
from intaglio.passes.code_motion.hoist_slices import HOIST_SLICES, HOIST_SLICES_FLOATS
from intaglio.passes.code_motion.merge_parallel import (
    MERGE_PARALLEL,
    MERGE_PARALLEL_FLOATS,
    merge_parallel_products,
)

CODE_MOTION = [*HOIST_ACTIVATIONS, *MERGE_PARALLEL, *HOIST_SLICES]  # exact
CODE_MOTION_FLOATS = [
    *HOIST_CONSTANTS,
    *MERGE_PARALLEL_FLOATS,
    *HOIST_SLICES_FLOATS,
]  # may change the rounding of floats

__all__ = ["CODE_MOTION", "CODE_MOTION_FLOATS", "HOIST_CONSTANTS", "merge_parallel_products"]
