"""The memory plan as a picture in text: time runs to the right, addresses upwards."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


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


SHADES = ("#1f5fa8", "#2f8f5b", "#c2571a", "#8a4fa3", "#3a8fb7", "#b08d2f", "#7a8794", "#a8443c")


def svg(spans: Sequence[Span], arena: int, steps: int, title: str,
        size: tuple[int, int] = (960, 320)) -> str:  # fmt: skip
    """The same as a picture: a box for each tensor; below, how many bytes are live."""
    (wide, high), left, top, low = size, 90, 34, 70
    full = (wide + left + 20, high + top + low + 34)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{full[0]}" height="{full[1]}" '
             'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" '
             f'fill="white"/><text x="{left}" y="20" font-size="13" font-weight="bold">'
             f"{escape(title)}</text>"]  # fmt: skip
    if not spans or not arena or not steps:
        return "".join([*parts, "</svg>"])
    column, scale = wide / steps, high / arena
    for i, s in enumerate(sorted(spans, key=lambda s: (s.first, s.offset))):
        x, width = left + s.first * column, (s.last - s.first + 1) * column
        y, height = top + high - (s.offset + s.size) * scale, s.size * scale
        words = f"{s.name}: {s.size:,} bytes at {s.offset:,}, layers {s.first} to {s.last}"
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.6, 0.5):.1f}" '
                     f'height="{max(height - 0.6, 0.5):.1f}" fill="{SHADES[i % len(SHADES)]}" '
                     f'fill-opacity="0.75"><title>{escape(words)}</title></rect>')  # fmt: skip
        if height > 13 and width > 7 * len(s.name) + 8:
            parts.append(f'<text x="{x + 4:.1f}" y="{y + 12:.1f}" fill="white">'
                         f"{escape(s.name)}</text>")  # fmt: skip
    live = live_bytes(spans, steps)
    base = top + high + low + 10
    for k, n in enumerate(live):
        tall = n / max(live) * low
        fill = "#c2571a" if n == max(live) else "#9fb3c8"
        parts.append(f'<rect x="{left + k * column:.1f}" y="{base - tall:.1f}" fill="{fill}" '
                     f'width="{max(column - 0.6, 0.5):.1f}" height="{tall:.1f}"/>')  # fmt: skip
    for share in (0, 0.5, 1):
        parts.append(f'<text x="{left - 6}" y="{top + high * (1 - share) + 4:.1f}" '
                     f'text-anchor="end">{arena * share:,.0f}</text>')  # fmt: skip
    parts.append(f'<text x="{left - 6}" y="{base - low + 8}" text-anchor="end">live</text>'
                 f'<text x="{left - 6}" y="{base - low + 22}" text-anchor="end">'
                 f"{max(live):,}</text>"
                 f'<text x="{left}" y="{base + 16}">layer 0</text><text x="{left + wide}" '
                 f'y="{base + 16}" text-anchor="end">{steps - 1}</text>')  # fmt: skip
    return "".join([*parts, "</svg>"])
