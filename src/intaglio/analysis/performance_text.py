"""The performance report as text for a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.analysis.performance import LayerRow, Performance
from intaglio.text_table import aligned, wrapped

COLUMNS = (
    "id",
    "op",
    "type",
    "on",
    "input",
    "output",
    "DDR cycles",
    "NPU cycles",
    "max",
    "us",
    "MACs used",
    "KiB",
    "cores",
    "all cores",
    "bound by",
    "name",
)
NUMBERS = range(6, 14)  # columns with numbers, right-aligned
# Columns that a narrow terminal leaves out, the first ones first.
DROPPED = [COLUMNS.index(c) for c in ("max", "cores", "all cores", "input", "DDR cycles", "type")]
DROPPED += [COLUMNS.index(c) for c in ("NPU cycles", "KiB", "on", "MACs used")]
MAX_RANKED = 12  # kinds of op in the ranking
MAX_LISTED_PROGRAMS = 3  # up to so many programs have a line each


def cells(r: LayerRow) -> tuple[str, ...]:
    npu = r.unit == "NPU"
    return (
        str(r.id),
        r.op,
        r.dtype,
        r.unit,
        r.inputs,
        r.output,
        f"{r.ddr_cycles:.0f}" if npu else "",
        f"{r.npu_cycles:.0f}" if npu else "",
        f"{r.max_cycles:.0f}" if npu else "",
        f"{r.microseconds:.1f}",
        f"{r.mac_use:.0%}" if npu else "",
        f"{r.bytes / 1024:.0f}" if npu else "",
        "/".join(f"{100 * v:.0f}" for v in r.load) if npu else "",
        f"x{r.all_cores:.2f}" if npu else "",
        r.bound,
        r.name,
    )


def text(p: Performance, hints: bool = True) -> str:
    """The whole report as text."""
    lines = aligned([COLUMNS, *map(cells, p.layers)], NUMBERS, DROPPED)
    lines += ["", *ranking(p), "", *summary(p)]
    if hints:
        found = advice(p)
        lines += ["", "advice for the slowest layers:"] if found else []
        lines += [f"  {h.microseconds:8.1f} us  {h.what}: {h.hint}" for h in found]
    return wrapped("\n".join(lines))


@dataclass
class Advice:
    """Advice for one layer, or for several layers of one kind."""

    hint: str
    rows: list[LayerRow]

    @property
    def microseconds(self) -> float:
        return sum(r.microseconds for r in self.rows)

    @property
    def what(self) -> str:
        first = f"{self.rows[0].op} {self.rows[0].name}"
        return first if len(self.rows) == 1 else f"{len(self.rows)} x {first}, ..."


def advice(p: Performance, count: int = 8) -> list[Advice]:
    """Advice for the layers that take the most time, the slowest first."""
    found: dict[tuple[str, str], Advice] = {}
    for r in p.layers:
        if r.hint:
            found.setdefault((r.op, r.hint), Advice(r.hint, [])).rows.append(r)
    return sorted(found.values(), key=lambda h: -h.microseconds)[:count]


def ranking(p: Performance) -> list[str]:
    rows = [("op", "layers", "us", "share")]
    rows += [(op, str(n), f"{t:.1f}", f"{s:.1%}") for op, n, t, s in p.ranking()[:MAX_RANKED]]
    return aligned(rows, range(1, 4))


def _busy(p: Performance) -> list[tuple[str, dict[str, list[float]]]]:
    """The load of queues and DDR, by program; averaged if there are many programs."""
    if len(p.busy) <= MAX_LISTED_PROGRAMS:
        return [(f"npu{i}", b) for i, b in enumerate(p.busy)]
    times = [t.cycles for t in p.timelines]
    whole = sum(times) or 1.0
    each = {q: [0.0] * max(len(b[q]) for b in p.busy) for q in p.busy[0]}
    for t, b in zip(times, p.busy, strict=True):
        for q, values in b.items():
            for core, v in enumerate(values):
                each[q][core] += v * t / whole
    return [(f"npu0 to npu{len(p.busy) - 1}", each)]


def summary(p: Performance) -> list[str]:
    guesses = f"; {len(p.estimates)} figures of the chip are estimates" if p.estimates else ""
    batch = f" for {p.batch} samples" if p.batch > 1 else ""
    lines = [
        f"{p.chip} at {p.clock:g} MHz, {p.ddr:g} GB/s, {p.cores} core{'s' * (p.cores > 1)}: "
        f"{p.milliseconds:.3f} ms{batch} {p.band}, {p.fps:.1f} frames a second{guesses}",
        f"NPU {p.npu_milliseconds:.3f} ms, CPU {p.cpu_milliseconds:.3f} ms; "
        f"{p.bytes / 1e6:.2f} MB to and from DDR; {p.mac_use:.0%} of the MACs used",
        f"bound by {', '.join(f'{k} {v:.0%}' for k, v in p.bounds().items())} of the time",
    ]
    for name, busy in _busy(p):
        parts = [f"{q} {' '.join(f'{v:.0%}' for v in values)}" for q, values in busy.items()]
        lines.append(f"{name}: busy {', '.join(parts)}")
    lines += [f"not counted: {note}" for note in p.notes]
    if p.chip_cores > p.cores and p.commands is None:
        lines.append(f"with all {p.chip_cores} cores: at most {p.all_cores:.2f} times as fast")
    return lines


def html(p: Performance) -> str:
    """The layers and the timeline, for notebooks."""
    from intaglio.analysis.html_table import html_table
    from intaglio.analysis.performance_page import picture

    return html_table("; ".join(summary(p)), COLUMNS, map(cells, p.layers)) + picture(p)
