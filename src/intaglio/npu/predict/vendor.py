"""Programs as a vendor's compiler makes them: what published speeds were measured with."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir import Array
from intaglio.npu.own.isa import QUEUES, Program
from intaglio.targets.chip import Chip

TOGETHER = {"rknpu": False, "kpu": True, "sophgo": True}  # groups of layers, or one by one


def as_used(chip: Chip) -> Chip:
    """The chip as its vendor's runtime uses it: Rockchip's leaves shared SRAM alone."""
    return chip if TOGETHER[chip.family] else replace(chip, shared=0)


def apart(code: Array) -> Array:
    """The program with each layer beginning when the one before it has ended, as a driver's tasks.

    Programs for several cores meet at barriers already, and stay as they are.
    """
    made = Program.decode(code)
    if made.cores > 1:
        return code
    done, barrier, now = [0, 0, 0], [0, 0, 0], -1
    for i in made.instructions:
        if i.layer != now:
            now, barrier = i.layer, list(done)
        i.wait = tuple(max(a, b) for a, b in zip(i.wait, barrier, strict=True))  # type: ignore[assignment]
        done[QUEUES.index(i.queue)] += 1
    return made.encode()
