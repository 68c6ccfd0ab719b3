"""Headroom: a factor, given by the user, by which ranges exceed the observed values."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.ir import Value
from intaglio.quant.ranges.observe import Observation

Range = tuple[float, float]


def with_headroom(
    ranges: Mapping[Value, Range], seen: Mapping[Value, Observation], factor: float
) -> dict[Value, Range]:
    """The ranges times `factor`, except ranges that every sample fills: a clamp bounds them."""
    return {
        v: (lo * factor, hi * factor) if factor > 1 and varies(seen[v]) else (lo, hi)
        for v, (lo, hi) in ranges.items()
    }


def varies(o: Observation) -> bool:
    """Does the range depend on which samples were observed?"""
    return min(o.largest, default=0.0) < max(o.largest, default=0.0)
