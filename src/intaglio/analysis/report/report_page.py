"""The report of a model as one self-contained HTML page."""

from __future__ import annotations

import importlib.resources
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from intaglio.analysis import memory as npu_memory
from intaglio.analysis import performance_page
from intaglio.analysis.comparison import excess
from intaglio.analysis.cpu_memory import CpuMemory
from intaglio.analysis.report.layered_layout import layered
from intaglio.analysis.report.model_report import ModelReport
from intaglio.analysis.report.report_node import ReportNode
from intaglio.analysis.report.speed_charts import roofline, timeline
from intaglio.analysis.step_names import short, tensor_name
from intaglio.analysis.web_page import Markup, cards, document, table

LETTER, NARROW, WIDE = 6.6, 90.0, 210.0  # pixels of a letter; least and most width of a node
QUOTED = re.compile(r"'([^']+)'")
VISIBLE = 1e-3  # least relative error that is worth a colour


Section = tuple[str, str, str]  # id, title, HTML


def page(r: ModelReport, more: Sequence[Section] = (), script: str = "", style: str = "") -> str:
    """The page; the live page puts `more` sections first, and adds a script and a style."""
    title = f"{r.name} on {r.target}"
    sections = [*more, *(s for s in _sections(r) if s[2])]
    links = "".join(f'<a href="#{key}">{escape(t)}</a>' for key, t, _ in sections)
    body = [
        f'<header><h1>{escape(title)}</h1><p class="sub">{escape(_subtitle(r))}</p></header>',
        _cards(r),
        f'<nav aria-label="Sections">{links}</nav>',
        *(f'<section id="{key}"><h2>{escape(t)}</h2>{html}</section>' for key, t, html in sections),
        f'<script type="application/json" id="data">{_data(r)}</script>',
    ]
    return document(title, body, _file("page.css") + style, _file("graph.js") + script)


