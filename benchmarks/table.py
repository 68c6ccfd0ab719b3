"""Statistics and Markdown tables of a comparison.

A row holds the results of one model with one number of threads:
    {"model", "threads", "mmac", "engines": {name: {"min", "median", ...} or {"failed": why}},
     "busy": {"others", "steal", "load", "crowded"}}
Times are milliseconds. A ratio is a peer's time over ours: above 1, we are faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.peers import FLOAT, OURS

Row = dict[str, Any]
MIN_TIE_RATIO = 0.97  # ratios from here on count as equally fast
INT8_MACS_PER_F32 = 4  # int8 multiply-adds (VNNI) in the place of one in f32


def time_of(row: Row, engine: str, which: str = "min") -> float | None:
    """Milliseconds of an engine; None if it failed or its outputs were wrong."""
    found: float | None = row["engines"].get(engine, {}).get(which)
    return found


def fastest(row: Row, which: str = "min") -> tuple[str, float] | None:
    """The fastest peer of a row."""
    times = {e: time_of(row, e, which) for e in row["engines"] if e not in (OURS, FLOAT)}
    ran = {e: t for e, t in times.items() if t is not None}
    return min(ran.items(), key=lambda item: item[1]) if ran else None


def ratio(row: Row, peer: str, which: str = "min") -> float | None:
    """The peer's time over ours; None if one of them is missing."""
    ours, theirs = time_of(row, OURS, which), time_of(row, peer, which)
    return theirs / ours if ours and theirs else None


def ratio_to_fastest(row: Row, which: str = "min") -> float | None:
    found = fastest(row, which)
    return ratio(row, found[0], which) if found else None


def share_of_peak(row: Row, peak: float | None) -> float | None:
    """The share of the peak, counting the MACs of direct convolution."""
    ours = time_of(row, OURS)
    return 2e-3 * row["mmac"] / (ours * 1e-3) / peak if ours and peak and row["mmac"] else None


def mean(ratios: Iterable[float | None]) -> tuple[float, int] | None:
    """The geometric mean of the values that are not None, and their number."""
    there = [r for r in ratios if r is not None]
    return (statistics.geometric_mean(there), len(there)) if there else None


def summary(rows: Sequence[Row], peers: Sequence[str], threads: int) -> dict[str, Any]:
    """Geometric means by peer and against the fastest, by min and median; models where we lose."""
    of = [r for r in rows if r["threads"] == threads]
    made: dict[str, Any] = {}
    for which in ("min", "median"):
        means = {p: mean(ratio(r, p, which) for r in of) for p in peers}
        means["fastest"] = mean(ratio_to_fastest(r, which) for r in of)
        means[FLOAT] = mean(ratio(r, FLOAT, which) for r in of)
        made[which] = {k: v[0] for k, v in means.items() if v}
    made["slower"] = [r["model"] for r in of if (ratio_to_fastest(r) or 1) < MIN_TIE_RATIO]
    return made


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """The cosine similarity of two tensors; axes of extent 1 may be missing."""
    a, b = np.squeeze(np.asarray(a, np.float64)), np.squeeze(np.asarray(b, np.float64))
    if a.shape != b.shape:
        return 0.0
    long = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / long if long else float(np.array_equal(a, b))


# ---- Markdown ------------------------------------------------------------------------------------
def markdown(
    rows: Sequence[Row],
    peers: Sequence[str],
    peaks: dict[int, float | None],
    notes: Sequence[str],
    precision: str = "f32",
) -> str:
    """Two or three tables for each number of threads, followed by notes."""
    parts = []
    if precision == "int8":  # with our f32 as another column
        peers = [*peers, FLOAT]
    for count in sorted({r["threads"] for r in rows}):
        of = [r for r in rows if r["threads"] == count]
        peak = peaks.get(count)
        if peak and precision == "int8":
            peak *= INT8_MACS_PER_F32
        words = threads(count)
        hardware = f"; {precision} peak {peak:.0f} GOP/s" if peak else ""
        parts += [f"### {words}: milliseconds, min / median{hardware}\n", _times(of, peers), ""]
        parts += [f"### {words}: peer's time over ours (by min; above 1 we are faster)\n"]
        parts += [_ratios(of, peers, peak), ""]
        if any("cosine" in cell for r in of for cell in r["engines"].values()):
            parts += [f"### {words}: cosine to f32\n", _cosines(of, peers), ""]
        slower = summary(rows, peers, count)["slower"]
        parts += [
            f"Slower than the fastest peer (below {MIN_TIE_RATIO}): "
            f"{', '.join(slower) or 'none'}.\n"
        ]
    return "\n".join([*parts, *[f"- {n}" for n in [*notes, *row_notes(rows)]]]).rstrip() + "\n"


