"""Predictions as text, as a picture and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from intaglio.analysis.page import STYLE
from intaglio.analysis.performance import LayerRow, Performance
from intaglio.npu import isa

COLUMNS = ("id", "op", "type", "on", "input", "output", "DDR cycles", "NPU cycles", "max", "us",
           "MACs used", "KiB", "cores", "all cores", "bound by", "name")  # fmt: skip
NUMBERS = range(6, 14)  # of these columns
COLOURS = {"load": "#1f5fa8", "compute": "#2f8f5b", "store": "#c2571a"}
SHOWN = 12  # kinds of op that a ranking lists


def cells(r: LayerRow) -> tuple[str, ...]:
    npu = r.unit == "NPU"
    return (str(r.id), r.op, r.dtype, r.unit, r.inputs, r.output,
            f"{r.ddr_cycles:.0f}" if npu else "", f"{r.npu_cycles:.0f}" if npu else "",
            f"{r.max_cycles:.0f}" if npu else "", f"{r.microseconds:.1f}",
            f"{r.mac_use:.0%}" if npu else "", f"{r.bytes / 1024:.0f}" if npu else "",
            "/".join(f"{100 * v:.0f}" for v in r.load) if npu else "",
            f"x{r.all_cores:.2f}" if npu else "", r.bound, r.name)  # fmt: skip


def aligned(rows: Sequence[Sequence[str]], right: range) -> list[str]:
    """Columns as wide as their widest cell; those in `right` end at the same place."""
    wide = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.rjust(w) if i in right else c.ljust(w)
                  for i, (c, w) in enumerate(zip(r, wide, strict=True))).rstrip()
        for r in rows
    ]  # fmt: skip


def text(p: Performance, hints: bool = True) -> str:
    """The whole report for a terminal."""
    lines = aligned([COLUMNS, *map(cells, p.layers)], NUMBERS)
    lines += ["", *ranking(p), "", *summary(p)]
    if hints:
        told = [r for r in p.layers if r.hint]
        told = sorted(told, key=lambda r: -r.microseconds)[:8]
        lines += ["", "what would help most:"] if told else []
        lines += [f"  {r.microseconds:8.1f} us  {r.op} {r.name}: {r.hint}" for r in told]
    return "\n".join(lines)


def ranking(p: Performance) -> list[str]:
    rows = [("op", "layers", "us", "share")]
    rows += [(op, str(n), f"{t:.1f}", f"{s:.1%}") for op, n, t, s in p.ranking()[:SHOWN]]
    return aligned(rows, range(1, 4))


def summary(p: Performance) -> list[str]:
    guesses = f"; {len(p.estimates)} figures of the chip are guesses" if p.estimates else ""
    batch = f" for {p.batch} samples" if p.batch > 1 else ""
    lines = [
        f"{p.chip} at {p.clock:g} MHz, {p.ddr:g} GB/s, {p.cores} core{'s' * (p.cores > 1)}: "
        f"{p.milliseconds:.3f} ms{batch}, {p.fps:.1f} frames a second{guesses}",
        f"NPU {p.npu_milliseconds:.3f} ms, CPU {p.cpu_milliseconds:.3f} ms; "
        f"{p.bytes / 1e6:.2f} MB to and from DDR",
    ]
    for number, busy in enumerate(p.busy):
        parts = [f"{q} {' '.join(f'{v:.0%}' for v in busy[q])}" for q in (*isa.QUEUES, "ddr")]
        lines.append(f"npu{number}: busy {', '.join(parts)}")
    if p.chip_cores > p.cores:
        lines.append(f"all {p.chip_cores} cores would be {p.all_cores:.2f} times as fast at most; "
                     "--payoff compiles for them")  # fmt: skip
    return lines


def picture(p: Performance, width: int = 1000) -> str:
    """The NPU's modules in time, one after the other: a lane for each queue of each core."""
    if not p.timelines:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>'
    whole = max(sum(t.cycles for t in p.timelines), 1.0)
    lanes = [(core, q) for core in range(p.cores) for q in range(len(isa.QUEUES))]
    height = 24 * len(lanes) + 26
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 130}" height="{height}" '
             'font-family="system-ui, sans-serif" font-size="11">']  # fmt: skip
    for number, (core, q) in enumerate(lanes):
        y, queue = 24 * number + 4, isa.QUEUES[q]
        parts.append(f'<text x="4" y="{y + 13}" fill="#5c6b7a">core {core} {queue}</text>')
        parts += [f'<rect x="{100 + a:.1f}" y="{y}" width="{max(b - a, 0.3):.1f}" height="18" '
                  f'fill="{COLOURS[queue]}"/>'
                  for a, b in _runs(p, core, q, width / whole)]  # fmt: skip
    begin = 0.0
    for line in p.timelines[:-1]:
        begin += line.cycles
        x = 100 + begin / whole * width
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 20}" stroke="#5c6b7a" '
                     'stroke-dasharray="3 3"><title>the next module</title></line>')  # fmt: skip
    milliseconds = whole / p.timelines[0].chip.clock / 1e3
    for k in range(5):
        x = 100 + width * k / 4
        parts.append(f'<text x="{x:.0f}" y="{height - 6}" text-anchor="middle" fill="#5c6b7a">'
                     f"{milliseconds * k / 4:.2f} ms</text>")  # fmt: skip
    return "".join([*parts, "</svg>"])


def _runs(p: Performance, core: int, q: int, scale: float) -> list[list[float]]:
    """When a queue works, in pixels; what touches on the picture is one box."""
    runs: list[list[float]] = []
    begin = 0.0
    for line in p.timelines:
        c = line.costs
        for i in ((c.core == core) & (c.queue == q)).nonzero()[0]:
            a, b = (float(begin + t[i]) * scale for t in (line.start, line.end))
            if runs and a - runs[-1][1] < 0.5:
                runs[-1][1] = b
            else:
                runs.append([a, b])
        begin += line.cycles
    return runs


def page(p: Performance) -> str:
    """The report as one page that a browser shows."""
    title = f"{p.chip}: {p.milliseconds:.3f} ms, {p.fps:.1f} frames a second"
    rows = "".join(
        "<tr>" + "".join(f'<td class="{"n" if i in NUMBERS else "name"}">{escape(v)}</td>'
                         for i, v in enumerate(cells(r))) + f"<td>{escape(r.hint)}</td></tr>"
        for r in p.layers
    )  # fmt: skip
    kinds = "".join(f'<tr><td>{escape(op)}</td><td class="n">{n}</td><td class="n">{t:.1f}</td>'
                    f'<td class="n">{s:.1%}</td></tr>' for op, n, t, s in p.ranking())  # fmt: skip
    head = "".join(
        f'<th class="{"n" if i in NUMBERS else ""}">{c}</th>' for i, c in enumerate(COLUMNS)
    )
    said = "".join(f'<p class="sub">{escape(words)}</p>' for words in summary(p))
    sums = "".join(f'<th class="n">{c}</th>' for c in ("layers", "us", "share"))
    body = [
        f"<h1>{escape(title)}</h1>{said}<h2>In time</h2>{picture(p)}",
        f"<h2>By kind</h2><table><tr><th>op</th>{sums}</tr>{kinds}</table>",
        f"<h2>Layers</h2><table><tr>{head}<th>what would help</th></tr>{rows}</table>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{STYLE} body {{ max-width: 90em }}</style></head>\n<body>"
        + "\n".join(body)
        + "</body></html>\n"
    )
