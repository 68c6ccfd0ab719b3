"""The memory plan as a picture in text: time runs to the right, addresses upwards."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [offset, offset + size) of the arena, taken from step `first` to step `last`."""

    name: str
    offset: int
    size: int
    first: int
    last: int


def live_bytes(spans: Sequence[Span], steps: int) -> list[int]:
    """Bytes in use at each step; overlapping views count once for every tensor that needs them."""
    change = [0] * (steps + 1)
    for s in spans:
        change[s.first] += s.size
        change[s.last + 1] -= s.size
    total, live = 0, []
    for c in change[:steps]:
        total += c
        live.append(total)
    return live


def draw(spans: Sequence[Span], arena: int, steps: int, width: int = 64, height: int = 12) -> str:
    """The arena over time. The largest tensors get letters, the rest `·`; a legend names them."""
    if not spans or not arena or not steps:
        return "(no internal memory)"
    width = min(width, steps)
    letters = string.ascii_uppercase[:10]
    largest = sorted(spans, key=lambda s: (-s.size, s.first, s.offset))
    mark = dict(zip(largest, letters, strict=False))
    grid = [[" "] * width for _ in range(height)]
    for span in reversed(largest):  # small ones first, so that large ones stay visible
        rows = range(span.offset * height // arena, -(-(span.offset + span.size) * height // arena))
        columns = range(
            span.first * width // steps,
            max(span.last * width // steps, span.first * width // steps) + 1,
        )
        for r in rows:
            for c in columns:
                grid[min(r, height - 1)][min(c, width - 1)] = mark.get(span, "·")
    gutter = max(len(f"{arena:,}"), 1)
    lines = [
        f"{arena * (r + 1) // height:>{gutter},} │{''.join(grid[r])}│"
        for r in reversed(range(height))
    ]
    lines.append(f"{'bytes':>{gutter}} └{'─' * width}┘ step 0 to {steps - 1}")
    lines += [
        f"  {letter}  {s.name or 'unnamed'}: {s.size:,} bytes, steps {s.first} to {s.last}"
        for s, letter in mark.items()
    ]
    return "\n".join(lines)
