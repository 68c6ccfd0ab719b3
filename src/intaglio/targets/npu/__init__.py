"""Chips with a neural processing unit: what its units do, within which limits."""

from __future__ import annotations

from intaglio.targets.npu import neutral as neutral  # what an op of theirs is on a CPU
