"""Canonical forms: one way to say each thing, and nothing that changes nothing. All exact."""

from __future__ import annotations

from intaglio.passes.canonical.nothing import NOTHING
from intaglio.passes.canonical.numbers import NUMBERS
from intaglio.passes.canonical.shapes import SHAPES

CANONICAL = [*NOTHING, *SHAPES, *NUMBERS]
