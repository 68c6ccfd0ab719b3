"""The memory report of a package: on an NPU per module and feature map, on a CPU per tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from intaglio.analysis.arena import Span, draw, live_bytes, svg
from intaglio.analysis.cpu_memory import CpuMemory, cpu_memory
from intaglio.analysis.step_names import short
from intaglio.errors import BadInput
from intaglio.npu.memory import MapRow, Memory, table
from intaglio.package import Package
from intaglio.text_table import wrapped


@dataclass
class Report:
    """The memory of a package on the NPU and on the CPU."""

    target: str
    file: int
    cpu_weights: int
    cpu_arena: int
    modules: list[Memory] = field(default_factory=list)
    lives: list[list[Span]] = field(default_factory=list, repr=False)  # internal maps, per module
    layers: list[int] = field(default_factory=list)  # number of layers, per module

    @property
    def total(self) -> int:
        """Bytes that must be in DDR at once."""
        return self.cpu_weights + self.cpu_arena + sum(m.total for m in self.modules)

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "file": self.file,
            "cpu_weights": self.cpu_weights,
            "cpu_arena": self.cpu_arena,
            "total": self.total,
            "modules": [
                m.to_dict() | {"internal_peak": peak(spans), "advice": advice(m, spans)}
                for m, spans in zip(self.modules, self.lives, strict=True)
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.target}: {self.total} bytes of DDR, {self.file} in the file"]
        lines.append(f"CPU beside it: {self.cpu_weights} of weights, {self.cpu_arena} of arena")
        for number, found in enumerate(self.modules):
            lines += ["", f"npu{number}", *(f"  {line}" for line in table(found))]
            if spans := self.lives[number]:
                drawn = draw(spans, found.internal, self.layers[number], unit="layer")
                lines += ["", "  internal memory by layers:", drawn]
            lines += ["", *(f"  {line}" for line in advice(found, spans))]
        return wrapped("\n".join(lines))

    def _repr_html_(self) -> str:
        from intaglio.analysis.html_table import html_table

        kinds = ("weights", "internal", "inputs", "outputs", "commands", "peak")
        rows = [
            [f"npu{k}", *(f"{getattr(m, x):,}" for x in kinds)] for k, m in enumerate(self.modules)
        ]
        titles = ("program", *kinds)
        return html_table(f"{self.target}: {self.total:,} bytes of DDR", titles, rows) + picture(
            self
        )


def overall(report: Report) -> list[str]:
    """What takes the most memory of all programs, and what would lower it."""
    modules = report.modules
    if not modules:
        return []
    k = max(range(len(modules)), key=lambda i: (modules[i].internal, modules[i].weights))
    found = advice(modules[k], report.lives[k])
    if len(modules) == 1:
        return [f"npu0: {w}" for w in found]
    moved = sum(m.inputs + m.outputs for m in modules)
    weights = sum(m.weights for m in modules)
    if moved >= max(weights, report.cpu_arena):
        lines = [
            f"inputs and outputs of the {len(modules)} programs take the most ({moved:,} bytes): "
            "with fewer ops on the CPU between them there are fewer"
        ]
    elif weights >= report.cpu_arena:
        lines = [f"weights take the most ({weights:,} bytes): fewer channels would lower it"]
    else:
        lines = [f"the CPU's arena takes the most ({report.cpu_arena:,} bytes)"]
    return lines + [f"npu{k}: {w}" for w in found if not w.startswith("weights take")]


def advice(m: Memory, spans: list[Span]) -> list[str]:
    """What takes the most memory, what is live at the peak, and what would lower it."""
    lines = []
    if m.weights >= m.internal:
        lines.append(
            f"weights take the most ({m.weights:,} bytes): fewer channels, or sparse "
            "weights if the chip supports them, would lower it"
        )
    if not spans:
        return [*lines, "no feature map leaves the core's memory"]
    most = peak(spans)
    there = sorted((s for s in spans if s.first <= most["layer"] <= s.last), key=lambda s: -s.size)
    named = ", ".join(f"'{short(s.name)}' {s.size:,}" for s in there[:3])
    more = f" and {len(there) - 3} more" if len(there) > 3 else ""
    lines.append(
        f"internal memory peaks at layer {most['layer']}, where {most['bytes']:,} of "
        f"{m.internal:,} bytes are live: {named}{more}"
    )
    longest = max(there, key=lambda s: s.size * (s.last - s.first))
    rest = sorted(live_bytes([s for s in spans if s is not longest], most["layers"]))[-1]
    less = f"; without it at most {rest:,} bytes would be live"
    row = next(r for r in m.maps if _span(r) == longest)
    if row.read - row.layer > 3 and len(there) > 1:
        lines.append(
            f"'{short(longest.name)}' is kept from layer {row.layer} to {row.read}: "
            f"reading it sooner, or computing it later, would lower that{less}"
        )
    else:
        lines.append(
            f"a smaller image, or fewer channels of '{short(there[0].name)}', would lower that"
            f"{less if there[0] is longest else ''}"
        )
    return lines


def peak(spans: list[Span]) -> dict[str, Any]:
    """The layer with the most live internal memory, and its maps."""
    if not spans:
        return {"layer": 0, "bytes": 0, "layers": 0, "maps": []}
    live = live_bytes(spans, max(s.last for s in spans) + 1)
    when = live.index(max(live))
    maps = [s.name for s in spans if s.first <= when <= s.last]
    return {"layer": when, "bytes": max(live), "layers": len(live), "maps": maps}


def picture(report: Report | CpuMemory) -> str:
    """The internal memory over time as SVG; on an NPU that of the largest module."""
    if isinstance(report, CpuMemory):
        return report.svg()
    number = max(range(len(report.modules)), key=lambda i: report.modules[i].internal, default=-1)
    if number < 0 or not report.lives[number]:
        return svg([], 0, 0, f"{report.target}: no feature map leaves the core's memory")
    spans, module = report.lives[number], report.modules[number]
    title = f"{report.target}, npu{number}: {module.internal:,} bytes of internal memory by layers"
    return svg(spans, module.internal, report.layers[number], title)


def memory(package: Package) -> Report | CpuMemory:
    """The memory report of a package, for the NPU or the CPU that it was compiled for."""
    meta = package.meta
    if "npu" not in meta:
        if meta.get("target", "cpu") == "cpu":
            return cpu_memory(package)
        raise BadInput(
            "this package has no NPU module, or is stripped; "
            "`intaglio inspect` shows the memory of the CPU's"
        )
    modules = [_module(m["memory"]) for m in meta["npu"]]
    plan = package.plans[-1]  # the largest: the metadata is of it
    held = {id(t): t for t in plan.tensors() if t.memory == "const" and t.data is not None}
    files = package.vendor_files()  # hold weights and commands
    programs = sum(map(len, files.values())) or sum(m.weights for m in modules)
    weights = sum(t.size for t in held.values()) - programs
    report = Report(meta["target"], len(package.bytes), max(weights, 0), plan.arena, modules)
    report.lives = [lives(m) for m in modules]
    report.layers = [len(m["layers"]) for m in meta["npu"]]
    return report


def _module(plain: dict[str, Any]) -> Memory:
    rows: list[MapRow] = []
    for r in plain["maps"]:
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in r.items()}
        rows.append(MapRow(**given))
    return Memory(**{k: v for k, v in plain.items() if k not in ("maps", "total")}, maps=rows)


def lives(m: Memory) -> list[Span]:
    """The internal maps with the layers at which they are live."""
    return [_span(r) for r in m.maps if r.place in ("ddr", "shared")]


def _span(r: MapRow) -> Span:
    """A map with the layers at which it is allocated."""
    return Span(r.name or f"{r.user} {r.layer}", r.start, r.size, r.first, r.last)
