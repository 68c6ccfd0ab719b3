"""Layers that compute in f16: which of them meet numbers that f16 does not hold, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Node, Value
from intaglio.quant.placement.place import Placement, layer
from intaglio.quant.ranges.observe import F16_MOST, Observation
from intaglio.targets import Target


def too_large(placement: Placement, seen: Mapping[Value, Observation]) -> dict[Node, str]:
    """Layers that are to compute in f16 and cannot, with what is too large for it."""
    found: dict[Node, str] = {}
    for n, precision in placement.halves.items():
        for v in (n.inputs[0], n.inputs[1], n.outputs[0]) if precision == "f16" else ():
            if v is not None and v.data is None and v in seen and seen[v].overflows:
                found.setdefault(n, seen[v].notes()[-1])
            elif v is not None and v.data is not None and np.abs(v.data).max() > F16_MOST:
                most = np.abs(v.data).max()
                found.setdefault(n, f"its weights '{v.name}' reach {most:g}: more than f16 holds")
    return found


def refuse_large(placement: Placement, seen: Mapping[Value, Observation]) -> None:
    """BadInput where a user wants f16 for what it does not hold."""
    for n, words in too_large(placement, seen).items():
        raise BadInput(
            f"layer '{layer(n)}' is to compute in f16: {words}; "
            f"use {instead_of_f16(placement.chip)} for it"
        )


def instead_of_f16(chip: Target) -> str:
    """What the target computes in that has the range of f32, or else the most bits."""
    names = [p.name for p in chip.precisions]
    return next((p for p in ("bf16", "f32", "int16") if p in names), chip.usual.name)
