"""The memory of a package on a CPU: weights, internal, inputs and outputs, and its peak."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from intaglio import dtypes
from intaglio.analysis.arena import Span, draw, svg
from intaglio.analysis.step_names import short, step_name, tensor_name
from intaglio.analysis.summary import arena_spans
from intaglio.package import Package
from intaglio.plan import Plan
from intaglio.text_table import wrapped

if TYPE_CHECKING:
    from rich.table import Table

NAMED = 3  # tensors at the peak that a line names
LARGE_GAP = 0.05  # share of the arena above which bytes without tensors are worth a word


@dataclass
class CpuMemory:
    """The bytes of a package while it runs on a CPU, and what is live in each step."""

    target: str
    file: int
    weights: int  # mapped from the file
    internal: int  # the arena of a session
    inputs: int
    outputs: int
    other: int  # of the file: plan, names, metadata
    steps: list[str] = field(default_factory=list, repr=False)  # names
    spans: list[Span] = field(default_factory=list, repr=False)
    types: dict[str, str] = field(default_factory=dict, repr=False)  # of tensors, by name
    float_weights: int = 0  # the part of `weights` that is in floats

    @property
    def total(self) -> int:
        """Bytes of one session with its file, inputs and outputs."""
        return self.file + self.internal + self.inputs + self.outputs

    def live(self) -> list[int]:
        """Occupied bytes of the arena in each step; tensors in the same place count once."""
        return _occupied(self.spans, len(self.steps))

    def peak(self) -> dict[str, Any]:
        """The step with the most live bytes, its tensors, and the most bytes of another step."""
        live = self.live()
        if not self.spans:
            return {"step": 0, "name": "", "bytes": 0, "second": 0, "tensors": []}
        when = live.index(max(live))
        there = _largest_first(s for s in self.spans if s.first <= when <= s.last)
        apart = [n for k, n in enumerate(live) if k != when]
        tensors = [
            {"name": s.name, "bytes": s.size, "first": s.first, "last": s.last} for s in there
        ]
        return {
            "step": when,
            "name": self.steps[when],
            "bytes": live[when],
            "second": max(apart, default=0),
            "tensors": tensors,
        }

    def advice(self) -> list[str]:
        """The cause of the peak, and what would lower it."""
        lines = []
        if self.weights > self.internal:
            floats = self.float_weights > self.weights // 2
            lines.append(
                f"weights take the most ({self.weights:,} bytes): {'int8 weights, or ' * floats}"
                "fewer channels would lower it"
            )
        top = self.peak()
        if not top["tensors"]:
            return [*lines, "no tensor needs internal memory"]
        named = ", ".join(f"'{short(t['name'])}' {t['bytes']:,}" for t in top["tensors"][:NAMED])
        rest = len(top["tensors"]) - NAMED
        more = f" and {rest} more" if rest > 0 else ""
        lines.append(
            f"internal memory peaks at step {top['step']} '{short(top['name'])}', where "
            f"{top['bytes']:,} of {self.internal:,} bytes are live: {named}{more}"
        )
        lines += self._remedies(top)
        gap = self.internal - top["bytes"]
        if gap > LARGE_GAP * self.internal:
            lines.append(f"{gap:,} bytes of the arena are gaps between tensors at the peak")
        return lines

    def _remedies(self, top: dict[str, Any]) -> list[str]:
        when, tensors = top["step"], top["tensors"]
        kept = [t for t in tensors if t["first"] < when < t["last"]]
        lines = []
        if kept:
            longest = max(kept, key=lambda t: t["bytes"])
            without = [
                s for s in self.spans if (s.name, s.first) != (longest["name"], longest["first"])
            ]
            less = max(_occupied(without, len(self.steps)), default=0)
            words = (
                f"'{short(longest['name'])}' is kept from step {longest['first']} to "
                f"{longest['last']} and not used in this one: without it at most {less:,} bytes "
                "would be live"
            )
            lines += [words] * (less < top["bytes"])
        floats = sum(t["bytes"] for t in tensors if self.types.get(t["name"]) == "f32")
        if floats > top["bytes"] // 2:
            lines.append("the tensors are floats: int8 (`intaglio quantize`) takes a quarter")
        same = self.live().count(top["bytes"]) - 1
        if same:
            how = "needs" if same == 1 else "need"
            lines.append(
                f"{same} more step{'s' * (same > 1)} {how} as much: a smaller input, or fewer "
                "channels in all of them, would lower it"
            )
        else:
            lines.append(
                f"a smaller input, or fewer channels in '{short(tensors[0]['name'])}', would lower "
                f"it; the next highest step needs {top['second']:,} bytes"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        names = ("target", "file", "weights", "internal", "inputs", "outputs", "other", "total")
        spans = [
            {"name": s.name, "offset": s.offset, "bytes": s.size, "first": s.first, "last": s.last}
            for s in self.spans
        ]
        return {
            **{n: getattr(self, n) for n in names},
            "peak": self.peak(),
            "advice": self.advice(),
            "live": self.live(),
            "tensors": spans,
        }

    def rows(self) -> list[tuple[str, str]]:
        """What takes memory, and its bytes."""
        kinds = ("weights", "internal", "inputs", "outputs", "other")
        return [(k, f"{getattr(self, k):,}") for k in kinds]

    def __str__(self) -> str:
        lines = [f"{self.target}: {self.total:,} bytes, {self.file:,} of them in the file"]
        wide = max(len(n) for _, n in self.rows())
        lines += [f"  {k:9} {n:>{wide}}" for k, n in self.rows()]
        drawn = draw(self.spans, self.internal, len(self.steps))
        return wrapped("\n".join([*lines, "", drawn, "", *self.advice()]))

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=f"{self.total:,} bytes", caption="\n".join(self.advice()))
        table.add_column("memory")
        table.add_column("bytes", justify="right")
        for row in self.rows():
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        from intaglio.analysis.html_table import html_table

        return html_table(self.advice()[-1], ("memory", "bytes"), self.rows()) + self.svg()

    def svg(self) -> str:
        """The arena over time: a box for each tensor."""
        title = f"{self.target}: {self.internal:,} bytes of internal memory by steps"
        return svg(self.spans, self.internal, len(self.steps), title, unit="step")


def cpu_memory(package: Package) -> CpuMemory:
    """The memory of a package for a CPU, at its largest sizes."""
    plan = package.plans[-1]
    held = {id(t): t for t in plan.tensors() if t.fixed}
    weights = sum(t.size for t in held.values())
    file = len(package.bytes)
    return CpuMemory(
        str(package.meta.get("target", "cpu")),
        file,
        weights,
        plan.arena,
        sum(t.size for t in plan.inputs if t is not None),
        sum(t.size for t in plan.outputs),
        max(file - weights, 0),
        [step_name(s) for s in plan.steps],
        _named(arena_spans(plan), plan),
        {
            tensor_name(t.name): t.type.dtype
            for t in plan.tensors()
            if dtypes.is_float(t.type.dtype)
        },
        sum(t.size for t in held.values() if dtypes.is_float(t.type.dtype)),
    )


def _named(spans: list[Span], plan: Plan) -> list[Span]:
    """Spans with the names of the model file; one without gets that of the step that writes it."""
    names = [tensor_name(s.name) or step_name(plan.steps[s.first]) for s in spans]
    return [replace(s, name=n) for s, n in zip(spans, names, strict=True)]


def _largest_first(spans: Any) -> list[Span]:
    return sorted(spans, key=lambda s: (-s.size, s.offset))


def _occupied(spans: list[Span], steps: int) -> list[int]:
    """The union of the live intervals of the arena in each step."""
    starts: dict[int, list[Span]] = {}
    for s in sorted(spans, key=lambda s: s.offset):
        for k in range(s.first, min(s.last, steps - 1) + 1):
            starts.setdefault(k, []).append(s)
    result = []
    for k in range(steps):
        total = end = 0
        for s in starts.get(k, ()):
            total += max(s.offset + s.size - max(s.offset, end), 0)
            end = max(end, s.offset + s.size)
        result.append(total)
    return result
