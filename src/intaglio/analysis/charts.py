"""Line and bar charts as SVG: axes, ticks, series, legend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 430, 300  # of one chart
LEFT, RIGHT, TOP, BOTTOM = 62, 28, 40, 48
COLOURS = ("#3574c4", "#2b9160", "#d06a26", "#9160b8")  # visible on white and on black
STYLE = """<style>
.back { fill: #ffffff } .ink { fill: #1c2733 } .soft { fill: #5c6b7a }
.grid { stroke: #dde3ea; fill: none } .axis { stroke: #5c6b7a; fill: none }
@media (prefers-color-scheme: dark) {
.back { fill: #12171d } .ink { fill: #e3e9ef } .soft { fill: #9fb0c0 }
.grid { stroke: #2b3540 } .axis { stroke: #9fb0c0 } }
</style>"""
Point = tuple[float, float]


@dataclass
class Chart:
    """Series of points over one x axis; each axis is linear or logarithmic."""

    title: str
    x_label: str
    y_label: str
    series: dict[str, Sequence[Point]]
    log_y: bool = False
    x_ticks: Sequence[float] = ()
    dashed: dict[str, Sequence[Point]] = field(
        default_factory=dict
    )  # reference lines, not measured
    x_names: Sequence[str] = ()  # names of the x values: makes a bar chart
    log_x: bool = True


def head(width: float, height: float) -> str:
    """The start of an SVG that follows the reader's light or dark colour scheme."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="system-ui, sans-serif" '
        f'font-size="11">{STYLE}<rect class="back" width="{width:g}" height="{height:g}"/>'
    )


def page(charts: Sequence[Chart], columns: int = 2) -> str:
    """All charts in a grid, in one SVG file."""
    rows = math.ceil(len(charts) / columns)
    width, height = WIDTH * columns, HEIGHT * rows
    places = [(i % columns * WIDTH, i // columns * HEIGHT) for i in range(len(charts))]
    body = "\n".join(
        f'<g transform="translate({x},{y})">\n{_draw(chart)}\n</g>'
        for chart, (x, y) in zip(charts, places, strict=True)
    )
    return f"{head(width, height)}\n{body}\n</svg>\n"


def _draw(chart: Chart) -> str:
    lines = [*chart.series.values(), *chart.dashed.values()]
    xs = [x for line in lines for x, _ in line]
    ys = [y for line in lines for _, y in line]
    beside = 40 if chart.x_names else 0
    x_at = _scale(min(xs), max(xs), LEFT + beside, WIDTH - RIGHT - beside, chart.log_x)
    low, high = (min(ys), max(ys)) if chart.log_y else (0.0, max(ys) * 1.1)
    ticks = _decades(low, high) if chart.log_y else round_steps(high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    y_at = _scale(low, high, HEIGHT - BOTTOM, TOP, chart.log_y)
    parts = [_text(LEFT, 20, chart.title, weight="bold", size=13)]
    for y in ticks:
        parts.append(_line([(LEFT, y_at(y)), (WIDTH - RIGHT, y_at(y))], kind="grid"))
        parts.append(_text(LEFT - 6, y_at(y) + 4, f"{y:g}", "end"))
    places = chart.x_ticks or sorted(set(xs))
    names = chart.x_names or [f"{x:,.10g}" for x in places]
    end = -math.inf  # right end of the last label: labels must not overlap
    for x, name in zip(places, names, strict=True):
        at, half = x_at(x), 3.2 * len(name)
        parts.append(_line([(at, HEIGHT - BOTTOM), (at, HEIGHT - BOTTOM + 4)], kind="axis"))
        if at - half > end:
            parts.append(_text(at, HEIGHT - BOTTOM + 17, name, "middle"))
            end = at + half + 4
    frame = [(LEFT, TOP), (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM)]
    parts.append(_line(frame, kind="axis"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, chart.x_label, "middle"))
    parts.append(_text(16, middle, chart.y_label, "middle", turn=True))
    for name, points in chart.dashed.items():
        parts.append(_line([(x_at(x), y_at(y)) for x, y in points], "#8a97a5", 1.5, dash="5 4"))
        parts.append(_text(x_at(points[0][0]) + 6, y_at(points[0][1]) - 12, name, kind="soft"))
    for i, (name, points) in enumerate(chart.series.items()):
        colour = COLOURS[i % len(COLOURS)]
        placed = [(x_at(x), y_at(y)) for x, y in points]
        if chart.x_names:  # named values have no order: draw bars
            parts += [
                f'<rect x="{x - 20:.1f}" y="{y:.1f}" width="40" fill="{colour}" '
                f'height="{HEIGHT - BOTTOM - y:.1f}"><title>{v:,.4g}</title></rect>'
                for (x, y), (_, v) in zip(placed, points, strict=True)
            ]
            continue
        parts.append(_line(placed, colour, 2))
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{at:g}: {v:,.4g}'
            f"</title></circle>"
            for (x, y), (at, v) in zip(placed, points, strict=True)
        ]
        if not name:
            continue
        at = LEFT + 12 + i * 105
        parts.append(_line([(at, TOP - 6), (at + 16, TOP - 6)], colour, 2))
        parts.append(_text(at + 20, TOP - 2, name))
    return "\n".join(parts)


def _scale(
    low: float, high: float, start: float, end: float, log: bool
) -> Callable[[float], float]:
    bend = math.log if log else float
    if high == low:
        return lambda value: (start + end) / 2
    return lambda v: start + (bend(v) - bend(low)) / (bend(high) - bend(low)) * (end - start)


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**n for n in range(first, last + 1)]


def round_steps(high: float, most: int = 6) -> list[float]:
    """Ticks from 0 past `high`, in at most `most` steps of 1, 2 or 5 times a power of ten."""
    rough = max(high, 1e-12) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    return [round(i * step, 10) for i in range(math.ceil(high / step * (1 - 1e-9)) + 1)]


def _line(
    points: Sequence[Point], colour: str = "", width: float = 1, dash: str = "", kind: str = ""
) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    look = f'class="{kind}"' if kind else f'fill="none" stroke="{colour}"'
    return f'<polyline points="{path}" {look} stroke-width="{width}"{dashes}/>'


def _text(
    x: float,
    y: float,
    words: str,
    anchor: str = "start",
    kind: str = "ink",
    *,
    weight: str = "normal",
    size: int = 11,
    turn: bool = False,
) -> str:
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'font-weight="{weight}" font-size="{size}"{turned}>{escape(words)}</text>'
    )
