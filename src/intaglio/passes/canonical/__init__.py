"""Canonical forms: remove identity operations and write each computation one way. All exact."""

from __future__ import annotations

from intaglio.passes.canonical.arithmetic import ARITHMETIC
from intaglio.passes.canonical.data_movement import DATA_MOVEMENT
from intaglio.passes.canonical.identities import IDENTITIES

CANONICAL = [*IDENTITIES, *DATA_MOVEMENT, *ARITHMETIC]
