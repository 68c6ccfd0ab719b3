"""What a chip can do, as data: the pipeline asks the target, and never which chip it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio.errors import BadInput
from intaglio.ir import Node
from intaglio.rewrite import Rule
from intaglio.targets.cost import USUAL, Cost


@dataclass(frozen=True)
class Target:
    """A chip: how neutral ops become its own, how those fuse, and which nodes it can run."""

    name: str
    why_not: Callable[[Node], str | None]  # None: it runs this node as it is; else the reason
    lower: tuple[Rule, ...] = ()  # neutral ops to the target's own
    fuse: tuple[Rule, ...] = ()  # the target's ops with what follows them
    chain: tuple[Rule, ...] = ()  # what is left between those, in one go
    isa: int = 0  # a CPU's instruction sets, as bits
    cost: Cost = USUAL  # by which rules that compete are weighed
    choose: tuple[Rule, ...] = ()  # neutral ops to its own that round differently, but are faster
    narrow: tuple[Rule, ...] = ()  # its ops to those of a smaller type, where the user asked for it
    precision: str = "f32"  # what `narrow` makes
    near: int = 0  # bytes of a layer's images that its caches keep; 0: batches are never cut
    replace: tuple[Rule, ...] = ()  # what it would rather run, from intaglio.targets.replace


NAMES = ("cpu",)


PRECISIONS = ("f32", "bf16", "f16")
ALIASES = {"fp32": "f32", "fp16": "f16"}  # what else people call them


def find(name: str, isa: str | int | None = None, precision: str = "f32") -> Target:
    """The target called `name`; `isa` is for CPUs, None means this machine's."""
    if name not in NAMES:
        raise BadInput(f"no target is called '{name}'; known are {', '.join(NAMES)}")
    precision = ALIASES.get(precision, precision)
    if precision not in PRECISIONS:
        raise BadInput(f"precision is '{precision}'; known are {', '.join(PRECISIONS)}")
    from intaglio.targets import cpu

    return cpu.target(isa, precision)
