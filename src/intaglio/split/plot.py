"""A plan as SVG: the times of every cut as bars, and the fastest way at other bandwidths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from intaglio.analysis.charts import Chart, head, page, round_steps
from intaglio.split.plan import ALL_CLOUD, ALL_EDGE, Row, SplitPlan

WIDTH, LEFT, BAR, TOP = 860, 190, 15, 64
PARTS = {  # field of Row -> legend and colour, visible on white and on black
    "edge": ("device", "#2b9160"),
    "up": ("up", "#d06a26"),
    "rtt": ("round trip", "#8a97a5"),
    "cloud": ("server", "#3574c4"),
    "down": ("down", "#9160b8"),
}
MOST_NAME = 26  # characters of a tensor's name
LOWEST, HIGHEST, POINTS = 1e5, 1e9, 41  # bits per second of the second chart


def picture(plan: SplitPlan) -> str:
    """Both charts in one file."""
    bars = _bars(plan)
    lines = page([_by_bandwidth(plan)], columns=1)
    height = TOP + 40 + len(plan.rows) * (BAR + 5)
    inner = lines.replace("<svg ", f'<svg y="{height}" ', 1)
    return f"{head(WIDTH, height + 300)}\n{bars}\n{inner}</svg>\n"


def _bars(plan: SplitPlan) -> str:
    most = max(r.total for r in plan.rows)
    scale = (WIDTH - LEFT - 70) / (most or 1.0)
    link = plan.link
    title = (
        f"{plan.name or 'model'}: {plan.edge} and {plan.cloud} at {link.bandwidth / 1e6:g} Mbit/s, "
        f"{link.rtt:g} ms"
    )
    found = [_words(16, 24, title, weight="bold", size=14)]
    for i, (legend, colour) in enumerate(PARTS.values()):
        x = LEFT + i * 100
        found.append(f'<rect x="{x}" y="38" width="12" height="12" fill="{colour}"/>')
        found.append(_words(x + 17, 48, legend))
    bottom = TOP + len(plan.rows) * (BAR + 5)
    for tick in round_steps(most):
        at = LEFT + tick * scale
        if at <= WIDTH - 20:
            found.append(
                f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>'
            )
            found.append(_words(at, bottom + 14, f"{tick:g}", "middle"))
    found.append(_words((LEFT + WIDTH) / 2, bottom + 30, "milliseconds", "middle"))
    for i, row in enumerate(plan.rows):
        found += _bar(row, TOP + i * (BAR + 5), scale, row is plan.best)
    return "\n".join(found)


def _bar(row: Row, y: int, scale: float, best: bool) -> list[str]:
    name = row.place if len(row.place) <= MOST_NAME else f"…{row.place[1 - MOST_NAME :]}"
    found = [_words(LEFT - 8, y + 12, name, "end", weight="bold" if best else "normal")]
    x = float(LEFT)
    for part, (legend, colour) in PARTS.items():
        time = getattr(row, part)
        found.append(
            f'<rect x="{x:.1f}" y="{y}" width="{time * scale:.1f}" height="{BAR}" fill="{colour}" '
            f'opacity="{1 if row.timed else 0.65}"><title>{legend}: {time:.2f} ms</title></rect>'
        )
        x += time * scale
    words = f"{row.total:.1f}{' best' if best else ''}"
    found.append(_words(x + 5, y + 12, words, weight="bold" if best else "normal"))
    return found


def _by_bandwidth(plan: SplitPlan) -> Chart:
    """Milliseconds of the three ways, from slow links to fast ones."""
    steps = [LOWEST * (HIGHEST / LOWEST) ** (i / (POINTS - 1)) for i in range(POINTS)]
    ways = {
        "all on server": [r for r in plan.rows if r.place == ALL_CLOUD],
        "best cut": [r for r in plan.rows if r.cut is not None],
        "all on device": [r for r in plan.rows if r.place == ALL_EDGE],
    }
    series: dict[str, Sequence[tuple[float, float]]] = {
        n: [(b / 1e6, _least(rows, plan, b)) for b in steps] for n, rows in ways.items() if rows
    }
    return Chart(
        f"{plan.link.rtt:g} ms round trip",
        "Mbit/s",
        "milliseconds",
        series,
        log_y=True,
        x_ticks=[10.0**n for n in range(int(math.log10(LOWEST)) - 6, int(math.log10(HIGHEST)) - 5)],
    )


def _least(rows: Sequence[Row], plan: SplitPlan, bandwidth: float) -> float:
    down = None if plan.link.downlink is None else plan.link.downlink
    link = replace(plan.link, bandwidth=bandwidth, downlink=down)
    return min(r.on(link).total for r in rows)


def _words(
    x: float, y: float, text: str, anchor: str = "start", *, weight: str = "normal", size: int = 11
) -> str:
    return (
        f'<text class="ink" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
