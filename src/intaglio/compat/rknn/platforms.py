"""The chips that RKNN-Toolkit2 names, and their cores."""

from __future__ import annotations

from intaglio.errors import BadInput, did_you_mean
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip

PLATFORMS = (
    "rk3566",
    "rk3568",
    "rk3588",
    "rv1103",
    "rv1106",
    "rk3562",
    "rk3576",
    "rv1103b",
    "rv1106b",
    "rk2118",
    "rv1126b",
)
ALIASES = {"rk3588s": "rk3588"}
OLD = ("rk1808", "rk3399pro", "rv1109", "rv1126")  # chips of RKNN-Toolkit 1


def platform(name: object, argument: str = "target_platform") -> str:
    """The chip that the user means; BadInput lists the chips."""
    known = ", ".join(PLATFORMS)
    if name is None:
        raise BadInput(f"{argument} is not given; it is one of {known}")
    if not isinstance(name, str):
        raise BadInput(f"{argument} is {name!r}; give a name, one of {known}")
    lower = name.lower()
    lower = ALIASES.get(lower, lower)
    if lower in PLATFORMS:
        return lower
    if lower in OLD:
        raise BadInput(f"{argument} is '{name}', a chip of RKNN-Toolkit 1; known are {known}")
    raise BadInput(f"{argument} is '{name}'; known are {known}{did_you_mean(name, PLATFORMS)}")


def chip_of(name: str) -> Chip:
    return chips.load(name)


def cores_of(core_mask: object, name: str) -> int:
    """How many cores a mask of `init_runtime` means; BadInput if the chip lacks one of them."""
    if isinstance(core_mask, bool) or not isinstance(core_mask, int) or core_mask < 0:
        raise BadInput(
            f"core_mask is {core_mask!r}; give a constant of the class, such as RKNN.NPU_CORE_0_1"
        )
    has = chip_of(name).cores
    if core_mask == 0xFFFF:  # NPU_CORE_ALL
        return has
    if core_mask >> has:
        raise BadInput(
            f"core_mask is {core_mask}, but {name} has {has} NPU core{'s' * (has > 1)}; "
            "use RKNN.NPU_CORE_AUTO or RKNN.NPU_CORE_ALL"
        )
    return max(core_mask.bit_count(), 1)
