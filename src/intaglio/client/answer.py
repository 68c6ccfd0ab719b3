"""The answer to a request, and where it was computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from intaglio.ir import Array


@dataclass(frozen=True)
class Answer:
    """Outputs by name."""

    outputs: Mapping[str, Array]
    source: str  # "device" or "server"
    reason: str  # why there, in words
    margin: float | None = None  # of the device's answer, in a cascade
