"""The chips of Sophgo's tools: which target of Intaglio each is, and the file that it takes."""

from __future__ import annotations

from intaglio import targets
from intaglio.errors import BadInput, did_you_mean
from intaglio.targets.chip import Chip

# By the vendor's name. None: known to the vendor's tool, but not to Intaglio. Files are written for
# those whose target names a kind of file; for all others there are packages.
CHIPS: dict[str, str | None] = {
    "bm1684x": "bm1684x",
    "bm1688": "bm1688",
    "bm1690": "sg2260",
    "sg2260": "sg2260",
    "cv181x": "cv181x",
    "cv180x": "cv180x",
    "bm1684": "bm1684",
    "bm1684x2": None,
    "bm1690e": None,
    "cv182x": None,
    "cv183x": None,
    "cv184x": None,
    "cv186x": "cv186x",
    "sg2262": None,
    "sg2380": None,
    "sgtpuv8": None,
    "cpu": None,
}
NEAREST = {
    "cv182x": "cv181x",
    "cv183x": "cv181x",
    "cv184x": "cv181x",
    "bm1684": "bm1684x",
    "bm1684x2": "bm1684x",
    "bm1690e": "bm1690",
    "cv186x": "bm1688",
}


def chip_of(name: str) -> Chip:
    """The chip of this name; BadInput if Intaglio does not know it."""
    lower = name.lower()
    known = [n for n, target in CHIPS.items() if target]
    if lower not in CHIPS:
        hint = did_you_mean(lower, CHIPS)
        raise BadInput(f"--chip is '{name}'; known are {', '.join(known)}{hint}")
    target = CHIPS[lower]
    if target is None:
        near = NEAREST.get(lower)
        use = f"use --chip {near}" if near else f"use one of {', '.join(known)}"
        raise BadInput(f"--chip is '{name}', for which nothing can be compiled; {use}")
    chip = targets.find(target).chip
    assert chip is not None
    return chip


def refuse_file(chip: Chip, name: str, remedy: str) -> None:
    """BadInput if no files are written for a chip, whose name the user gave."""
    if chip.file:
        return
    near = NEAREST.get(name.lower())
    use = f"use --chip {near}, or {remedy}" if near else remedy
    raise BadInput(f"--chip is '{name}', for which no chip files are written; {use}")


def ending_of(chip: Chip) -> str:
    """The ending of a chip's files: .bmodel or .cvimodel."""
    return f".{chip.file}"
