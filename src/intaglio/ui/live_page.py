"""The live page: the report, with a place to drop pictures and a choice of precisions."""

from __future__ import annotations

import importlib.resources
import json
import math
from html import escape

from intaglio.analysis.report.report_page import Section, page
from intaglio.analysis.step_names import tensor_name
from intaglio.analysis.web_page import Markup, table
from intaglio.ops.registry import REGISTRY
from intaglio.ui.workbench import Workbench


def live_page(bench: Workbench) -> str:
    """The page as HTML."""
    sections = [_try(bench)]
    if bench.can_change and bench.made is not None:
        sections.append(_precisions(bench))
    known = json.dumps(_layers_of_nodes(bench)).replace("<", "\\u003c")
    return page(
        bench.report, sections, f"const layersOf = {known};\n{_file('live.js')}", _file("live.css")
    )


def _file(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def _layers_of_nodes(bench: Workbench) -> list[list[str]]:
    """For each node of the graph the layers of the scheme that it computes."""
    if bench.made is None:
        return []
    known = bench.made.scheme.layers
    results = []
    for n in bench.report.nodes:
        names = [tensor_name(n.tensor), *(x for r in n.rows for x in (r.name, r.other))]
        results.append([x for x in dict.fromkeys(names) if x in known] if n.unit else [])
    return results


def _try(bench: Workbench) -> Section:
    runs = ", ".join(bench.engines)
    said = f"It runs through: {runs}. Nothing leaves this machine."
    html = (
        '<label id="drop" tabindex="0">Drop a picture (or .npy, .npz) here, or click to choose one'
        '<input type="file" id="file" accept="image/*,.npy,.npz"></label>'
        f'<p class="sub">{escape(said)}</p><p id="said" role="status" aria-live="polite"></p>'
        '<div id="results"></div>'
    )
    return "try", "Try it", html


def _precisions(bench: Workbench) -> Section:
    assert bench.made is not None
    known, choices = bench.made.scheme.layers, bench.precisions()
    macs = {n.outputs[0].name: REGISTRY[n.op].macs(n) for n in bench.made.float_graph.nodes()}
    ops = {n.outputs[0].name: n.op for n in bench.made.float_graph.nodes()}
    total = sum(macs.values()) or 1
    found = bench.report.comparison
    own = {x: r for r in (found.rows if found else ()) for x in (r.name, r.other)}
    base = bench.base.scheme.layers if bench.base else known
    rows = []
    for name, now in known.items():
        row = own.get(name)
        error = row.single.relative if row is not None and row.single is not None else None
        shown = ("", "") if error is None or not math.isfinite(error) else (f"{error:.4f}", error)
        listed = "".join(
            f"<option{' selected' * (c == now)}>{escape(c)}</option>"
            for c in [*choices, *_odd(now, choices)]
        )
        select = Markup(
            f'<select class="precision" data-layer="{escape(name)}" data-now="{escape(now)}" '
            f'aria-label="Precision of {escape(name)}">{listed}</select>'
        )
        share = macs.get(name, 0) / total
        changed = base.get(name) != now
        rows.append((name, ops.get(name, ""), (select, now), shown, (f"{share:.1%}", share),
                     "changed" if changed else ""))  # fmt: skip
    titles = ("layer", "op", "precision", "*error alone", "*share of MACs", "")
    trials = [
        (", ".join(f"{k} {v}" for k, v in t.changes.items()) or "as quantised",
         _figure(t.cosine, "{:.5f}"), _figure(t.milliseconds, "{:.3f}"), (f"{t.file:,}", t.file))
        for t in bench.trials
    ]  # fmt: skip
    how = "predicted" if bench.target != "cpu" else "measured"
    heads = ("precisions", "*worst output's cosine", f"*ms ({how})", "*bytes")
    html = (
        f'<h3>Trials</h3><div class="wide">{table(heads, trials, "sort", "trials")}</div>'
        '<div class="tools"><button id="apply" disabled>Apply</button>'
        '<button id="reset">As quantised</button>'
        '<a class="button" href="/scheme.yaml" download="scheme.yaml">Export the scheme</a>'
        '<span id="waiting" role="status" aria-live="polite" class="soft"></span></div>'
        '<div class="wide tall" tabindex="0" role="region" aria-label="Precisions">'
        f"{table(titles, rows, 'sort', 'precisions')}</div>"
    )
    return "precision", "Precision", html


def _odd(now: str, choices: list[str]) -> list[str]:
    return [] if now in choices else [now]


def _figure(x: float | None, form: str) -> tuple[str, float | str]:
    return ("", "") if x is None else (form.format(x), x)
