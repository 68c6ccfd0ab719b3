"""The table of scores, what quantisation costs each engine, and what was promised.

A row is what one engine gave for one model: {"model", "metric", "engine", "value", "parts", "more",
"seconds"}, or {"model", "engine", "missing"} or {..., "failed"} with the reason. A drop is the
float's value less the engine's, in points: percent or decibels.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.accuracy.engines import AUTO, DYNAMIC, FLOAT, INT4, OPENVINO, OURS, STATIC
from benchmarks.table import grid

Row = dict[str, Any]
PEERS = (STATIC, DYNAMIC, OPENVINO)
MEAN, WORST, AUTO_MEAN = 0.5, 1.0, 0.2  # the drops that are allowed
NOISE = 0.1  # points that count as equal where nothing is known of the spread
FOUR_BITS = 0.995  # the cosine of a transformer's output
SCORES, SAME = 0.99, 100.0  # of a YOLOv8 head with boxes and scores in one tensor


def find(rows: Sequence[Row], model: str, engine: str) -> Row | None:
    """The row of one engine that has a value."""
    return next(
        (r for r in rows if (r["model"], r["engine"]) == (model, engine) and "value" in r), None
    )


def drop(rows: Sequence[Row], model: str, engine: str) -> float | None:
    """What the engine loses on the model, in points."""
    right, made = find(rows, model, FLOAT), find(rows, model, engine)
    return right["value"] - made["value"] if right and made else None


def spread(a: Row, b: Row) -> float:
    """The standard error of the difference of two scores of the same samples."""
    if not known(a, b):
        return NOISE
    apart = [x - y for x, y in zip(a["parts"], b["parts"], strict=True)]
    return statistics.stdev(apart) / len(apart) ** 0.5


def known(a: Row, b: Row) -> bool:
    """Are there scores by sample, of the same samples?"""
    return len(a["parts"]) == len(b["parts"]) > 1


def models(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(r["model"] for r in rows))


def markdown(rows: Sequence[Row]) -> str:
    """The scores, the drops, and the verdict."""
    engines = [e for e in (FLOAT, OURS, AUTO, INT4, *PEERS) if any(r["engine"] == e for r in rows)]
    lines = [["model", "metric", *engines]]
    for model in models(rows):
        metric = next(r["metric"] for r in rows if r["model"] == model)
        lines.append([model, metric, *(_cell(rows, model, e) for e in engines)])
    quantised = [e for e in engines if e != FLOAT]
    for words, of in (("mean drop", statistics.fmean), ("worst drop", max)):
        lines.append([words, "points", "-", *(_over(rows, e, of) for e in quantised)])
    parts = [
        "### Scores (change against float, ± its standard error)\n",
        grid(lines),
        "",
        "### Ours less each peer (± the standard error of the difference)\n",
        _beside(rows),
        "",
        "### Besides\n",
        _besides(rows, engines),
        "",
        *(f"- {s}" for s in verdict(rows)),
        *(f"- {s}" for s in reasons(rows)),
    ]
    return "\n".join(parts) + "\n"


def _cell(rows: Sequence[Row], model: str, engine: str) -> str:
    made, right = find(rows, model, engine), find(rows, model, FLOAT)
    if not made:
        return "-"
    if engine == FLOAT or not right:
        return f"{made['value']:.2f}"
    return f"{made['value']:.2f} ({_change(made['value'] - right['value'], made, right)})"


def _beside(rows: Sequence[Row]) -> str:
    """Ours by default and each peer, sample by sample."""
    peers = [e for e in PEERS if any(r["engine"] == e for r in rows)]
    lines = [["model", "samples", *peers]]
    for model in models(rows):
        if ours := find(rows, model, OURS):
            theirs = [find(rows, model, e) for e in peers]
            cells = [_change(ours["value"] - r["value"], ours, r) if r else "-" for r in theirs]
            lines.append([model, str(len(ours["parts"]) or "-"), *cells])
    return grid(lines)


def _over(rows: Sequence[Row], engine: str, of: Any) -> str:
    drops = [d for m in models(rows) if (d := drop(rows, m, engine)) is not None]
    return f"{of(drops):.2f} of {len(drops)}" if drops else "-"


def _besides(rows: Sequence[Row], engines: Sequence[str]) -> str:
    lines = [["model", "what", *engines]]
    for model in models(rows):
        found = {e: (find(rows, model, e) or {}).get("more", {}) for e in engines}
        for what in dict.fromkeys(k for more in found.values() for k in more):
            values = (found[e].get(what) for e in engines)
            lines.append([model, what, *("-" if v is None else f"{v:.4g}" for v in values)])
    return grid(lines)


def verdict(rows: Sequence[Row]) -> list[str]:
    """What was promised of the defaults and of the auto mode, and whether it is so."""
    said = []
    for engine, allowed in ((OURS, MEAN), (AUTO, AUTO_MEAN)):
        drops = {m: d for m in models(rows) if (d := drop(rows, m, engine)) is not None}
        if not drops:
            continue
        mean, worst = statistics.fmean(drops.values()), max(drops, key=lambda m: drops[m])
        said.append(f"{engine}: mean drop {mean:.2f} (allowed {allowed}): {_is(mean <= allowed)}")
        if engine == OURS:
            fine = drops[worst] <= WORST
            said.append(
                f"{engine}: worst drop {drops[worst]:.2f} on {worst} (allowed {WORST}): {_is(fine)}"
            )
        for words, surely in (("", False), (" by more than the standard error", True)):
            behind = [w for m in drops if (w := _behind(rows, m, engine, surely))]
            said.append(f"{engine}: behind a peer{words}: {'; '.join(behind) or 'nowhere'}")
    head = find(rows, "nudenet", OURS)
    if head:
        near, same = (head["more"][k] for k in ("cosine of scores", "same detections %"))
        said.append(
            "nudenet, boxes and scores in one tensor: cosine of scores "
            f"{near:.4f} (needed {SCORES}), {same:.1f} % of detections the same: "
            + _is(near >= SCORES and same >= SAME)
        )
    small = find(rows, "minilm_l3", INT4)
    if small:
        fine = small["value"] >= 100 * FOUR_BITS
        said.append(
            f"minilm_l3, weights of 4 bits by group: cosine {small['value'] / 100:.4f} "
            f"(needed {FOUR_BITS}): {_is(fine)}"
        )
    return said


def _behind(rows: Sequence[Row], model: str, engine: str, surely: bool) -> str | None:
    """By how much the best peer is better, if it is; `surely`: by more than the standard error."""
    ours, right = find(rows, model, engine), find(rows, model, FLOAT)
    theirs = [r for e in PEERS if (r := find(rows, model, e))]
    if not ours or not theirs or not right:
        return None
    best = max(theirs, key=lambda r: float(r["value"]))
    lead = round(best["value"] - ours["value"], 2)
    if lead <= (spread(ours, best) if surely else 0):
        return None
    words = f"{model} {_change(lead, ours, best)[1:]} ({best['engine']}"
    above = best["value"] - right["value"]
    return words + (f", which is {above:.2f} above float)" if above > 0 else ")")


def _change(points: float, a: Row, b: Row) -> str:
    """The difference of two scores, with its standard error where that is known."""
    return f"{points:+.2f}" + (f" ± {spread(a, b):.2f}" if known(a, b) else "")


def _is(fine: bool) -> str:
    return "met" if fine else "NOT MET"


def reasons(rows: Sequence[Row]) -> list[str]:
    """Why there is no score."""
    said = [
        f"{r['model']}, {r['engine']}: {r.get('failed') or r.get('missing')}"
        for r in rows
        if "value" not in r
    ]
    return list(dict.fromkeys(said))
