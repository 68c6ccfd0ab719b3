"""Canonical forms: one way to say each thing, and nothing that changes nothing. All exact."""

from __future__ import annotations

from intaglio.passes.canonical.arithmetic import NUMBERS
from intaglio.passes.canonical.data_movement import SHAPES
from intaglio.passes.canonical.identities import NOTHING

CANONICAL = [*NOTHING, *SHAPES, *NUMBERS]
