"""Programs in the style of the vendor's compiler, with which published speeds were measured."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir import Array
from intaglio.npu.own.isa import QUEUES, Program
from intaglio.targets.chip import Chip

# whether the vendor's compiler fuses layers into groups, by chip family
GROUPS_LAYERS = {"rknpu": False, "kpu": True, "sophgo": True}


def as_used(chip: Chip) -> Chip:
    """The chip as its vendor's runtime uses it: Rockchip's does not use shared SRAM."""
    return chip if GROUPS_LAYERS[chip.family] else replace(chip, shared=0)


def serial(code: Array) -> Array:
    """The program with each layer starting when the one before it has ended, like driver tasks.

    Programs for several cores have barriers already and stay unchanged.
    """
    result = Program.decode(code)
    if result.cores > 1:
        return code
    done, barrier, now = [0, 0, 0], [0, 0, 0], -1
    for i in result.instructions:
        if i.layer != now:
            now, barrier = i.layer, list(done)
        i.wait = tuple(max(a, b) for a, b in zip(i.wait, barrier, strict=True))  # type: ignore[assignment]
        done[QUEUES.index(i.queue)] += 1
    return result.encode()
