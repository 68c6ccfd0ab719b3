"""The CPU: how neutral ops become its channel-last, packed ones, and what fuses into those."""

from __future__ import annotations

from functools import partial

from intaglio import native
from intaglio.errors import BadInput
from intaglio.rewrite import Rule
from intaglio.targets import Target

LEVELS = {
    "scalar": 0,
    "avx2": 1,
    "avx512": 3,
    "avx512vnni": 7,
    "avx512bf16": 11,
}  # with what each implies


def target(isa: str | int | None = None) -> Target:
    """A CPU with the named instruction set (or ISA bits); None means this machine's."""
    if isinstance(isa, str) and isa not in LEVELS:
        raise BadInput(f"no instruction set is called '{isa}'; known are {', '.join(LEVELS)}")
    bits = native.machine() if isa is None else LEVELS[isa] if isinstance(isa, str) else isa
    return Target("cpu", partial(native.why_not, isa=bits), lower(bits), fuse(bits), bits)


def lower(isa: int) -> tuple[Rule, ...]:
    """Neutral ops to the CPU's own, packed for `isa`."""
    return ()


def fuse(isa: int) -> tuple[Rule, ...]:
    """What the epilogues of the CPU's ops take over."""
    return ()
