"""The frame and the look of all HTML pages: one file that loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

STYLE = """
:root { --back: #fff; --ink: #1c2733; --soft: #5c6b7a; --line: #e1e7ed; --bad: #fdf1ea;
        color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12171d; --ink: #e3e9ef; --soft: #9fb0c0; --line: #2b3540; --bad: #3a2a1f; } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--back);
       margin: 2em auto; max-width: 72em; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.1em; margin: 2em 0 .5em; }
.sub { color: var(--soft); margin-top: .2em; } svg text { fill: var(--ink); }
.cards { display: flex; flex-wrap: wrap; gap: 1em; margin: 1.5em 0; }
.card { border: 1px solid var(--line); border-radius: 6px; padding: .7em 1.1em; min-width: 9em; }
.card b { display: block; font-size: 1.4em; } .card span { color: var(--soft); }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); }
th, td { padding: .22em .8em .22em 0; border-bottom: 1px solid var(--line);
         vertical-align: middle; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { font-family: ui-monospace, monospace; font-size: .92em; overflow-wrap: anywhere; }
tr.bad td { background: var(--bad); } ul { padding-left: 1.2em; }
.stack { display: flex; height: 1.5em; border-radius: 4px; overflow: hidden; margin: .6em 0; }
.stack span { color: #fff; font-size: .85em; padding: .15em .5em; overflow: hidden;
              white-space: nowrap; box-sizing: border-box; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .4em; }
"""
# Tables of class "sort": a button in every title sorts by its column.
SORT = """
document.querySelectorAll('table.sort').forEach(table => {
  const titles = [...table.tHead.rows[0].cells];
  titles.forEach((th, i) => {
    if (!th.textContent) return;
    const button = document.createElement('button');
    button.textContent = th.textContent; th.replaceChildren(button);
    button.addEventListener('click', () => {
      const up = th.getAttribute('aria-sort') === 'descending' ? 1 : -1, body = table.tBodies[0];
      const keyed = [...body.rows].map(r => [r.cells[i].dataset.v ?? r.cells[i].textContent, r]);
      keyed.sort(([x], [y]) => { if (x === '' || y === '') return (x === '') - (y === '');
        const d = x - y; return (isNaN(d) ? x.localeCompare(y) : d) * up; });
      titles.forEach(t => t.removeAttribute('aria-sort'));
      th.setAttribute('aria-sort', up > 0 ? 'ascending' : 'descending');
      body.append(...keyed.map(([, r]) => r)); }); }); });
"""
LOOK_OF_TITLES = """
table.sort thead th { position: sticky; top: 0; background: var(--back); z-index: 1; }
table.sort thead button { border: none; padding: .2em 0; min-height: 0; font: inherit;
  color: inherit; font-weight: 600; background: none; text-align: inherit; cursor: pointer; }
th[aria-sort=ascending] button::after { content: " \\25b2"; }
th[aria-sort=descending] button::after { content: " \\25bc"; }
"""


class Markup(str):
    """HTML that is not escaped."""


def text(words: object) -> str:
    """Words as HTML."""
    return words if isinstance(words, Markup) else escape(str(words))


def table(
    titles: Sequence[str], rows: Iterable[Iterable[object]], kind: str = "", ident: str = ""
) -> str:
    """A table; titles with a star head numeric columns; a cell may be (shown, sorted by)."""
    numeric = [t.startswith("*") for t in titles]
    head = "".join(
        f"<th{' class=n' * n}>{text(t.lstrip('*'))}</th>"
        for t, n in zip(titles, numeric, strict=True)
    )
    body = "".join(_row(row, numeric) for row in rows)
    named = f' id="{ident}"' if ident else ""
    return (
        f'<table class="{kind}"{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _row(row: Iterable[object], numeric: Sequence[bool]) -> str:
    cells: list[Any] = list(row)
    first = ""
    if isinstance(cells[0], dict):  # attributes of the row
        first = "".join(f' {k}="{escape(str(v))}"' for k, v in cells.pop(0).items())
    shown = []
    for k, (cell, number) in enumerate(zip(cells, numeric, strict=True)):
        words, by = cell if isinstance(cell, tuple) else (cell, None)
        kind = " class=n" if number else "" if k else " class=name"
        by_words = "" if by is None else f' data-v="{escape(str(by))}"'
        shown.append(f"<td{kind}{by_words}>{text(words)}</td>")
    return f"<tr{first}>{''.join(shown)}</tr>"


def document(title: str, body: Iterable[str], style: str = "", script: str = "") -> str:
    """A page of parts that are HTML already; tables of class "sort" can be sorted."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        '</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}{LOOK_OF_TITLES}{style}</style></head>\n<body>\n"
        + "\n".join(body)
        + f"<script>{SORT}{script}</script></body></html>\n"
    )


def cards(shown: Iterable[tuple[str, str, str]]) -> str:
    """Figures in boxes: title, figure, words below it."""
    boxes = (
        f'<div class="card"><span>{escape(a)}</span><b>{escape(b)}</b><span>{escape(c)}</span>'
        "</div>"
        for a, b, c in shown
    )
    return f'<div class="cards">{"".join(boxes)}</div>'