def _file(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def _data(r: ModelReport) -> str:
    words = json.dumps(page_data(r), separators=(",", ":"), allow_nan=False)
    return words.replace("<", "\\u003c")  # nothing in a name ends the script


def page_data(r: ModelReport) -> dict[str, Any]:
    """Nodes with places and facts, edges with paths."""
    widths = [_width(n) for n in r.nodes]
    edges = list(r.edges)
    placed = layered(widths, edges)
    nodes = [
        n.for_page() | {"x": round(x, 1), "y": round(y, 1), "w": w}
        for n, (x, y), w in zip(r.nodes, placed.places, widths, strict=True)
    ]
    paths = [
        {"from": a, "to": b, "path": [(round(x, 1), round(y, 1)) for x, y in path]}
        for (a, b), path in zip(edges, placed.paths, strict=True)
    ]
    bad = r.comparison.guilty if r.comparison is not None else None
    guilty = next((i for i, n in enumerate(r.nodes) if any(row is bad for row in n.rows)), -1)
    size = [round(placed.width), round(placed.height)]
    return {"nodes": nodes, "edges": paths, "size": size, "guilty": guilty}


def _width(n: ReportNode) -> float:
    letters = max(len(n.op) * 1.15, len(short(n.name or n.tensor)))
    return round(min(max(letters * LETTER + 20, NARROW), WIDE))


def _subtitle(r: ModelReport) -> str:
    said = [f"{sum(bool(n.unit) for n in r.nodes)} steps"]
    if r.comparison is not None:
        c = r.comparison
        golden = c.golden.replace("the first model", "the float model")
        said.append(f"compared with {golden} on {c.samples} sample{'s' * (c.samples != 1)}")
    if r.performance is not None:
        said.append("times are predicted, not measured")
    elif r.profile is not None:
        said.append(f"fastest of {r.profile.runs} runs on one thread of this machine")
    return ", ".join(said)


def _cards(r: ModelReport) -> str:
    shown = [("file", _bytes(r.file), "package")]
    weights = sum(n.weights for n in r.nodes)
    if isinstance(r.memory, CpuMemory):
        shown[0] = ("file", _bytes(r.file), f"{_bytes(r.memory.weights)} of weights")
        shown.append(("internal memory", _bytes(r.memory.internal), "arena of a session"))
    elif r.memory is not None:
        inner = sum(m.internal for m in r.memory.modules)
        shown.append(("DDR", _bytes(r.memory.total), f"{_bytes(inner)} of feature maps"))
    else:
        shown.append(("weights", _bytes(weights), ""))
    shown.append(("work", f"{r.macs / 1e6:,.1f} M", "multiply-accumulates a run"))
    if (ms := r.milliseconds) is not None:
        shown.append(("time", f"{ms:.3f} ms", f"{1e3 / ms if ms else 0:.0f} runs a second"))
    if r.comparison is not None and not math.isnan(r.comparison.worst_output):
        bad = r.comparison.guilty
        words = f"look at {short(bad.name)}" if bad else "cosine, no layer stands out"
        shown.append(("worst output", f"{r.comparison.worst_output:.5f}", words))
    if r.partition is not None:
        on_cpu = len(r.partition.on_cpu)
        shown.append(("on the NPU", f"{r.partition.npu_share:.1%}", f"of MACs; {on_cpu} CPU ops"))
    return cards(shown)


def _bytes(n: float) -> str:
    return f"{n / 1e6:.2f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB" if n >= 1e3 else f"{n:.0f} B"


def _sections(r: ModelReport) -> Iterable[Section]:
    yield "findings", "Findings", _findings(r)
    yield "graph", "Graph", _graph(r)
    yield "layers", "Layers", _layers(r)
    yield "accuracy", "Accuracy", _accuracy(r)
    yield "speed", "Speed", _speed(r)
    yield "memory", "Memory", _memory(r)
    yield "partition", "Partition", _partition(r)


def _findings(r: ModelReport) -> str:
    places = _places(r)
    rows = "".join(f"<li><b>{escape(a)}</b>: {_linked(w, places)}</li>" for a, w in r.findings())
    return f'<ul class="find">{rows}</ul>'


def _places(r: ModelReport) -> dict[str, int]:
    """The numbers of nodes by the names that findings have for them and for their tensors."""
    places: dict[str, int] = {}
    for i, n in enumerate(r.nodes):
        if n.unit:
            for name in (n.name, tensor_name(n.tensor), *(row.name for row in n.rows)):
                places.setdefault(short(name), i)
    return places


def _linked(words: str, places: Mapping[str, int]) -> str:
    """Words as HTML, in which quoted names of nodes are buttons that choose them."""
    parts = QUOTED.split(words)
    for k in range(1, len(parts), 2):
        name = escape(parts[k])
        place = places.get(parts[k], places.get(tensor_name(parts[k])))
        button = f'<button class="link" data-i="{place}">{name}</button>'
        parts[k] = f"&#x27;{name}&#x27;" if place is None else button
    return "".join(p if k % 2 else escape(p) for k, p in enumerate(parts))


def _graph(r: ModelReport) -> str:
    known = {
        "kind": True,
        "error": r.comparison is not None,
        "time": r.milliseconds is not None,
        "memory": any(n.live for n in r.nodes),
        "work": r.macs > 0,
    }
    wrong = max((n.error or 0.0 for n in r.nodes), default=0.0) > VISIBLE
    first = "error" if wrong else "time" if known["time"] else "kind"
    options = "".join(
        f"<option{' selected' * (k == first)}>{k}</option>" for k, there in known.items() if there
    )
    return (
        '<div id="stage"><div class="tools" id="tools">'
        '<input type="search" class="search" id="search" placeholder="Search (press /)" '
        'aria-label="Search the graph by name, op or type"><span id="hits" class="soft" '
        'aria-live="polite"></span>'
        f'<label>Colour <select id="colour">{options}</select></label>'
        '<button id="in" aria-label="Zoom in">+</button>'
        '<button id="out" aria-label="Zoom out">−</button>'
        '<button id="fit">Fit</button>'
        '<button id="whole" aria-pressed="false">Full screen</button></div>'
        '<div id="canvas"><svg id="net" tabindex="0" role="application" aria-label="Graph of the '
        "model. Arrow keys move along edges, plus and minus zoom, 0 fits, slash searches."
        '"><g id="view"></g></svg><aside id="side" aria-label="Node" hidden></aside></div></div>'
        '<p class="sub"><span id="legend"></span>. Click the graph, then: arrow keys follow edges, '
        "+ and − or the wheel zoom, 0 fits, / searches.</p>"
    )


LAYER_TITLES = (
    "name", "op", "unit", "result", "*MMACs", "*kB moved", "*µs", "*share", "*of peak", "bound by",
    "*live kB", "*cosine alone", "*x 8-bit", "*cosine", "*max error", "*low", "*high", "*cut off",
)  # fmt: skip
MEANING = {
    "op": "what runs; separable, conv+lut and the like are several layers of the model in one",
    "unit": "where it runs",
    "result": "type and shape of its result",
    "MMACs": "millions of multiply-accumulates",
    "kB moved": "inputs, weights and results",
    "µs": "time of the step",
    "share": "of the time of all steps",
    "of peak": "speed relative to what the processor could reach at this layer",
    "bound by": "what limits the speed: multiply-adds (compute), memory, cache, ...",
    "live kB": "internal memory in use while the step runs",
    "cosine alone": "similarity to the golden result if only this layer is not exact; 1 is equal",
    "x 8-bit": "that error, in errors of rounding to 8 bits: a wrong scale is many",
    "cosine": "the same in the whole model, where errors of earlier layers add up",
    "max error": "largest difference in the whole model",
    "low": "least golden value",
    "high": "largest golden value",
    "cut off": "share of golden values outside of the range that the integers keep",
}


def _layers(r: ModelReport) -> str:
    whole = sum(n.microseconds or 0.0 for n in r.nodes) or 1.0
    rows = [_layer(i, n, whole) for i, n in enumerate(r.nodes) if n.unit]
    filled = [k for k in range(len(LAYER_TITLES)) if any(_shown(row[k + 1]) for row in rows)]
    kept = [[row[0], *(row[k + 1] for k in filled)] for row in rows]
    shown = table([LAYER_TITLES[k] for k in filled], kept, "sort", "rows")
    return (
        '<div class="tools"><input type="search" class="search" placeholder="Filter" '
        'aria-label="Filter layers by name, op or type"><span id="rowcount" class="soft" '
        'aria-live="polite"></span></div>'
        f'<div class="wide tall" tabindex="0" role="region" aria-label="Layers">{shown}</div>'
        f"<details><summary>What the columns mean</summary><dl>{_meaning(filled)}</dl></details>"
    )


def _meaning(columns: Iterable[int]) -> str:
    titles = [LAYER_TITLES[k].lstrip("*") for k in columns]
    return "".join(
        f"<dt>{escape(t)}</dt><dd>{escape(MEANING[t])}</dd>" for t in titles if t in MEANING
    )


def _shown(cell: Any) -> Any:
    return cell[0] if isinstance(cell, tuple) else cell


def _layer(i: int, n: ReportNode, whole: float) -> list[Any]:
    us, row = n.microseconds, n.worst
    run = max(row.entire.values(), key=lambda e: e.relative) if row and row.entire else None
    whole_name = n.name or n.tensor
    title = f' title="{escape(whole_name)}"' if short(whole_name) != whole_name else ""
    name = Markup(f'<button class="link"{title}>{escape(short(whole_name))}</button>')
    cut = row is not None and row.range.limits is not None
    return [
        {"data-i": i},
        (name, whole_name),
        n.op,
        n.unit,
        n.type,
        _number(n.macs / 1e6 or None, "{:.3f}"),
        _number(n.bytes / 1e3 or None, "{:.1f}"),
        _number(us, "{:.1f}"),
        _number(None if us is None else us / whole, "{:.1%}"),
        _number(n.of_peak, "{:.0%}"),
        n.bound,
        _number(None if n.live is None else n.live / 1e3, "{:.1f}"),
        _number(row.single.cosine if row and row.single else None, "{:.5f}"),
        _number(excess(row) if row and row.single and row.single.off else None, "{:.1f}"),
        _number(run.cosine if run else None, "{:.5f}"),
        _number(run.max_error if run else None, "{:.4g}"),
        _number(row.range.low if row and row.range.values else None, "{:.4g}"),
        _number(row.range.high if row and row.range.values else None, "{:.4g}"),
        _number(row.range.saturation if row and cut else None, "{:.2%}"),
    ]


def _number(x: float | None, form: str) -> tuple[str, float | str]:
    if x is None or not math.isfinite(x):
        return ("", "")
    return (form.format(x), float(x))


def _accuracy(r: ModelReport) -> str:
    if r.comparison is None:
        return ""
    rows = [
        (o.name, run, _number(e.cosine, "{:.5f}"), _number(e.relative, "{:.4g}"),
         _number(e.max_error, "{:.4g}"), _number(e.sqnr, "{:.1f}"))
        for o in r.comparison.outputs
        for run, e in o.entire.items()
    ]  # fmt: skip
    titles = ("output", "run", "*cosine", "*relative error", "*max error", "*SQNR dB")
    said = (
        "Golden values by tensor, largest error first; counts are logarithmic. Dashed: the range "
        "that the integers keep. Orange: values that are cut off."
    )
    return (
        f"<p>{escape(r.comparison.verdict)}</p>"
        f'<div class="wide">{table(titles, rows, "sort")}</div>'
        f'<h3>Histograms</h3><p class="sub">{escape(said)}</p><div id="hists"></div>'
    )


def _speed(r: ModelReport) -> str:
    if r.performance is not None:
        time, bounds = (
            performance_page.picture(r.performance),
            performance_page.bounds(r.performance),
        )
    else:
        time, bounds = timeline(r.nodes), ""
    roof = roofline(r.nodes, r.roof) if r.roof is not None else ""
    parts = []
    if time:
        parts.append(f'<h3>Timeline</h3><div class="wide">{time}</div>')
    if bounds:
        parts.append(f"<h3>What bounds it</h3>{bounds}")
    if roof:
        said = (
            "A circle is a layer; its area is its time. Layers under the slope wait for memory, "
            "layers under the flat line for multiply-adds."
        )
        parts.append(f'<h3>Roofline</h3><p class="sub">{said}</p><div class="wide">{roof}</div>')
    return "".join(parts)


def _memory(r: ModelReport) -> str:
    if r.memory is None:
        return ""
    places = _places(r)
    advice = "".join(f"<li>{_linked(w, places)}</li>" for w in r.memory_advice())
    if isinstance(r.memory, CpuMemory):
        rows: Any = [(k, (n, int(n.replace(",", "")))) for k, n in r.memory.rows()]
        picture = r.memory.svg()
    else:
        m = r.memory
        rows = [("file", _count(m.file)), ("CPU weights", _count(m.cpu_weights))]
        rows += [("CPU arena", _count(m.cpu_arena))]
        picture = npu_memory.picture(m)
    shown = table(("memory", "*bytes"), rows, "sort kinds")
    if not isinstance(r.memory, CpuMemory):
        kinds = ("weights", "internal", "inputs", "outputs", "commands", "peak")
        lines = [
            ((f"npu{k}", k), *(_count(getattr(one, x)) for x in kinds))
            for k, one in enumerate(r.memory.modules)
        ]
        titles = ("program, bytes of", *(f"*{x}" for x in kinds))
        shown += f'<div class="wide tall">{table(titles, lines, "sort")}</div>'
    return f'<ul class="find">{advice}</ul><div class="wide">{picture}</div>{shown}'


def _count(n: int) -> tuple[str, int]:
    return (f"{n:,}", n)


def _partition(r: ModelReport) -> str:
    if r.partition is None:
        return ""
    titles = ("module", "*ops", "*MMACs", "*µs", "*bytes in", "*bytes out")
    rows = [
        (m.name, (str(m.nodes), m.nodes), _number(m.macs / 1e6, "{:,.1f}"),
         _number(m.microseconds, "{:.1f}"), _count(m.bytes_in), _count(m.bytes_out))
        for m in r.partition.modules
    ]  # fmt: skip
    parts = [f'<div class="wide">{table(titles, rows, "sort")}</div>']
    if r.partition.on_cpu:
        reasons = [
            (o.name, o.op, o.type, o.why, o.remedy, _number(o.share, "{:.1%}"))
            for o in r.partition.on_cpu
        ]
        heads = ("on the CPU", "op", "type", "why", "what would move it", "*share")
        parts.append(f'<div class="wide tall">{table(heads, reasons, "sort")}</div>')
    else:
        parts.append("<p>Every op runs on the NPU.</p>")
    return "".join(parts)
