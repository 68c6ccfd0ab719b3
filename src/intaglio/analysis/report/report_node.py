"""The data of a report by node: what runs, its time, memory and error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from intaglio.analysis.comparison import Row
from intaglio.analysis.step_names import short

BINS = 72  # of a histogram on the page


@dataclass
class ReportNode:
    """One step of a plan, one layer of an NPU program, or an input or output of the model."""

    op: str
    name: str
    origin: str = ""  # place in the model file
    unit: str = ""  # CPU, NPU; empty: an input or output of the model
    tensor: str = ""  # its result
    type: str = ""
    reads: str = ""  # types of its inputs
    attrs: dict[str, Any] = field(default_factory=dict)
    macs: int = 0
    bytes: int = 0  # of its inputs, weights and outputs
    weights: int = 0  # bytes
    microseconds: float | None = None
    of_peak: float | None = None  # share of the peak that it reaches
    bound: str = ""
    live: int | None = None  # bytes of internal memory while it runs
    why: str = ""  # why it is not on the NPU
    advice: str = ""
    module: str = ""
    number: int = -1  # in its program, or of its step
    rows: list[Row] = field(default_factory=list, repr=False)  # its tensors in the comparison

    @property
    def worst(self) -> Row | None:
        """The tensor with the largest error of its own, else in the whole model."""
        if not self.rows:
            return None
        return max(self.rows, key=lambda r: (_own(r), _entire(r)))

    @property
    def error(self) -> float | None:
        """The relative error that colours the node."""
        row = self.worst
        if row is None:
            return None
        found = _own(row) if row.single is not None else _entire(row)
        return found if math.isfinite(found) else 1.0

    def facts(self) -> dict[str, str]:
        """What the page shows of the node, as words."""
        facts = {
            "name": self.name if short(self.name) != self.name else "",
            "result": self.type,
            "tensor": self.tensor,
            "node": self.origin,
            "inputs": self.reads,
        }
        facts |= {"runs on": f"{self.unit} {self.module}".strip()}
        facts |= {k: str(v) for k, v in self.attrs.items()}
        facts["MACs"] = f"{self.macs:,}" if self.macs else ""
        facts["weights"] = f"{self.weights:,} bytes" if self.weights else ""
        facts["bytes moved"] = f"{self.bytes:,}" if self.bytes else ""
        if self.microseconds is not None:
            facts["time"] = f"{self.microseconds:.1f} µs"
        if self.of_peak is not None:
            facts["of peak"] = f"{self.of_peak:.0%}"
        facts["bound by"] = self.bound
        facts["live memory"] = f"{self.live:,} bytes" if self.live is not None else ""
        facts["not on the NPU"] = self.why
        facts["advice"] = self.advice
        for row in self.rows:
            facts |= _accuracy(row, "" if len(self.rows) == 1 else f" '{row.name}'")
        return {k: v for k, v in facts.items() if v}

    def to_dict(self) -> dict[str, Any]:
        """The node as JSON data."""
        names = (
            "op",
            "name",
            "origin",
            "unit",
            "tensor",
            "type",
            "reads",
            "macs",
            "bytes",
            "weights",
        )
        more = ("microseconds", "of_peak", "bound", "live", "why", "advice", "module", "error")
        plain = {n: getattr(self, n) for n in (*names, *more)}
        return plain | {
            "attrs": {k: str(v) for k, v in self.attrs.items()},
            "tensors": [r.to_dict() for r in self.rows],
        }

    def for_page(self) -> dict[str, Any]:
        """The data that the page's script reads."""
        plain: dict[str, Any] = {
            "op": self.op,
            "name": short(self.name or self.tensor),
            "unit": self.unit,
            "macs": self.macs,
            "us": self.microseconds,
            "live": self.live,
            "error": self.error,
            "facts": self.facts(),
            "also": sorted({x for r in self.rows for x in (r.name, r.other, r.origin) if x}),
        }
        row = self.worst
        if row is not None and (shown := histogram(row)):
            plain["histogram"] = shown
            plain["limits"] = None if row.range.limits is None else list(row.range.limits)
        return plain


def _own(row: Row) -> float:
    return row.single.relative if row.single is not None else 0.0


def _entire(row: Row) -> float:
    return max((e.relative for e in row.entire.values()), default=0.0)


def _accuracy(row: Row, of: str) -> dict[str, str]:
    facts = {}
    if row.single is not None:
        facts[f"alone{of}"] = f"cosine {row.single.cosine:.5f}, {_decibels(row.single.sqnr)}"
    for run, e in row.entire.items():
        facts[f"{run}{of}"] = f"cosine {e.cosine:.5f}, max error {e.max_error:.4g}"
    if row.range.values:
        facts[f"range{of}"] = f"{row.range.low:.4g} to {row.range.high:.4g}"
        if row.range.held != (row.range.low, row.range.high):
            low, high = row.range.held
            facts[f"by channel{of}"] = f"{low:.4g} to {high:.4g}, times factors of the channels"
    if row.range.limits is not None:
        low, high = row.range.limits
        cut = f", {row.range.saturation:.2%} cut off"
        fitted = " (fitted)" if row.fitted else ""
        facts[f"kept{of}"] = f"{low:.4g} to {high:.4g}{cut}{fitted}"
    if row.range.f16_overflow:
        facts[f"f16{of}"] = "overflow"
    return facts


def _decibels(sqnr: float) -> str:
    return f"SQNR {sqnr:.1f} dB" if math.isfinite(sqnr) else "exact" if sqnr > 0 else "no signal"


def histogram(row: Row) -> dict[str, Any] | None:
    """The golden values of a tensor in BINS equal bins from its least to its largest."""
    seen = row.range.observed
    if seen is None or not seen.samples or not math.isfinite(seen.low):
        return None
    low, high = float(seen.low), float(seen.high)
    if not low < high:
        return None
    counts, bins = seen.counts, len(seen.counts)
    reach = 2.0**seen.exponent
    result = [0] * BINS
    for i in counts.nonzero()[0]:
        middle = (2 * (int(i) + 0.5) / bins - 1) * reach
        place = int((middle - low) / (high - low) * BINS)
        result[min(max(place, 0), BINS - 1)] += int(counts[i])
    if seen.zeros:
        place = int((0.0 - low) / (high - low) * BINS)
        result[min(max(place, 0), BINS - 1)] += int(seen.zeros)
    return {"low": low, "high": high, "counts": result}
