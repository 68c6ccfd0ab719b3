"""Plots of the catalogue: networks on one chip, and on several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from intaglio.analysis.charts import COLOURS, head
from intaglio.errors import BadInput

if TYPE_CHECKING:
    from intaglio.analysis.catalogue_table import CatalogueRow

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 560, 70, 50, 40  # of the plot
MARGIN = 1.3  # between the extreme points and the frame
CELL, ROW, NAMES, TITLES = 54, 20, 190, 90  # pixels of the grid


def scatter(rows: Sequence[CatalogueRow], chip: str, most: str = "") -> str:
    """Multiply-accumulates against frames per second on a chip."""
    points = [(r.macs / 1e9, 1e3 / ms, r) for r in rows if (ms := r.ms(chip))]
    if not points:
        raise BadInput(f"{chip} runs none of these networks; there is nothing to plot")
    xs, ys = [math.log10(p[0]) for p in points], [math.log10(p[1]) for p in points]
    edge = math.log10(MARGIN)
    x0, x1, y0, y1 = min(xs) - edge, max(xs) + edge, min(ys) - edge, max(ys) + edge

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x0) / (x1 - x0) * (WIDTH - LEFT - 130)
        return LEFT + across, TOP + (y1 - y) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)

    title = f"Which network fits {chip}: {most}so many frames per second, int8, one core"
    parts = [
        head(WIDTH, HEIGHT),
        f'<text class="ink" x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
        f'<text class="soft" x="{LEFT}" y="{HEIGHT - 10}">10⁹ MACs (logarithmic); '
        "circle: parameters</text>",
    ]
    for y in _ticks(y0, y1):
        _, py = at(x0, y)
        parts.append(
            f'<path class="grid" d="M{LEFT} {py:.1f}H{WIDTH - 20}"/><text class="soft" '
            f'x="{LEFT - 8}" y="{py + 4:.1f}" text-anchor="end">{10**y:g} fps</text>'
        )
    for x in _ticks(x0, x1):
        px, _ = at(x, y0)
        parts.append(
            f'<path class="grid" d="M{px:.1f} {TOP}V{HEIGHT - BOTTOM}"/><text class="soft" '
            f'x="{px:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10**x:g}</text>'
        )
    for (macs, fps, r), x, y in zip(points, xs, ys, strict=True):
        px, py = at(x, y)
        radius = 2 + math.sqrt(r.parameters / 1e6)
        tip = f"{r.name}: {macs:.3f} GMACs, {r.parameters / 1e6:.2f} M, {fps:.0f} fps"
        parts.append(
            f'<g><title>{escape(tip)}</title><circle cx="{px:.1f}" cy="{py:.1f}" '
            f'r="{radius:.1f}" fill="{COLOURS[0]}" fill-opacity="0.45"/><text class="ink" '
            f'x="{px + radius + 2:.1f}" y="{py + 4:.1f}" font-size="9">{r.name}</text></g>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _ticks(low: float, high: float) -> list[float]:
    """The logarithms of 1, 2 and 5 times powers of ten within two logarithms."""
    every = (
        k + math.log10(m) for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)
    )
    return [t for t in every if low <= t <= high]


def grid(rows: Sequence[CatalogueRow], chips: Sequence[str], most: str = "") -> str:
    """Frames per second by network and chip: the darker, the faster."""
    ordered = sorted(rows, key=lambda r: r.macs)
    fps = {(r.name, c): 1e3 / ms for r in ordered for c in chips if (ms := r.ms(c))}
    if not fps:
        raise BadInput("no chip runs any of these networks; there is nothing to plot")
    low, high = math.log(min(fps.values())), math.log(max(fps.values()))
    width, height = NAMES + CELL * len(chips) + 60, TITLES + ROW * len(ordered) + 30
    parts = [
        head(width, height),
        '<text class="ink" x="10" y="20" font-size="14">Which network fits which chip: '
        f"{most}so many frames per second</text>"
        f'<text class="soft" x="10" y="{height - 8}">int8, one core; networks by MACs</text>',
    ]
    for k, c in enumerate(chips):
        x = NAMES + CELL * (k + 0.5)
        parts.append(
            f'<text class="soft" transform="translate({x:.0f} {TITLES - 6}) rotate(-35)">'
            f"{escape(c)}</text>"
        )
    for i, r in enumerate(ordered):
        y = TITLES + ROW * i
        parts.append(
            f'<text class="ink" x="{NAMES - 8}" y="{y + 14}" text-anchor="end">{r.name}</text>'
        )
        for k, c in enumerate(chips):
            if (r.name, c) not in fps:
                continue
            v = fps[r.name, c]
            share = (math.log(v) - low) / (high - low or 1)
            shown = f"{v:,.0f}" if v >= 10 else f"{v:.1f}"
            parts.append(
                f'<rect x="{NAMES + CELL * k}" y="{y}" width="{CELL - 1}" height="{ROW - 1}" '
                f'fill="{COLOURS[0]}" fill-opacity="{0.08 + 0.6 * share:.2f}"><title>'
                f'{escape(f"{r.name} on {c}: {v:.1f} fps")}</title></rect><text class="ink" '
                f'x="{NAMES + CELL * (k + 1) - 6}" y="{y + 14}" text-anchor="end">{shown}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])
