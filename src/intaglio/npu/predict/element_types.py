"""Predict other element types with int8 programs: scale the chip instead of the program.

A chip that computes in 2-byte elements is modelled as a chip of 1-byte elements with half the
memory and half the bandwidth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.npu.predict.cycles import constants
from intaglio.targets.chip import Chip, Unit

NAMES = {"int4": "i4", "int8": "i8", "int16": "i16", "fp16": "f16", "bf16": "bf16", "fp32": "f32"}


def dtype_of(name: str) -> str:
    """The internal name (i8, f16) of an element type that users call int8, fp16 and so on."""
    if NAMES.get(name, name) not in NAMES.values():
        raise BadInput(f"element type is '{name}'; it is one of {', '.join(NAMES)}")
    return NAMES.get(name, name)


def size_of(dtype: str) -> float:
    """The size of an element in bytes."""
    return dtypes.TABLE[dtype].bits / 8


def as_bytes(chip: Chip, dtype: str) -> Chip:
    """The chip scaled to elements of `dtype`; BadInput if it does not multiply them."""
    if dtype == "i8":
        return chip
    conv = chip.units["conv"]
    if dtype not in conv.rate:
        raise BadInput(f"{chip.name} does not multiply {dtype}; it has {', '.join(chip.types)}")
    size = size_of(dtype)
    timing = constants(chip)
    timing |= {
        "use.i8": timing.get(f"use.{dtype}", 1.0),
        "apart.i8": timing.get(f"apart.{dtype}", timing["apart"]),
        "port": timing["port"] / size,
        "images": 1,
        "element": size,
    }
    return replace(
        chip,
        sram=int(chip.sram / size),
        shared=int(chip.shared / size),
        align=max(int(chip.align / size), 1),
        ddr=chip.ddr / size,
        burst=max(int(chip.burst / size), 1),
        c2=dict.fromkeys(("i8", "u8"), chip.c2[dtype]),
        units={name: _unit(u, dtype, size) for name, u in chip.units.items()},
        timing=timing,
    )


def _unit(u: Unit, dtype: str, size: float) -> Unit:
    rate = u.rate.get(dtype, u.rate.get("i8", 1.0) / size)
    atoms: dict[str, Any]
    atoms = {
        k: dict.fromkeys(("i8", "u8"), getattr(u, k)[dtype]) if getattr(u, k) else {}
        for k in ("in_atom", "out_atom")
    }
    # results leave the unit of products in f32 for every type
    wide = {"f32": u.rate["f32"]} if u.name == "eltwise" and "f32" in u.rate else {}
    return replace(u, rate={"i8": rate, "u8": rate, **wide}, **atoms)
