"""Names of CPU instruction sets: a level and its features, as in `avx512-vnni-bf16`.

The bits are those of `enum itg_isa` in csrc/include/intaglio.h; a kernel and a package state which
of them the CPU must have.
"""

from __future__ import annotations

from intaglio.errors import BadInput

BITS = {
    "scalar": 0,
    "avx2": 1,
    "avx512": 2,
    "avx512vnni": 4,
    "avx512bf16": 8,
    "avx512vbmi": 16,
    "neon": 256,
    "dotprod": 512,
    "i8mm": 1024,
    "neonfp16": 2048,
    "neonbf16": 16384,
    "rvv": 4096,
    "rvvfp16": 8192,
    "armv7": 65536,
}
# Level -> its bits with those that it implies, and its features in the same way.
_LEVELS = {
    "armv7": 65536,
    "rvv": 4096,
    "neon": 256,
    "avx512": 3,
    "avx2": 1,
    "scalar": 0,
}  # most capable first
_FEATURES = {
    "avx512": {"vnni": 4, "bf16": 8, "vbmi": 16 | 4},  # kernels for VBMI use VNNI too
    "neon": {"dotprod": 512, "i8mm": 1024 | 512, "fp16": 2048, "bf16": 16384},
    "rvv": {"fp16": 8192},
}
LEVELS = ("scalar", "avx2", "avx512", "neon", "armv7", "rvv")  # that the compiler packs weights for
NAMES = (
    *("scalar", "avx2", "avx512", "avx512-vnni", "avx512-bf16", "avx512-vnni-vbmi"),
    *("neon", "neon-dotprod", "neon-dotprod-i8mm", "neon-fp16", "neon-bf16"),
    *("armv7", "rvv", "rvv-fp16"),
)
WITH_FEATURES = ("avx512", "neon", "rvv")  # levels that have kernels for their features
EXAMPLES = (
    "scalar, avx2, avx512, avx512 with features (avx512-vnni, avx512-vnni-bf16-vbmi), "
    "neon, neon-dotprod, neon-i8mm, neon-fp16, neon-bf16 for 64-bit ARM, armv7 for 32-bit ARM with "
    "NEON, and rvv, rvv-fp16 for RISC-V"
)


def bits_of(name: str) -> int:
    """The bits of an instruction set; `avx512vnni` is an older spelling of `avx512-vnni`."""
    level, *features = name.split("-")
    if level not in LEVELS and not features and level.startswith("avx512"):
        level, features = "avx512", [level.removeprefix("avx512")]
    known = _FEATURES[level] if level in WITH_FEATURES else {}
    if level not in LEVELS or any(f not in known for f in features):
        raise BadInput(f"no instruction set is called '{name}'; known are {EXAMPLES}")
    bits = _LEVELS[level]
    for feature in features:
        bits |= known[feature]
    return bits


def name_of(bits: int) -> str:
    """The level and every feature that these bits hold."""
    for level, needs in _LEVELS.items():
        if needs and bits & needs == needs:
            known = _FEATURES.get(level, {})
            return "-".join([level, *(f for f, b in known.items() if bits & b == b)])
    return next((name for name, bit in reversed(BITS.items()) if bit & bits), "scalar")
