"""Drawings of a memory plan, as text and SVG: time runs to the right, addresses upwards."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from intaglio.analysis.charts import head, round_steps
from intaglio.analysis.step_names import short


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [offset, offset + size) of the arena, live from step `first` to step `last`."""

    name: str
    offset: int
    size: int
    first: int
    last: int


def live_bytes(spans: Sequence[Span], steps: int) -> list[int]:
    """Live bytes at each step; overlapping views count once for every tensor."""
    change = [0] * (steps + 1)
    for s in spans:
        change[s.first] += s.size
        change[s.last + 1] -= s.size
    total, live = 0, []
    for c in change[:steps]:
        total += c
        live.append(total)
    return live


def draw(
    spans: Sequence[Span],
    arena: int,
    steps: int,
    width: int = 50,
    height: int = 12,
    unit: str = "step",
) -> str:
    """The arena over time as text. The largest tensors get letters with a legend, the rest `·`."""
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
    lines.append(f"{'bytes':>{gutter}} └{'─' * width}┘ {unit} 0 to {steps - 1}")
    lines += [
        f"  {letter}  {short(s.name) or 'unnamed'}: {s.size:,} bytes, {unit}s {s.first} to {s.last}"
        for s, letter in mark.items()
    ]
    return "\n".join(lines)


SHADES = ("#3574c4", "#2b9160", "#d06a26", "#9160b8", "#2f8fae", "#a8832a", "#74818e", "#b8504a")
LEFT, RIGHT, TOP, LOW, GAP = 76, 24, 36, 70, 30  # pixels beside, above and below the boxes


def svg(
    spans: Sequence[Span],
    arena: int,
    steps: int,
    title: str,
    size: tuple[int, int] = (960, 320),
    unit: str = "layer",
) -> str:
    """The arena over time as SVG: a box per tensor, and below it the live bytes."""
    wide, high = size
    base = TOP + high + GAP + LOW
    parts = [
        head(wide + LEFT + RIGHT, base + 44),
        f'<text class="ink" x="{LEFT}" y="20" font-size="13" font-weight="bold">'
        f"{escape(title)}</text>",
    ]
    if not spans or not arena or not steps:
        return "".join([*parts, "</svg>"])
    column, (name, scale) = wide / steps, ("MB", 1e6) if arena >= 2e6 else ("kB", 1e3)
    for t in (t for t in round_steps(arena / scale) if t * scale <= arena):
        y = TOP + high - t * scale / arena * high
        parts.append(
            f'<polyline class="grid" points="{LEFT},{y:.1f} {LEFT + wide},{y:.1f}"/>'
            + _words(LEFT - 8, y + 4, f"{t:g}", "end")
        )
    for t in (int(t) for t in round_steps(steps - 1, 12) if t == int(t) and t < steps):
        x = LEFT + (t + 0.5) * column
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}"/>'
            + _words(x, base + 17, str(t), "middle")
        )
    parts += [
        _box(s, i, column, high / arena, high, unit)
        for i, s in enumerate(sorted(spans, key=lambda s: (s.first, s.offset)))
    ]
    live = live_bytes(spans, steps)
    most = max(live)
    for k, n in enumerate(live):
        tall = n / most * LOW
        look = 'fill="#d06a26"' if n == most else 'fill="#8a9db0"'
        parts.append(
            f'<rect x="{LEFT + k * column:.1f}" y="{base - tall:.1f}" {look} '
            f'width="{max(column - 0.6, 0.5):.1f}" height="{tall:.1f}"/>'
        )
    parts += [
        f'<polyline class="axis" points="{LEFT},{y - h} {LEFT},{y} {LEFT + wide},{y}"/>'
        for y, h in ((TOP + high, high), (base, LOW))
    ]
    when = live.index(most)
    ends = when * column > wide / 2
    parts += [
        _words(LEFT - 8, TOP - 12, name, "end"),
        _words(LEFT - 8, base - LOW + 9, f"{most / scale:.3g}", "end"),
        _words(LEFT - 8, base - LOW / 2 + 4, "live", "end"),
        _words(LEFT - 8, base, "0", "end"),
        _words(
            LEFT + (when + ends) * column,
            base - LOW - 6,
            f"most: {most:,} bytes at {unit} {when}",
            "end" if ends else "start",
            "ink",
        ),
        _words(LEFT + wide / 2, base + 36, unit, "middle"),
    ]
    return "".join([*parts, "</svg>"])


def _box(s: Span, number: int, column: float, scale: float, high: float, unit: str) -> str:
    """A tensor from its first layer to its last, with as much of its name as fits."""
    x, width = LEFT + s.first * column, (s.last - s.first + 1) * column
    y, height = TOP + high - (s.offset + s.size) * scale, s.size * scale
    told = f"{s.name}: {s.size:,} bytes at {s.offset:,}, {unit}s {s.first} to {s.last}"
    result = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.6, 0.5):.1f}" '
        f'height="{max(height - 0.6, 0.5):.1f}" fill="{SHADES[number % len(SHADES)]}">'
        f"<title>{escape(told)}</title></rect>"
    )
    letters = int((width - 8) / 6.2)  # that fit
    if height < 15 or letters < 6:
        return result
    name = short(s.name)
    shown = name if len(name) <= letters else "…" + name[1 - letters :]
    return (
        f'{result}<text x="{x + 4:.1f}" y="{y + 12:.1f}" style="fill: #fff">{escape(shown)}</text>'
    )


def _words(x: float, y: float, words: str, anchor: str, kind: str = "soft") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}'
        "</text>"
    )
