"""The performance report as a timeline in SVG, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from intaglio.analysis.charts import COLOURS, head, round_steps
from intaglio.analysis.performance import LayerRow, Part, Performance
from intaglio.analysis.performance_text import COLUMNS, NUMBERS, advice, cells, summary
from intaglio.analysis.web_page import cards, document
from intaglio.npu.own import isa

LEFT, RIGHT, LANE = 110, 24, 24  # pixels left and right of the lanes, and height of a lane
OF = dict(zip((*isa.QUEUES, "CPU"), COLOURS, strict=False))
BOUND = {"compute": OF["compute"], "bandwidth": OF["load"], "launch": "#b08d2f"}
BOUND |= {"dependency": "#8e5ea2", "CPU": OF["CPU"]}
LOOK = """
body { max-width: 100em; } .wide { overflow-x: auto; }
.wide svg { min-width: 52em; width: 100%; height: auto; }
table.layers { font-size: .92em; } .layers td, .layers th { white-space: nowrap; }
.layers td.long { max-width: 22em; overflow: hidden; text-overflow: ellipsis; }
table.kinds { max-width: 44em; }
.bar { display: inline-block; height: .6em; border-radius: 2px; vertical-align: middle; }
"""


# ---- timeline ------------------------------------------------------------------------------------
def picture(p: Performance, width: int = 1000) -> str:
    """The timeline: a lane for each queue of each core or each engine, and one for the CPU."""
    lanes = list(_lanes(p))
    whole = max((part.end for part in p.parts), default=0.0)
    high = LANE * len(lanes) + 40
    parts = [head(width + LEFT + RIGHT, high)]
    if not lanes or not whole:
        return "".join([*parts, "</svg>"])
    ticks = [t for t in round_steps(whole / 1e3, 10) if t * 1e3 <= whole]
    scale = width / whole
    for t in ticks:
        x = LEFT + t * 1e3 * scale
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{high - 28}"/>'
            f'<text class="soft" x="{x:.1f}" y="{high - 12}" text-anchor="middle">'
            f"{t:g}{' ms' if t == ticks[-1] else ''}</text>"
        )
    for number, (words, colour, intervals) in enumerate(lanes):
        y = LANE * number + 8
        parts.append(
            f'<text class="soft" x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{words}</text>'
        )
        parts += [
            f'<rect x="{LEFT + a:.1f}" y="{y}" width="{max(b - a, 0.4):.1f}" height="18" '
            f'fill="{colour}"><title>{escape(_tooltip(who, us))}</title></rect>'
            for a, b, who, us in _boxes(intervals, scale)
        ]
    return "".join([*parts, "</svg>"])


Interval = tuple[float, float, LayerRow]  # begin and end in microseconds


def _lanes(p: Performance) -> Iterator[tuple[str, str, list[Interval]]]:
    """Name, colour and busy intervals of each lane."""
    if p.commands is not None:
        of, timed = {r.layer: r for r in p.layers}, p.commands
        for engine, colour in zip(timed.busy(), COLOURS, strict=False):
            times = zip(timed.steps, timed.begin, timed.end, strict=True)
            yield (engine, colour, [(a, b, of[s.layer]) for s, a, b in times if s.engine == engine])
        return
    lanes = [(core, q) for core in range(p.cores) for q in range(len(isa.QUEUES))]
    lanes = [*([(-1, -1)] if p.cpu_milliseconds else []), *(lanes if p.timelines else [])]
    for core, q in lanes:
        queue = isa.QUEUES[q] if core >= 0 else "CPU"
        words = f"core {p.core_numbers[core]} {queue}" if core >= 0 else "CPU"
        found = [i for part in p.parts for i in _busy_intervals(p, part, core, q)]
        yield words, OF[queue], found


def _tooltip(rows: list[LayerRow], microseconds: float) -> str:
    """The tooltip of a box."""
    named = f"{rows[0].id} {rows[0].op} {rows[0].name}"
    if rows[-1].id != rows[0].id:
        named += f" to {rows[-1].id} {rows[-1].op} {rows[-1].name}"
    return f"{named}: {microseconds:.1f} us"


Box = tuple[float, float, list[LayerRow], float]  # from, to (pixels), layers, microseconds


def _boxes(intervals: list[Interval], scale: float) -> list[Box]:
    """The boxes of a lane; boxes that touch on the screen are merged."""
    runs: list[Box] = []
    for begin, end, row in intervals:
        a, b = begin * scale, end * scale
        if runs and a - runs[-1][1] < 0.5 and (row is runs[-1][2][-1] or b - a < 3):
            first, _, rows, us = runs[-1]
            runs[-1] = (first, b, [*rows, row], us + end - begin)
        else:
            runs.append((a, b, [row], end - begin))
    return runs


def _busy_intervals(p: Performance, part: Part, core: int, q: int) -> list[Interval]:
    """The intervals in which a lane is busy, in microseconds, with their layers."""
    rows, line = [r for r in p.layers if r.module == part.name], part.line
    found, now = [], part.begin
    if line is None:
        for r in rows if core < 0 else ():
            found.append((now, now + r.microseconds, r))
            now += r.microseconds
        return found
    of, c, first = {r.layer: r for r in rows}, line.costs, part.end - line.cycles / line.chip.clock
    for i in ((c.core == core) & (c.queue == q)).nonzero()[0]:
        a, b = (first + float(t[i]) / line.chip.clock for t in (line.start, line.end))
        found.append((a, b, of[int(c.layer[i])]))
    return found


# ---- the page ------------------------------------------------------------------------------------
def page(p: Performance, difference: str = "") -> str:
    """The report as one HTML page; `difference` describes a what-if change."""
    title = f"{p.name or 'model'} on {p.chip}"
    said = [w for w in summary(p) if w.startswith("npu")]  # the cards show the other lines
    said += [difference] if difference else []
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(summary(p)[0])}</p>',
        _cards(p),
        "".join(f'<p class="sub">{escape(words)}</p>' for words in said),
        f'<h2>Timeline</h2><div class="wide">{picture(p)}</div>',
        f"<h2>Bottlenecks</h2>{bounds(p)}",
        f"<h2>Advice</h2>{_advice(p)}" if advice(p) else "",
        f"<h2>By kind of op</h2>{_kinds(p)}",
        f'<h2>Layers</h2><p class="sub">Click a column title to sort.</p>{_layers(p)}',
    ]
    return document(title, body, LOOK)


def _cards(p: Performance) -> str:
    batch = f" for {p.batch} samples" if p.batch > 1 else " a frame"
    shown = [
        ("speed", f"{p.fps:.1f}", "frames a second"),
        (
            "time",
            f"{p.milliseconds:.3f} ms",
            f"NPU {p.npu_milliseconds:.3f}, CPU {p.cpu_milliseconds:.3f}{batch}",
        ),
        (
            "DDR",
            f"{p.bytes / 1e6:.2f} MB",
            f"{p.bytes / 1e6 / p.milliseconds:.2f} GB/s of {p.ddr:g}",
        ),
        ("MACs used", f"{p.mac_use:.0%}", "of the peak rate, while the NPU runs"),
    ]
    if p.chip_cores > p.cores:
        words = f"with all {p.chip_cores} cores, at most"
        shown.append(("more cores", f"x{p.all_cores:.2f}", words))
    return cards(shown)


def bounds(p: Performance) -> str:
    result = "".join(
        f'<span style="width:{100 * v:.2f}%;background:{BOUND[k]}" title="{k} {v:.1%}">'
        f"{f'{k} {v:.0%}' if v > 0.08 else ''}</span>"
        for k, v in p.bounds().items()
    )
    words = ", ".join(f"{_dot(k)}{k} {v:.1%}" for k, v in p.bounds().items())
    return f'<div class="stack">{result}</div><p class="sub">{words}</p>'


def _dot(bound: str) -> str:
    return f'<span class="dot" style="background:{BOUND[bound]}"></span>'


def _advice(p: Performance) -> str:
    rows = [
        f'<tr><td class="n">{h.microseconds:.1f}</td><td class="n">{len(h.rows)}</td>'
        f"<td>{escape(h.rows[0].op)}</td><td>{escape(h.hint)}</td>"
        f'<td class="long name" title="{escape(h.what)}">'
        f"{', '.join(f'{r.id} {escape(r.name)}' for r in h.rows[:20])}</td></tr>"
        for h in advice(p)
    ]
    table = _table(
        ("us", "layers", "op", "advice", "layers of this kind"), range(2), rows, "layers sort"
    )
    return f'<div class="wide">{table}</div>'


def _kinds(p: Performance) -> str:
    rows = [
        f'<tr><td>{escape(op)}</td><td class="n">{n}</td><td class="n">{t:.1f}</td>'
        f'<td class="n">{s:.1%}</td><td>{_bar(s, OF["compute"])}</td></tr>'
        for op, n, t, s in p.ranking()
    ]
    return _table(("op", "layers", "us", "share", ""), range(1, 4), rows, "kinds sort")


def _layers(p: Performance) -> str:
    most = max((r.microseconds for r in p.layers), default=1.0) or 1.0
    shown = [i for i, c in enumerate(COLUMNS) if c not in ("bound by", "name")]
    rows = []
    for r in p.layers:
        told = cells(r)
        each = "".join(
            f'<td class="{"n" if i in NUMBERS else ""}">{escape(told[i])}</td>'
            if i != US
            else f'<td class="n" data-v="{r.microseconds}">'
            f"{_bar(r.microseconds / most, BOUND[r.bound], 4)} {told[i]}</td>"
            for i in shown
        )
        each += (
            f"<td>{_dot(r.bound)}{r.bound}</td>"
            f'<td class="long name" title="{escape(r.name)}">{escape(r.name)}</td>'
            f"<td>{escape(r.hint)}</td>"
        )
        rows.append(f"<tr>{each}</tr>")
    titles = (*(COLUMNS[i] for i in shown), "bound by", "name", "advice")
    return f'<div class="wide">{_table(titles, NUMBERS, rows, "layers sort")}</div>'


US = COLUMNS.index("us")


def _bar(share: float, colour: str, wide: float = 12) -> str:
    return f'<span class="bar" style="width:{wide * share:.2f}em;background:{colour}"></span>'


def _table(titles: Sequence[str], right: range, rows: Sequence[str], kind: str = "") -> str:
    each = "".join(
        f'<th class="{"n" if i in right else ""}">{escape(t)}</th>' for i, t in enumerate(titles)
    )
    return (
        f'<table class="{kind}"><thead><tr>{each}</tr></thead><tbody>{"".join(rows)}</tbody>'
        "</table>"
    )
