"""Chips with a neural processing unit: what its units do, within which limits."""

from __future__ import annotations

from intaglio.targets import Target, cpu
from intaglio.targets.chip import Chip
from intaglio.targets.npu import neutral as neutral  # what an op of theirs is on a CPU
from intaglio.targets.npu.lower import lowering, why_not


def target(chip: Chip, isa: str | int | None = None, precision: str = "f32") -> Target:
    """`chip` with a CPU beside it that runs what its units do not, by default this machine's."""
    rules = lowering(chip)
    host = cpu.target(isa, precision)
    return Target(chip.name, why_not(chip, rules), rules, isa=host.isa, cost=host.cost,
                  precision=precision, chip=chip, host=host)  # fmt: skip
