"""All that is known of a model, for one page: graph, accuracy, speed, memory, partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intaglio.analysis.comparison import Comparison
from intaglio.analysis.cpu_memory import CpuMemory
from intaglio.analysis.memory import Report as NpuMemory
from intaglio.analysis.performance import Performance
from intaglio.analysis.profile import Profile
from intaglio.analysis.report.report_node import ReportNode
from intaglio.analysis.report.speed_charts import Roof
from intaglio.analysis.step_names import short
from intaglio.files import write_atomically
from intaglio.passes.partition_report import Partition

if TYPE_CHECKING:
    from rich.table import Table

SLOWEST = 3  # nodes that the findings name


@dataclass
class ModelReport:
    """The report of one model on one target. Parts that are not known are None."""

    name: str
    target: str
    nodes: list[ReportNode] = field(repr=False)
    edges: dict[tuple[int, int], str] = field(repr=False)
    file: int = 0  # bytes of the package
    comparison: Comparison | None = None
    profile: Profile | None = field(default=None, repr=False)
    performance: Performance | None = field(default=None, repr=False)
    memory: CpuMemory | NpuMemory | None = field(default=None, repr=False)
    partition: Partition | None = None
    notes: list[str] = field(default_factory=list)  # what is missing, and how to get it

    @property
    def milliseconds(self) -> float | None:
        """Measured on this machine's CPU, or predicted for a chip."""
        if self.performance is not None:
            return self.performance.milliseconds
        return None if self.profile is None else self.profile.milliseconds

    @property
    def macs(self) -> int:
        return sum(n.macs for n in self.nodes)

    @property
    def roof(self) -> Roof | None:
        """The peaks of the roofline."""
        if self.performance is not None:
            from intaglio.targets import chip as chips

            chip = chips.load(self.performance.chip)
            rates = chip.units["conv"].rate
            cores, clock = self.performance.cores, self.performance.clock
            peaks = {k: v * clock * cores / 1e3 for k, v in rates.items() if k in ("i8", "f16")}
            return Roof(peaks, self.performance.ddr)
        if self.profile is not None:
            peak = self.profile.peak
            known = {"f32": peak.f32, "int8": peak.i8}
            return Roof({k: v for k, v in known.items() if v}, peak.bandwidth, peak.cache)
        return None

    def slowest(self) -> list[ReportNode]:
        timed = [n for n in self.nodes if n.microseconds]
        return sorted(timed, key=lambda n: -(n.microseconds or 0.0))[:SLOWEST]

    def findings(self) -> list[tuple[str, str]]:
        """Title and words: where the model is wrong, slow and large, and what would help."""
        found = []
        if self.comparison is not None:
            found.append(("accuracy", self.comparison.verdict))
        if self.milliseconds is not None:
            whole = sum(n.microseconds or 0.0 for n in self.nodes) or 1.0
            slow = ", ".join(
                f"'{short(n.name)}' ({n.op}) {(n.microseconds or 0) / whole:.0%}"
                for n in self.slowest()
            )
            how = "predicted" if self.performance is not None else "measured on one thread"
            found.append(("time", f"{self.milliseconds:.3f} ms, {how}; slowest: {slow}"))
            advised = [n for n in self.slowest() if n.advice]
            found += [("speed-up", f"'{short(n.name)}': {n.advice}") for n in advised]
        found += [("memory", words) for words in self.memory_advice()]
        if self.partition is not None and self.partition.on_cpu:
            row = max(self.partition.on_cpu, key=lambda r: r.share)
            remedy = f"; {row.remedy}" if row.remedy else ""
            named = f"'{short(row.name)}' ({row.op})" if row.name else row.op
            found.append(("on the CPU", f"{named}: {row.why}{remedy}"))
        return found + [("missing", words) for words in self.notes]

    def memory_advice(self) -> list[str]:
        """The cause of the peak of internal memory, and what would lower it."""
        if isinstance(self.memory, CpuMemory):
            return self.memory.advice()
        if self.memory is None:
            return []
        from intaglio.analysis.memory import overall

        return overall(self.memory)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {
            "name": self.name,
            "target": self.target,
            "file": self.file,
            "macs": self.macs,
            "milliseconds": self.milliseconds,
            "findings": [{"about": a, "words": w} for a, w in self.findings()],
            "nodes": [n.to_dict() for n in self.nodes],
            "edges": [{"from": a, "to": b, "type": t} for (a, b), t in self.edges.items()],
            "accuracy": None if self.comparison is None else self.comparison.to_dict(),
            "profile": None if self.profile is None else self.profile.to_dict(),
            "performance": None if self.performance is None else self.performance.to_dict(),
            "memory": None if self.memory is None else self.memory.to_dict(),
            "partition": None if self.partition is None else self.partition.to_dict(),
        }

    def html(self) -> str:
        """One self-contained HTML page, which loads nothing."""
        from intaglio.analysis.report.report_page import page

        return page(self)

    def save(self, path: str | Path) -> None:
        """Write the HTML page."""
        write_atomically(path, self.html().encode())

    def __str__(self) -> str:
        wide = max((len(a) for a, _ in self.findings()), default=0)
        head = f"{self.name} on {self.target}: {len(self.nodes)} nodes"
        return "\n".join([head, *(f"{a:{wide}}  {w}" for a, w in self.findings())])

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=f"{self.name} on {self.target}")
        for title in ("about", "finding"):
            table.add_column(title, overflow="fold")
        for row in self.findings():
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        from intaglio.analysis.html_table import html_table

        rows: Sequence[tuple[str, str]] = self.findings()
        return html_table(f"{self.name} on {self.target}", ("about", "finding"), rows)
