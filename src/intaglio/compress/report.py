"""The report of a compression: text for a terminal, and one HTML page."""

from __future__ import annotations

from html import escape

from intaglio.analysis.web_page import STYLE
from intaglio.compress.recipe_file import Result
from intaglio.text_table import aligned

TITLES = ("step", "accuracy", "MACs", "parameters", "seconds", "what")
LOOK = """
.bar { display: inline-block; height: .7em; background: #3574c4; border-radius: 2px; }
.bar.gone { background: var(--line); }
"""
BAR = 240  # pixels of all channels of a layer


def rows(result: Result) -> list[tuple[str, ...]]:
    """One row for each step."""
    return [
        (
            s.name, "" if s.accuracy is None else f"{s.accuracy:.2f} %", f"{s.macs:,}",
            f"{s.parameters:,}", f"{s.seconds:.1f}", s.words,
        )
        for s in result.stages
    ]  # fmt: skip


def text(result: Result) -> str:
    """The steps as a table."""
    return "\n".join(aligned([TITLES, *rows(result)], (1, 2, 3, 4), (4,)))


def page(result: Result, title: str) -> str:
    """The steps, and the channels that every layer keeps, as HTML."""
    first, last = result.stages[0], result.stages[-1]
    cards = [
        ("MACs", f"{first.macs / max(last.macs, 1):.2f} × fewer"),
        ("parameters", f"{first.parameters / max(last.parameters, 1):.2f} × fewer"),
    ]
    if first.accuracy is not None and last.accuracy is not None:
        cards.append(("accuracy", f"{first.accuracy:.2f} → {last.accuracy:.2f} %"))
    shown = "".join(f'<div class="card"><span>{k}</span><b>{escape(v)}</b></div>' for k, v in cards)
    head = "".join(f"<th>{t}</th>" for t in TITLES)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows(result)
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{STYLE}{LOOK}</style></head>\n<body>\n<h1>{escape(title)}, compressed</h1>"
        f'<div class="cards">{shown}</div><h2>Steps</h2><table><tr>{head}</tr>{body}</table>'
        f"{_layers(result)}\n</body></html>\n"
    )


def _layers(result: Result) -> str:
    if not result.layers:
        return ""
    lines = []
    for name, (before, after) in result.layers.items():
        kept = BAR * after / max(before, 1)
        lines.append(
            f'<tr><td class="name">{escape(name)}</td><td class="n">{after} of {before}</td>'
            f'<td><span class="bar" style="width:{kept:.0f}px"></span>'
            f'<span class="bar gone" style="width:{BAR - kept:.0f}px"></span></td></tr>'
        )
    return f"<h2>Channels kept</h2><table>{''.join(lines)}</table>"
