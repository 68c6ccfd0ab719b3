"""The report of a quantisation as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from intaglio.analysis.quantized import promoted_words
from intaglio.analysis.web_page import cards, document

LEAST = 1e-5  # the error of an empty bar
BAR = 150  # width in pixels of an error of 1
CURVE = (560, 220)  # width and height of the trade-off in pixels
WHOLE, ALONE = "#3574c4", "#d06a26"  # bars: in the whole model, and the layer alone


class Drawing(str):
    """Markup that is not escaped."""


def page(facts: Mapping[str, Any]) -> str:
    """The facts of `quantized.facts` and `quantized.check` as HTML."""
    title = f"{facts.get('model', 'model')}, quantised"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="sub">{_text(_subtitle(facts))}</p>',
        _cards(facts),
        _outputs(facts.get("accuracy")),
        _curve(facts.get("curve", [])),
        _tried(facts.get("tried", [])),
        _words("Warnings", facts.get("accuracy", facts).get("warnings", [])),
        _words("Changes made for accuracy", [*_promoted(facts), *facts.get("notes", [])]),
        _words("Layers in floats", [f"'{n}': {why}" for n, why in facts.get("floats", {}).items()]),
        _layers(facts.get("accuracy")),
    ]
    return document(title, [p for p in parts if p])


def _text(words: object) -> str:
    return escape(str(words))


def _subtitle(facts: Mapping[str, Any]) -> str:
    said = [f"mode {facts['mode']}"] if "mode" in facts else []
    said += [f"{facts['samples']} samples"] if "samples" in facts else []
    said += [f"ranges by {facts['method']}"] if "method" in facts else []
    if facts.get("goal"):
        said.append(f"required cosine of the outputs {facts['goal']:g}")
    said += [f"written to {facts['output']}"] if "output" in facts else []
    return ", ".join(said)


def _promoted(facts: Mapping[str, Any]) -> list[str]:
    return [promoted_words(facts)] if "promoted" in facts else []


# ---- the parts -----------------------------------------------------------------------------------
def _cards(facts: Mapping[str, Any]) -> str:
    """The main figures: size, speed, layers, worst output."""
    before, after = facts["parameter_bytes"]
    shown = [("parameters", f"{after / 1e6:.2f} MB", f"{before / 1e6:.2f} MB before")]
    if "milliseconds" in facts:
        slow, fast = facts["milliseconds"]
        words = f"{slow:.3f} ms before: {slow / fast:.2f} times as fast, one thread of this CPU"
        shown.append(("measured speed", f"{fast:.3f} ms", words))
    if "predicted" in facts:
        words = "products relative to f32, by the target's costs"
        shown.append(("predicted speed", f"{facts['predicted']:.2f} times", words))
    layers = ", ".join(f"{n} {precision}" for precision, n in facts["layers"].items())
    shown.append(("layers", str(sum(facts["layers"].values())), layers))
    outputs = facts.get("accuracy", {}).get("outputs", [])
    if outputs:
        worst = min(outputs, key=lambda o: o["cosine"])
        shown.append(("worst output", f"{worst['cosine']:.5f}", f"cosine of {worst['output']}"))
    return cards(shown)


def _outputs(accuracy: Mapping[str, Any] | None) -> str:
    if not accuracy:
        return ""
    head = ("part of an output", "*cosine", "*error", "")
    rows = [
        (o["output"], _figure(o["cosine"]), _figure(o["error"]), bar([(o["error"], WHOLE)]))
        for o in accuracy["outputs"]
    ]
    said = (
        f"Compared with the float model on {accuracy['samples']} samples. Columns of different "
        "magnitude are compared separately. The error is the norm of the difference relative to "
        "that of the float tensor."
    )
    return f"<h2>Outputs</h2><p>{_text(said)}</p>{_table(head, rows)}"


def _layers(accuracy: Mapping[str, Any] | None) -> str:
    if not accuracy:
        return ""
    layers = accuracy["layers"]
    alone = sorted(_error(m) for m in layers if "single_error" in m)
    limit = alone[-min(10, len(alone))] if alone else math.inf
    head = ("tensor", "layer", "*cosine", "*error", "*cosine alone", "*error alone", "")
    rows, bad = [], []
    for m in layers:
        own = m.get("single_error")
        bad.append("single_error" in m and _error(m) >= limit)
        bars = [(m["error"], WHOLE), *([(own, ALONE)] if "single_error" in m else [])]
        figures = (m["cosine"], m["error"], m.get("single_cosine"), own)
        rows.append((m["name"], m["op"], *map(_figure, figures), bar(bars)))
    said = (
        "Blue: the tensor in the whole quantised model. Orange: the layer alone, with the float "
        "model's inputs, which shows where errors begin; the ten largest are shaded. Bars are "
        f"logarithmic, from {LEAST:g} to 1."
    )
    return f"<h2>Layers</h2><p>{_text(said)}</p>{_table(head, rows, bad)}"


def _error(m: Mapping[str, Any]) -> float:
    """The error of a layer alone; None stands for infinity."""
    return math.inf if m["single_error"] is None else float(m["single_error"])


def _tried(tried: Sequence[Mapping[str, Any]]) -> str:
    if not tried:
        return ""
    rows = [
        (t["strategy"], _figure(t["figure"]), str(t["floats"]), "kept" if t["kept"] else "")
        for t in tried
    ]
    head = ("strategy", "*figure", "*layers in floats", "")
    return f"<h2>Strategies</h2>{_table(head, rows)}"


def _words(title: str, words: Sequence[str]) -> str:
    if not words:
        return ""
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{_text(w)}</li>' for w in words)}</ul>"


# ---- pictures and tables -------------------------------------------------------------------------
def bar(errors: Sequence[tuple[float | None, str]]) -> Drawing:
    """A bar for each error, stacked, on a logarithmic scale."""
    results = []
    for i, (e, colour) in enumerate(errors):
        if e is None or not e > LEAST:  # None: not finite
            width = BAR if e is None else 0.0
        else:
            width = BAR * min(math.log(e / LEAST) / math.log(1 / LEAST), 1.0)
        results.append(f'<rect y="{7 * i}" width="{width:.1f}" height="5" fill="{colour}"/>')
    return Drawing(f'<svg width="{BAR}" height="{7 * len(errors)}">{"".join(results)}</svg>')


def _curve(points: Sequence[Mapping[str, Any]]) -> str:
    """The trade-off: worst cosine against the predicted time of the products."""
    if len(points) < 2:
        return ""
    wide, high = CURVE
    left, right, top, bottom = 70, 20, 14, 44
    times: list[float] = [p["time"] for p in points]
    losses: list[float] = [max(1 - p["cosine"], 1e-7) for p in points]
    first, last = math.floor(math.log10(min(losses))), math.ceil(math.log10(max(losses)))
    last += first == last
    span = (max(times) - min(times)) or 1.0

    def x_at(t: float) -> float:
        return left + (t - min(times)) / span * (wide - left - right)

    def y_at(loss: float) -> float:
        share = (math.log10(loss) - first) / (last - first)
        return top + share * (high - top - bottom)

    results = []
    for e in range(first, last + 1):
        y = y_at(10.0**e)
        results.append(
            f'<line x1="{left}" x2="{wide - right}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="#8a97a5" stroke-opacity=".3"/><text x="{left - 6}" '
            f'y="{y + 4:.1f}" text-anchor="end">'
            f"{1 - 10.0**e:.7g}</text>"
        )
    places = [(x_at(t), y_at(loss)) for t, loss in zip(times, losses, strict=True)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    results.append(f'<polyline points="{line}" fill="none" stroke="{WHOLE}"/>')
    for (x, y), p in zip(places, points, strict=True):
        words = f"{len(p['layers'])} layers in wider types, cosine {p['cosine']:.5f}"
        size = 6 if p.get("kept") else 3.5
        results.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{WHOLE}">'
            f"<title>{words}</title></circle>"
        )
    for t in (min(times), max(times)):
        results.append(
            f'<text x="{x_at(t):.1f}" y="{high - bottom + 18}" text-anchor="middle">{t:.2f}</text>'
        )
    words = "predicted time of the products, relative to all in int8"
    middle = (left + wide - right) / 2
    results.append(f'<text x="{middle}" y="{high - 6}" text-anchor="middle">{words}</text>')
    head = ("*layers in wider types", "*share of the work", "*time", "*worst cosine", "")
    rows = [
        (
            str(len(p["layers"])),
            f"{p['share']:.1%}",
            f"{p['time']:.2f}",
            _figure(p["cosine"]),
            "kept" if p.get("kept") else "",
        )
        for p in points
    ]
    svg = f'<svg width="{wide}" height="{high}" font-size="11">{"".join(results)}</svg>'
    return f"<h2>Trade-off: the worst cosine against time</h2>{svg}{_table(head, rows)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], bad: Sequence[bool] = ()) -> str:
    """A table; titles with a star head numeric columns; drawings are not escaped."""
    kinds = ["n" if t.startswith("*") else "" for t in head]
    titles = "".join(
        f'<th class="{k}">{_text(t.lstrip("*"))}</th>' for t, k in zip(head, kinds, strict=True)
    )
    results = [f"<tr>{titles}</tr>"]
    for i, row in enumerate(rows):
        cells = []
        for k, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
            shown = cell if isinstance(cell, Drawing) else _text(cell)
            cells.append(f'<td class="{kind or ("name" if not k else "")}">{shown}</td>')
        shaded = ' class="bad"' if bad and bad[i] else ""
        results.append(f"<tr{shaded}>{''.join(cells)}</tr>")
    return f"<table>{''.join(results)}</table>"


def _figure(x: float | None) -> str:
    return "" if x is None else f"{x:.5f}"
