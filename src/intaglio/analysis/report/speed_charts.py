"""Roofline and timeline of a report, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from intaglio.analysis.charts import COLOURS, head, round_steps
from intaglio.analysis.report.report_node import ReportNode

WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 900, 380, 70, 24, 30, 46
OF_BOUND = {
    "compute": COLOURS[0],
    "memory": COLOURS[1],
    "bandwidth": COLOURS[1],
    "cache": COLOURS[2],
}
OTHER = COLOURS[3]


@dataclass(frozen=True)
class Roof:
    """The peaks that limit a layer: 10^9 MACs a second by name, and 10^9 bytes a second."""

    rates: dict[str, float]
    bandwidth: float
    cache: float = 0.0  # 10^9 bytes a second of small layers


def roofline(nodes: Sequence[ReportNode], roof: Roof) -> str:
    """MACs a second against MACs a byte, both logarithmic; a circle for each layer with products.

    Empty without such layers.
    """
    points = [
        (n.macs / n.bytes, n.macs / n.microseconds / 1e3, n)
        for n in nodes
        if n.macs and n.bytes and n.microseconds
    ]
    if not points or not roof.rates:
        return ""
    top = max(roof.rates.values())
    xs = [p[0] for p in points] + [rate / roof.bandwidth for rate in roof.rates.values()]
    ys = [p[1] for p in points] + [top]
    x_at = _logarithmic(min(xs) / 2, max(xs) * 2, LEFT, WIDE - RIGHT)
    y_at = _logarithmic(min(ys) / 2, max(ys) * 2, HIGH - BOTTOM, TOP)
    parts = [head(WIDE, HIGH)]
    parts += [
        f'<path class="grid" d="M{x_at(t):.1f} {TOP}V{HIGH - BOTTOM}"/><text class="soft" '
        f'x="{x_at(t):.1f}" y="{HIGH - BOTTOM + 16}" text-anchor="middle">{t:g}</text>'
        for t in _decades(min(xs) / 2, max(xs) * 2)
    ]
    parts += [
        f'<path class="grid" d="M{LEFT} {y_at(t):.1f}H{WIDE - RIGHT}"/><text class="soft" '
        f'x="{LEFT - 6}" y="{y_at(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in _decades(min(ys) / 2, max(ys) * 2)
    ]
    least, far = min(xs) / 2, max(xs) * 2
    for name, rate in roof.rates.items():
        ridge = rate / roof.bandwidth
        low = max(least, min(ys) / 2 / roof.bandwidth)
        parts.append(
            f'<path d="M{x_at(low):.1f} {y_at(low * roof.bandwidth):.1f}L{x_at(ridge):.1f} '
            f'{y_at(rate):.1f}H{x_at(far):.1f}" fill="none" stroke="#8a97a5" stroke-width="1.5"/>'
            f'<text class="soft" x="{x_at(far) - 4:.1f}" y="{y_at(rate) - 5:.1f}" '
            f'text-anchor="end">{escape(name)}: {rate:,.0f} GMAC/s</text>'
        )
    if roof.cache > roof.bandwidth:
        low, ridge = max(least, min(ys) / 2 / roof.cache), top / roof.cache
        if low < ridge:
            parts.append(
                f'<path d="M{x_at(low):.1f} {y_at(low * roof.cache):.1f}L{x_at(ridge):.1f} '
                f'{y_at(top):.1f}" fill="none" stroke="#8a97a5" stroke-dasharray="5 4"/>'
            )
    longest = max(n.microseconds or 0 for _, _, n in points)
    for x, y, n in sorted(points, key=lambda p: -(p[2].microseconds or 0)):
        size = 2.5 + 6 * math.sqrt((n.microseconds or 0) / longest)
        told = f"{n.op} {n.name}: {y:.2f} GMAC/s, {x:.2f} MACs a byte, {n.microseconds:.1f} µs"
        parts.append(
            f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="{size:.1f}" fill-opacity=".65" '
            f'fill="{OF_BOUND.get(n.bound, OTHER)}"><title>{escape(told)}</title></circle>'
        )
    cache = f"; dashed, layers up to 1 MB in cache: {roof.cache:.0f} GB/s" if roof.cache else ""
    parts.append(
        f'<text class="soft" x="{(LEFT + WIDE) / 2}" y="{HIGH - 8}" text-anchor="middle">'
        f"MACs a byte (memory: {roof.bandwidth:.1f} GB/s{cache})</text>"
        f'<text class="soft" x="{LEFT - 6}" '
        f'y="{TOP - 12}" text-anchor="middle">GMAC/s</text>'
    )
    return "".join([*parts, "</svg>"])


def timeline(nodes: Sequence[ReportNode]) -> str:
    """The steps one after the other, in one lane for each kind of op that takes time."""
    timed = [n for n in nodes if n.microseconds]
    whole = sum(n.microseconds or 0.0 for n in timed)
    if not whole:
        return ""
    sums: dict[str, float] = {}
    for n in timed:
        sums[n.op] = sums.get(n.op, 0.0) + (n.microseconds or 0.0)
    lanes = sorted(sums, key=lambda op: -sums[op])[:8]
    names = [*lanes, "others"] if len(sums) > len(lanes) else lanes
    lane, left, wide = 24, 150, 1000
    high = lane * len(names) + 40
    parts = [head(wide + left + RIGHT, high)]
    unit, scale = ("ms", 1e3) if whole > 2e3 else ("µs", 1.0)
    ticks = [t for t in round_steps(whole / scale, 10) if t * scale <= whole]
    for t in ticks:
        x = left + t * scale / whole * wide
        parts.append(
            f'<path class="grid" d="M{x:.1f} 6V{high - 28}"/><text class="soft" x="{x:.1f}" '
            f'y="{high - 12}" text-anchor="middle">{t:g}{f" {unit}" * (t == ticks[-1])}</text>'
        )
    for k, op in enumerate(names):
        share = sums[op] / whole if op in sums else 1 - sum(sums[o] for o in lanes) / whole
        parts.append(
            f'<text class="soft" x="{left - 8}" y="{lane * k + 21}" text-anchor="end">'
            f"{escape(op)} {share:.0%}</text>"
        )
    now = 0.0
    for n in timed:
        k = names.index(n.op) if n.op in lanes else len(names) - 1
        us = n.microseconds or 0.0
        parts.append(
            f'<rect x="{left + now / whole * wide:.1f}" y="{lane * k + 8}" height="18" '
            f'width="{max(us / whole * wide, 0.4):.1f}" fill="{COLOURS[k % len(COLOURS)]}">'
            f"<title>{escape(f'{n.op} {n.name}: {us:.1f} µs')}</title></rect>"
        )
        now += us
    return "".join([*parts, "</svg>"])


def _logarithmic(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = math.log(high / low)
    return lambda v: start + math.log(v / low) / span * (end - start)


def _decades(low: float, high: float) -> list[float]:
    return [10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
