"""Overflow in f16: find the layers whose values f16 cannot hold, and another precision."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Node, Value
from intaglio.quant.placement.place import Placement, layer
from intaglio.quant.ranges.observe import F16_MOST, Observation
from intaglio.targets import Target


def overflowing_layers(placement: Placement, seen: Mapping[Value, Observation]) -> dict[Node, str]:
    """Layers in f16 with an input, weight or output above 65504, and a message for each."""
    found: dict[Node, str] = {}
    for n, precision in placement.half_layers.items():
        for v in (n.inputs[0], n.inputs[1], n.outputs[0]) if precision == "f16" else ():
            if v is not None and v.data is None and v in seen and seen[v].overflows:
                found.setdefault(n, seen[v].notes()[-1])
            elif v is not None and v.data is not None and np.abs(v.data).max() > F16_MOST:
                most = np.abs(v.data).max()
                found.setdefault(n, f"its weights '{v.name}' reach {most:g}: more than f16 holds")
    return found


def refuse_overflow(placement: Placement, seen: Mapping[Value, Observation]) -> None:
    """BadInput if the user asked for f16 in a layer that would overflow."""
    for n, words in overflowing_layers(placement, seen).items():
        raise BadInput(
            f"layer '{layer(n)}' is to compute in f16: {words}; "
            f"use {wider_than_f16(placement.chip)} for it"
        )


def wider_than_f16(chip: Target) -> str:
    """A precision of the target with the range of f32, or else its widest integers."""
    names = [p.name for p in chip.precisions]
    return next((p for p in ("bf16", "f32", "int16") if p in names), chip.preferred_precision.name)
