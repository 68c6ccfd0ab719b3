"""The report of a compression: text for a terminal, and one HTML page."""

from __future__ import annotations

from html import escape

from intaglio.analysis.web_page import cards, document
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
    """The steps as a table, and the package before and after."""
    lines = aligned([TITLES, *rows(result)], (1, 2, 3, 4), (4,))
    packages = [f"{what}: {a} -> {b}{how}" for what, a, b, how in packages_of(result)]
    return "\n".join([*lines, *packages])


def packages_of(result: Result) -> list[tuple[str, str, str, str]]:
    """Size and time of the package: what, before, after, and how they are known."""
    a, b = result.before, result.after
    if a is None or b is None:
        return []
    found = [("package", f"{a.bytes:,}", f"{b.bytes:,}", " bytes")]
    if a.milliseconds is not None and b.milliseconds is not None:
        how = " ms, measured on one thread" if result.target == "cpu" else " ms, predicted"
        found.append(
            (f"time on {result.target}", f"{a.milliseconds:.3f}", f"{b.milliseconds:.3f}", how)
        )
    return found


def page(result: Result, title: str) -> str:
    """The steps, and the channels that every layer keeps, as HTML."""
    first, last = result.stages[0], result.stages[-1]
    shown = [
        ("MACs", f"{first.macs / max(last.macs, 1):.2f} × fewer", ""),
        ("parameters", f"{first.parameters / max(last.parameters, 1):.2f} × fewer", ""),
    ]
    if first.accuracy is not None and last.accuracy is not None:
        shown.append(("accuracy", f"{first.accuracy:.2f} → {last.accuracy:.2f} %", ""))
    shown += [(what, f"{x} → {y}", how.strip(" ,")) for what, x, y, how in packages_of(result)]
    head = "".join(f"<th>{t}</th>" for t in TITLES)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows(result)
    )
    parts = (
        f"<h1>{escape(title)}, compressed</h1>",
        cards(shown),
        f"<h2>Steps</h2><table><tr>{head}</tr>{body}</table>",
        _layers(result),
        _weights(result),
    )
    return document(title, parts, LOOK)


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


def _weights(result: Result) -> str:
    if not result.zeroed:
        return ""
    lines = [
        f'<tr><td class="name">{escape(name)}</td><td class="n">{100 * share:.0f} %</td>'
        f'<td><span class="bar" style="width:{BAR * share:.0f}px"></span>'
        f'<span class="bar gone" style="width:{BAR * (1 - share):.0f}px"></span></td></tr>'
        for name, share in result.zeroed.items()
    ]
    return f"<h2>Weights kept</h2><table>{''.join(lines)}</table>"
