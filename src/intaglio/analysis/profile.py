"""Profile a package on this machine: the time of every step against the machine's peak."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import intaglio
from intaglio.analysis.agreement import sample
from intaglio.analysis.machine_peak import MachinePeak, machine_peak
from intaglio.errors import BadInput
from intaglio.package import Package
from intaglio.plan import Step
from intaglio.text_table import aligned

if TYPE_CHECKING:
    from rich.table import Table

TITLES = ("step", "op", "mean µs", "share", "MMACs", "KB", "GMAC/s", "GB/s", "of peak", "bound by")


@dataclass(frozen=True)
class StepTime:
    """One step: mean time of a call, work, and the share of the peak that it reaches."""

    name: str
    op: str
    microseconds: float
    macs: int
    bytes: int
    dtype: str
    roofline: float | None  # least time at the peak / the step's time
    bound: str  # "compute" or "memory": what limits it at the peak

    @property
    def gmacs(self) -> float:
        return self.macs / self.microseconds / 1e3 if self.microseconds else 0.0

    @property
    def gigabytes(self) -> float:
        return self.bytes / self.microseconds / 1e3 if self.microseconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "op", "microseconds", "macs", "bytes", "dtype", "gmacs", "gigabytes")
        return {n: getattr(self, n) for n in (*names, "roofline", "bound")}


@dataclass(frozen=True)
class Profile:
    """All steps of a model on one thread, and the machine's peaks."""

    steps: list[StepTime]
    milliseconds: float  # fastest run
    runs: int
    peak: MachinePeak

    def to_dict(self) -> dict[str, Any]:
        return {
            "milliseconds": self.milliseconds,
            "runs": self.runs,
            "peak": self.peak.to_dict(),
            "steps": [s.to_dict() for s in self.steps],
        }

    def rows(self) -> list[tuple[str, ...]]:
        total = sum(s.microseconds for s in self.steps) or 1.0
        return [
            (
                s.name,
                s.op,
                f"{s.microseconds:.1f}",
                f"{s.microseconds / total:.1%}",
                f"{s.macs / 1e6:.2f}" if s.macs else "",
                f"{s.bytes / 1e3:.1f}",
                f"{s.gmacs:.1f}" if s.macs else "",
                f"{s.gigabytes:.1f}",
                "" if s.roofline is None else f"{s.roofline:.0%}",
                s.bound,
            )
            for s in self.steps
        ]

    def __str__(self) -> str:
        lines = aligned([TITLES, *self.rows()], range(2, 9), drop=(7, 5, 6))
        rates = (("f32", self.peak.f32), ("int8", self.peak.i8))
        known = ", ".join(f"{r:.0f} GMAC/s in {n}" for n, r in rates if r)
        return "\n".join(
            [
                *lines,
                f"{self.milliseconds:.3f} ms (fastest of {self.runs} runs on one thread); peak of "
                f"a core, measured: {known + ', ' if known else ''}"
                f"{self.peak.bandwidth:.1f} GB/s of memory",
            ]
        )

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=f"{self.milliseconds:.3f} ms")
        for title in TITLES:
            table.add_column(title, overflow="fold")
        for row in self.rows():
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        from intaglio.analysis.html_table import html_table

        return html_table(f"{self.milliseconds:.3f} ms", TITLES, self.rows())

    def trace(self) -> str:
        """One run as events for chrome://tracing and Perfetto."""
        now, events = 0.0, []
        for s in self.steps:
            facts = {k: v for k, v in s.to_dict().items() if k not in ("name", "microseconds")}
            events.append(
                {"name": f"{s.op} {s.name}", "ph": "X", "pid": 0, "tid": 0, "ts": now,
                 "dur": s.microseconds, "args": facts}
            )  # fmt: skip
            now += s.microseconds
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def profile(package: Package, seconds: float = 1.0) -> Profile:
    """Run a package on random inputs on one thread, and time its steps."""
    if not all(t.fixed for t in package.inputs.values()) or len(package.plans) != 1:
        raise BadInput("the package has open dimensions or several sizes; compile one size of it")
    feeds = {n: sample(t) for n, t in package.inputs.items()}
    with intaglio.open(package, 1, profile=True) as session:
        session.run(feeds)
        session.reset_profile()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            session.run(feeds)
            times.append((time.perf_counter() - start) * 1e3)
        measured = [s for s in session.profile() if s.plan == 0]
    peak, steps = machine_peak(), package.plan.steps
    rows = []
    for i, m in enumerate(measured):
        step = steps[i] if len(measured) == len(steps) and steps[i].op == m.op else None
        moved, dtype = (0, "f32") if step is None else (_moved(step), _dtype(step))
        spent = m.milliseconds / len(times) * 1e3
        least, bound = _least(m.macs * m.calls // len(times), moved, dtype, peak)
        share = min(least / spent, 1.0) if least and spent else None
        name = m.origin or (step.outputs[0].name if step and step.outputs else "")
        macs = m.macs * m.calls // len(times)
        rows.append(StepTime(name, m.op, spent, macs, moved, dtype, share, bound))
    return Profile(rows, min(times), len(times), peak)


def _moved(step: Step) -> int:
    """The bytes of a step's inputs, weights and outputs, each counted once."""
    seen = {id(t): t.size for t in (*step.inputs, *step.outputs) if t is not None}
    return sum(seen.values())


def _dtype(step: Step) -> str:
    first = next((t for t in step.inputs if t is not None), None)
    return first.type.dtype if first is not None else "f32"


def _least(macs: int, moved: int, dtype: str, peak: MachinePeak) -> tuple[float, str]:
    """The least microseconds at the peak, and what limits them."""
    rate = peak.macs(dtype)
    compute = macs / rate / 1e3 if rate else 0.0
    memory = moved / peak.bandwidth / 1e3
    return max(compute, memory), "compute" if compute > memory else "memory"


def difference(before: Profile, after: Profile) -> list[dict[str, Any]]:
    """Two builds side by side, steps joined by their node, largest change first."""
    times: dict[str, list[float]] = {}
    for i, p in enumerate((before, after)):
        for s in p.steps:
            times.setdefault(s.name or s.op, [0.0, 0.0])[i] += s.microseconds
    rows = [{"name": n, "before": a, "after": b, "change": b - a} for n, (a, b) in times.items()]
    return sorted(rows, key=lambda r: -abs(r["change"]))


def difference_text(before: Profile, after: Profile, most: int = 20) -> str:
    """The steps whose times changed most, and the totals."""
    rows: Sequence[dict[str, Any]] = difference(before, after)[:most]
    table = [("step", "before µs", "after µs", "change µs")]
    table += [
        (r["name"], f"{r['before']:.1f}", f"{r['after']:.1f}", f"{r['change']:+.1f}") for r in rows
    ]
    ratio = before.milliseconds / after.milliseconds
    total = (
        f"{before.milliseconds:.3f} ms -> {after.milliseconds:.3f} ms, {ratio:.2f} times as fast"
    )
    return "\n".join([*aligned(table, range(1, 4)), total])
