"""The gain from more cores, larger batches and sparse weights: one table each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from intaglio import progress
from intaglio.analysis.charts import Chart, page
from intaglio.analysis.performance import Performance
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.targets import chip as chips
from intaglio.text_table import aligned

BATCHES = (1, 2, 3, 4, 5, 6)
UNITS = {
    "clock": ", MHz",
    "ddr": ", GB/s",
    "sram": ", bytes of a core",
}  # units of the swept figures


@dataclass(frozen=True)
class Row:
    """One case of a table."""

    case: str
    cores: int
    batch: int
    milliseconds: float  # of one run
    fps: float
    gain: float  # speed-up over the first case, in samples per second
    bytes: int  # to and from DDR in one run
    weights: int  # bytes of weights in the package
    load: tuple[float, ...]  # the share of the time in which each core computes


def payoff(model: Model, target: str) -> dict[str, list[Row]]:
    """The tables "cores", "batch" and "sparse"; those with one case on this chip are left out."""
    chip = chips.load(target)
    every = range(1, chip.cores + 1)
    cases: dict[str, list[tuple[str, WhatIf]]] = {
        "cores": [(_cores(n), WhatIf(cores=n)) for n in every],
        "batch": [
            (f"batch {b}, {_cores(n)}", WhatIf(cores=n, batch=b))
            for n in sorted({1, chip.cores})
            for b in BATCHES
        ],
        "sparse": [("dense", WhatIf()), *((f, WhatIf(sparse=f)) for f in chip.sparse)],
    }
    tables = {k: rows for k, rows in cases.items() if len(rows) > 1}
    total, done = sum(map(len, tables.values())), 0
    results: dict[str, list[Row]] = {}
    for kind, rows in tables.items():
        results[kind] = _table(model, target, rows, done, total)
        done += len(rows)
    return results


def _cores(n: int) -> str:
    return f"{n} core{'s' * (n > 1)}"


def _table(
    model: Model, target: str, cases: list[tuple[str, WhatIf]], done: int, total: int
) -> list[Row]:
    """The rows of one table; `done` of all `total` cases come before it."""
    rows: list[Row] = []
    for i, (name, what) in enumerate(cases, done):
        with progress.inside("predicting case", i, total):
            p = model.performance(target, what)
        package, _ = model.compiled(target, what)
        weights = sum(m["memory"]["weights"] for m in package.meta["npu"])
        first = rows[0].fps if rows else p.fps
        rows.append(
            Row(
                name,
                p.cores,
                p.batch,
                p.milliseconds,
                p.fps,
                p.fps / first,
                p.bytes,
                weights,
                _load(p),
            )
        )
    return rows


def _load(p: Performance) -> tuple[float, ...]:
    """The share of the NPU's time in which each core computes, over all programs."""
    whole = sum(t.cycles for t in p.timelines) or 1.0
    each = [0.0] * p.cores
    for t in p.timelines:
        for core, busy in enumerate(t.busy()["compute"]):
            each[core] += busy * t.cycles / whole
    return tuple(each)


def text(found: dict[str, list[Row]]) -> str:
    """The tables for a terminal."""
    lines: list[str] = []
    for kind, rows in found.items():
        head = (kind, "ms", "ms a sample", "samples/s", "gain", "MB moved", "MB of weights", "busy")
        table = [head]
        table += [
            (
                r.case,
                f"{r.milliseconds:.3f}",
                f"{r.milliseconds / r.batch:.3f}",
                f"{r.fps:.1f}",
                f"{r.gain:.2f}",
                f"{r.bytes / 1e6:.2f}",
                f"{r.weights / 1e6:.2f}",
                " ".join(f"{v:.0%}" for v in r.load),
            )
            for r in rows
        ]
        lines += [*aligned(table, range(1, 7), (5, 6, 1)), ""]
    return "\n".join(lines).rstrip()


def to_dict(found: dict[str, list[Row]]) -> dict[str, Any]:
    return {kind: [asdict(r) for r in rows] for kind, rows in found.items()}


def plot(title: str, name: str, rows: Sequence[tuple[Any, Performance]]) -> str:
    """A sweep as SVG: time, speed and traffic of one sample."""
    words = isinstance(rows[0][0], str)
    xs = [float(i + 1) if words else float(v) for i, (v, _) in enumerate(rows)]
    figures: dict[str, Callable[[Performance], float]] = {
        "milliseconds a sample": lambda p: p.milliseconds / p.batch,
        "samples a second": lambda p: p.fps,
        "MB to and from DDR a sample": lambda p: p.bytes / 1e6 / p.batch,
    }
    wide = not words and min(xs) > 0 and max(xs) >= 20 * min(xs)  # then on a logarithmic axis
    label_x = f"{name}{UNITS.get(name, '')}"
    charts = [
        Chart(
            title if not i else "",
            label_x,
            label,
            {"": [(x, of(p)) for x, (_, p) in zip(xs, rows, strict=True)]},
            x_ticks=xs,
            x_names=[str(v) for v, _ in rows] if words else (),
            log_x=wide,
        )
        for i, (label, of) in enumerate(figures.items())
    ]
    return page(charts, columns=len(charts))
