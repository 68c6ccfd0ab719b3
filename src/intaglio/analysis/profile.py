"""Profile a package on this machine: the time of every step against the machine's peak."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import intaglio
from intaglio.analysis.agreement import sample
from intaglio.analysis.machine_peak import MachinePeak, machine_peak
from intaglio.analysis.step_names import step_ends
from intaglio.errors import BadInput
from intaglio.package import Package
from intaglio.plan import Step
from intaglio.text_table import aligned

if TYPE_CHECKING:
    from rich.table import Table

TITLES = (
    "step",
    "op",
    "median µs",
    "share",
    "MMACs",
    "KB",
    "GMAC/s",
    "GB/s",
    "of peak",
    "bound by",
)


@dataclass(frozen=True)
class StepTime:
    """One step: median time in a run, work, and the share of the peak that it reaches."""

    name: str
    op: str
    microseconds: float
    macs: int
    bytes: int
    dtype: str
    roofline: float | None  # least time at the peak / the step's time
    bound: str  # "compute", "cache" or "memory": what limits it at the peak
    ends: tuple[str, ...] = ()  # names of what it computes, by which two builds are joined

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
                f"{self.peak.bandwidth:.1f} GB/s of memory, {self.peak.cache:.0f} GB/s of the "
                f"cache (steps up to 1 MB)",
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
        times: list[float] = []
        each: list[list[float]] = []  # milliseconds of every step, by run
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            session.reset_profile()
            start = time.perf_counter()
            session.run(feeds)
            times.append((time.perf_counter() - start) * 1e3)
            measured = [s for s in session.profile() if s.plan == 0]
            each.append([s.milliseconds for s in measured])
    medians = np.median(each, axis=0)  # one run that another program interrupts does not count
    peak, steps = machine_peak(), package.plan.steps
    rows = []
    for i, (m, spent) in enumerate(zip(measured, medians * 1e3, strict=True)):
        step = steps[i] if len(measured) == len(steps) and steps[i].op == m.op else None
        moved, dtype = (0, "f32") if step is None else (_moved(step), _dtype(step))
        macs = m.macs * m.calls
        least, bound = _least(macs, moved, dtype, peak)
        share = min(least / float(spent), 1.0) if least and spent else None
        made = step.outputs[0].name if step and step.outputs else ""
        name, ends = m.origin or made, step_ends(m.origin, made)
        rows.append(StepTime(name, m.op, float(spent), macs, moved, dtype, share, bound, ends))
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
    memory, slow = moved / peak.speed(moved) / 1e3, "cache" if peak.near(moved) else "memory"
    return max(compute, memory), "compute" if compute > memory else slow