def _times(rows: Sequence[Row], peers: Sequence[str]) -> str:
    lines = [["model", OURS, *peers]]
    for r in rows:
        lines.append([_name(r), *(_pair(r, e) for e in (OURS, *peers))])
    return grid(lines)


def _ratios(rows: Sequence[Row], peers: Sequence[str], peak: float | None) -> str:
    lines = [["model", *peers, "fastest peer", "to fastest", "of peak", "differs by"]]
    for r in rows:
        best, share = fastest(r), share_of_peak(r, peak)
        apart = r["engines"].get(OURS, {}).get("apart")
        lines.append(
            [
                _name(r),
                *(_number(ratio(r, p)) for p in peers),
                best[0] if best else "-",
                _number(ratio_to_fastest(r), bold=True),
                f"{share:.0%}" if share else "-",
                f"{apart:.0e}" if apart is not None else "-",
            ]
        )
    means = [mean(ratio(r, p) for r in rows) for p in peers]
    total = mean(ratio_to_fastest(r) for r in rows)
    shares = mean(share_of_peak(r, peak) for r in rows)
    lines.append(
        [
            "geometric mean",
            *(_number(m[0]) if m else "-" for m in means),
            "",
            _number(total[0], bold=True) if total else "-",
            f"{shares[0]:.0%}" if shares else "-",
            "",
        ]
    )
    return grid(lines)


def _cosines(rows: Sequence[Row], peers: Sequence[str]) -> str:
    lines = [["model", OURS, *peers]]
    for r in rows:
        found = [r["engines"].get(e, {}).get("cosine") for e in (OURS, *peers)]
        lines.append([_name(r), *("-" if c is None else f"{c:.6f}" for c in found)])
    return grid(lines)


def row_notes(rows: Sequence[Row]) -> list[str]:
    """Notes: reasons for empty cells, and rows measured on a busy machine."""
    notes: dict[str, None] = {}  # an ordered set: both thread counts fail for the same reason
    for r in rows:
        for engine, cell in r["engines"].items():
            if "note" in cell:
                notes[f"{r['model']}, {engine}: {cell['note']}"] = None
            if "failed" in cell:
                notes[f"{r['model']}, {engine}: {cell['failed']}"] = None
    crowded = [r for r in rows if r["busy"]["crowded"]]
    if crowded:
        most = max(r["busy"]["others"] for r in crowded)
        steal = max(r["busy"]["steal"] for r in crowded)
        notes[
            f"\\* busy machine in {len(crowded)} of {len(rows)} rows: other processes used up to "
            f"{most:.1f} CPUs, {steal:.0%} stolen; trust the minima, not the medians, and "
            "measure again on an idle machine"
        ] = None
    elif rows:
        notes["the machine was idle in every row"] = None
    return list(notes)


def threads(count: int) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count} thread{'s' * (count != 1)}"


def grid(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is the header."""
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *body])


def _name(row: Row) -> str:
    return row["model"] + (" \\*" if row["busy"]["crowded"] else "")


def _pair(row: Row, engine: str) -> str:
    least, middle = time_of(row, engine), time_of(row, engine, "median")
    return f"{digits(least)} / {digits(middle)}" if least and middle else "-"


def _number(value: float | None, bold: bool = False) -> str:
    if value is None:
        return "-"
    return f"**{value:.2f}**" if bold else f"{value:.2f}"


def digits(ms: float) -> str:
    """Three significant digits."""
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}"
