"""A comparison as text, as a table of rich, and as HTML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from intaglio.analysis.comparison import Comparison, Row, excess
from intaglio.analysis.step_names import short
from intaglio.analysis.tensor_error import TensorError
from intaglio.text_table import aligned, wrapped

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 12  # rows unless all are asked for
NAMES = 6  # that a line lists
FIGURES = ("cosine", "euclid", "max err", "SQNR")
TIMES = "x 8-bit"  # the error of a layer alone, in errors of rounding to 8 bits
ORDERS = ("single", "model")


def titles(found: Comparison) -> list[str]:
    """The titles of the columns."""
    of_runs = [f"{run} {figure}" for run in found.runs for figure in FIGURES]
    alone = [f"single {f}" for f in (*FIGURES, TIMES)] if found.by_single() else []
    return ["tensor", "op", *of_runs, *alone, "low", "high", "cut off", ""]


def cells(row: Row, found: Comparison) -> list[str]:
    """The cells of a row, in the order of `titles`."""
    errors: list[TensorError | None] = [row.entire.get(run) for run in found.runs]
    figures = [cell for e in errors for cell in _figures(e)]
    if found.by_single():
        figures += [*_figures(row.single), _times(row)]
    cut = f"{row.range.saturation:.2%}" if row.range.limits is not None else ""
    marks = ["f16 overflow"] * row.range.f16_overflow + ["scale fitted"] * row.fitted
    marks += ["output"] * row.output
    span = (f"{row.range.low:.4g}", f"{row.range.high:.4g}") if row.range.values else ("", "")
    return [short(row.name), row.op, *figures, *span, cut, ", ".join(marks)]


def _figures(e: TensorError | None) -> list[str]:
    if e is None:
        return [""] * len(FIGURES)
    sqnr = f"{e.sqnr:.1f}" if math.isfinite(e.sqnr) else ("exact" if e.sqnr > 0 else "-")
    return [f"{e.cosine:.5f}", f"{e.euclidean:.4g}", f"{e.max_error:.4g}", sqnr]


def _times(row: Row) -> str:
    if row.single is None or not row.single.off:
        return ""
    times = excess(row)
    return f"{times:.1f}" if math.isfinite(times) else "-"


def shown_rows(found: Comparison, every: bool, order: str = ORDERS[0]) -> list[Row]:
    """All rows, or those with the largest errors and the outputs; in the order of the model, or
    by their errors alone."""
    picked = _picked(found, every)
    if order != ORDERS[0]:
        return picked
    place = {id(r): i for i, r in enumerate(found.by_single())}
    return sorted(picked, key=lambda r: place.get(id(r), len(place)))


def _picked(found: Comparison, every: bool) -> list[Row]:
    """The rows to show, in the order of the model."""
    if every or len(found.rows) <= SHOWN:
        return found.rows
    by = found.by_single()

    def worst(row: Row) -> float:
        return max((e.relative for e in row.entire.values()), default=0.0)

    ranked = by or sorted(found.rows, key=lambda r: -worst(r))
    picked = {id(r) for r in [*ranked[:SHOWN], *found.outputs]}
    return [r for r in found.rows if id(r) in picked]


def text(found: Comparison, every: bool = False, order: str = ORDERS[0]) -> str:
    """The table, unjoined tensors, and the verdict."""
    rows, head = shown_rows(found, every, order), titles(found)
    few = "" if len(rows) == len(found.rows) else f", the {len(rows)} worst"
    lines = [
        f"golden: {found.golden}; {len(found.rows)} tensors on {found.samples} "
        f"sample{'s' * (found.samples != 1)}{few}"
    ]
    right = [i for i, t in enumerate(head) if t not in ("tensor", "op", "")]
    drop = [i for i, t in enumerate(head) if "euclid" in t] + [
        i for i, t in enumerate(head) if "max err" in t
    ]
    figures, groups = _two_lines(found)
    drop += [head.index(t) for t in ("op", "low", "high")]
    table = aligned([figures, groups, *(cells(r, found) for r in rows)], right, drop)
    lines += [table[1], table[0], *table[2:]]
    for what, names in (
        ("not joined, golden", found.golden_only),
        ("not joined, other", found.other_only),
        ("same name, other shape", found.shapes_differ),
    ):
        if names:
            lines.append(wrapped(f"{what:22} {_listed(names)}"))
    lines.append(wrapped(f"verdict: {found.verdict}"))
    return "\n".join(lines)


def _two_lines(found: Comparison) -> tuple[list[str], list[str]]:
    """The titles of the figures, and above them the run that each group is of."""
    figures, groups = titles(found), [""] * len(titles(found))
    for run in [*found.runs, "single"]:
        for i, title in enumerate(figures):
            figure = title.removeprefix(f"{run} ")
            if figure != title and figure in (*FIGURES, TIMES):
                figures[i] = figure
                groups[i] = run if figure == FIGURES[0] else ""
    return figures, groups


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return f"{len(names)}: {', '.join(map(short, names[:NAMES]))}{more}"


def rich_table(found: Comparison) -> Table:
    """The rows with the largest errors."""
    from rich.table import Table

    table = Table(title=found.verdict)
    for title in titles(found):
        table.add_column(title, overflow="fold")
    for row in shown_rows(found, False):
        table.add_row(*cells(row, found))
    return table


def html_table(found: Comparison) -> str:
    """All rows, for notebooks."""
    from intaglio.analysis.html_table import html_table as table

    return table(found.verdict, titles(found), [cells(r, found) for r in found.rows])
