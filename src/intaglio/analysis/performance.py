"""The predicted speed of a package on its chip, layer by layer, from its NPU programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from intaglio.core_mask import CoreMask, chosen_cores, mask_bits
from intaglio.errors import BadInput, option
from intaglio.npu.own import isa
from intaglio.npu.predict import bands
from intaglio.npu.predict.engines import Timed
from intaglio.npu.predict.timeline import Timeline, timeline
from intaglio.package import Package
from intaglio.passes.partition_report import OnCpu, Partition
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip


@dataclass(frozen=True)
class LayerRow:
    """One layer of the network, on the NPU or the CPU."""

    id: int  # in execution order
    module: str
    op: str
    name: str
    dtype: str
    unit: str  # NPU or CPU
    inputs: str
    output: str
    ddr_cycles: float
    npu_cycles: float
    cycles: float  # on the critical path: overlap with other layers removed
    microseconds: float
    mac_use: float  # share of the peak MAC rate of the cores that run it
    bytes: int  # to and from DDR
    near: int  # to and from shared SRAM
    bound: str  # compute, bandwidth, launch, CPU
    hint: str = ""
    load: tuple[float, ...] = ()  # share of its work on each core
    all_cores: float = 1.0  # upper bound of the speed-up with all cores of the chip
    layer: int = -1  # its number in its program; -1: it runs on the CPU

    @property
    def max_cycles(self) -> float:
        """The larger of DDR and NPU cycles: the lower bound with perfect overlap."""
        return max(self.ddr_cycles, self.npu_cycles)


@dataclass(frozen=True)
class Part:
    """An NPU program, or a run of CPU ops before or after one."""

    name: str
    begin: float  # microseconds
    end: float
    line: Timeline | None = field(default=None, repr=False)  # None: runs on the CPU


@dataclass
class Performance:
    """The predicted performance of one package on one chip."""

    chip: str
    clock: float  # MHz
    ddr: float  # bytes per nanosecond
    cores: int
    milliseconds: float = 0.0
    layers: list[LayerRow] = field(default_factory=list)
    busy: list[dict[str, list[float]]] = field(
        default_factory=list
    )  # by NPU program: share of the time of queues and DDR
    npu_milliseconds: float = 0.0
    cpu_milliseconds: float = 0.0
    estimates: list[str] = field(default_factory=list)  # figures of the chip that no source states
    parts: list[Part] = field(default_factory=list, repr=False)  # in execution order
    batch: int = 1  # samples per run
    chip_cores: int = 1  # cores of the chip
    core_numbers: tuple[int, ...] = (0,)  # cores that run it
    name: str = ""  # name of the model
    source: str = "the program of Intaglio's own instructions and the figures of the chip"
    notes: list[str] = field(default_factory=list)  # what the time leaves out
    commands: Timed | None = field(default=None, repr=False)  # of a vendor's file
    family: str = ""  # of the chip
    kind: str = bands.CNN  # of the network: cnn, detector, transformer

    @property
    def band(self) -> bands.Band:
        """The milliseconds between which 80 % of such predictions lie; see docs/predict.md."""
        return bands.band(self.family, self.kind, self.milliseconds)

    @property
    def timelines(self) -> list[Timeline]:
        """The timelines of the NPU programs."""
        return [p.line for p in self.parts if p.line is not None]

    @property
    def mac_use(self) -> float:
        """Share of the peak MAC rate of the cores that run it, over the NPU's time."""
        used = sum(r.mac_use * max(r.cycles, r.npu_cycles / self.cores) for r in self.layers)
        return used / max(self.npu_milliseconds * 1e3 * self.clock, 1e-9)

    @property
    def fps(self) -> float:
        """Samples per second."""
        return self.batch * 1e3 / self.milliseconds if self.milliseconds else 0.0

    @property
    def all_cores(self) -> float:
        """Upper bound of the speed-up with all cores of the chip, at unchanged DDR bandwidth."""
        less = sum(r.microseconds * (1 - 1 / r.all_cores) for r in self.layers) / 1e3
        return self.milliseconds / (self.milliseconds - less) if self.milliseconds else 1.0

    @property
    def bytes(self) -> int:
        return sum(r.bytes for r in self.layers)

    def ranking(self) -> list[tuple[str, int, float, float]]:
        """By kind of op, slowest first: name, number of layers, microseconds, share of the time."""
        sums: dict[str, list[float]] = {}
        for r in self.layers:
            one = sums.setdefault(f"{r.op} ({r.unit})", [0, 0.0])
            one[0] += 1
            one[1] += r.microseconds
        whole = sum(t for _, t in sums.values()) or 1.0
        rows = [(k, int(n), t, t / whole) for k, (n, t) in sums.items()]
        return sorted(rows, key=lambda r: (-r[2], r[0]))

    def bounds(self) -> dict[str, float]:
        """The share of the time that each bound accounts for, the largest first."""
        sums: dict[str, float] = {}
        for r in self.layers:
            sums[r.bound] = sums.get(r.bound, 0.0) + r.microseconds
        whole = sum(sums.values()) or 1.0
        return {k: v / whole for k, v in sorted(sums.items(), key=lambda x: -x[1])}

    def to_dict(self) -> dict[str, Any]:
        names = (
            "name",
            "chip",
            "clock",
            "ddr",
            "cores",
            "milliseconds",
            "npu_milliseconds",
            "cpu_milliseconds",
            "busy",
            "estimates",
            "batch",
            "fps",
            "bytes",
            "chip_cores",
            "core_numbers",
            "all_cores",
            "mac_use",
            "source",
            "notes",
        )
        results = {k: getattr(self, k) for k in names}
        ranking = [
            dict(zip(("op", "count", "microseconds", "share"), r, strict=True))
            for r in self.ranking()
        ]
        layers = [asdict(r) | {"max_cycles": r.max_cycles} for r in self.layers]
        parts = [{"name": p.name, "begin": p.begin, "end": p.end} for p in self.parts]
        return results | {
            "kind": self.kind,
            "band": asdict(self.band),
            "bounds": self.bounds(),
            "ranking": ranking,
            "parts": parts,
            "layers": layers,
        }

    def trace(self) -> str:
        """The timeline of NPU queues and CPU, as JSON for chrome://tracing and Perfetto."""
        from intaglio.analysis.performance_trace import events

        return json.dumps({"traceEvents": list(events(self)), "displayTimeUnit": "ns"})

    def __str__(self) -> str:
        from intaglio.analysis.performance_text import text

        return text(self)

    def _repr_html_(self) -> str:
        from intaglio.analysis.performance_text import html

        return html(self)


def performance(
    package: Package,
    *,
    chip: str | Chip | None = None,
    clock: float | None = None,
    ddr: float | None = None,
    core_mask: CoreMask | None = None,
) -> Performance:
    """Predict how fast a package runs on the chip that it was compiled for, at its largest sizes.

    `clock` (MHz) and `ddr` (bytes per nanosecond) replace the chip's figures. Other memory sizes,
    batches and types, and more cores, need another program: compile for them. `core_mask` chooses
    the cores that run it, as that of `intaglio.open` does.
    """
    meta = package.meta
    if package.vendor_files():
        return _of_chip_files(package, chip, clock, ddr, core_mask)
    if "npu" not in meta or "partition" not in meta:
        what = "stripped" if meta.get("target") not in (None, "cpu") else "for the CPU"
        raise BadInput(
            f"this package is {what}, so it has no NPU program to predict from; "
            f"compile for a chip with {option('target')}, or measure with `intaglio bench`"
        )
    found = chips.load(chip or meta["target"]) if not isinstance(chip, Chip) else chip
    changes = {k: v for k, v in (("clock", clock), ("ddr", ddr)) if v is not None}
    for what, v in changes.items():
        if not 0 < v < math.inf:
            raise BadInput(f"{what} is {v:g}; it must be above 0")
    found = replace(found, **changes)  # type: ignore[arg-type]
    plan = package.plans[-1]  # the largest: the metadata is of it
    steps = [s for s in plan.steps if s.op == "npu.run"]
    programs = [s.inputs[0].data for s in steps if s.inputs[0] and s.inputs[0].data is not None]
    partition = Partition.from_dict(meta["partition"])
    compiled = max((int(np.frombuffer(p, isa.PROGRAM, 1)["cores"][0]) for p in programs), default=1)
    chosen = chosen_cores(mask_bits(core_mask), compiled, found.name, found.cores)
    result = Performance(
        found.name,
        found.clock,
        found.ddr,
        len(chosen),
        estimates=list(found.estimates),
        chip_cores=found.cores,
        core_numbers=chosen,
        name=plan.name,
        family=found.family,
        kind=bands.kind_of(meta),
    )
    on_cpu, now = list(partition.on_cpu), 0.0
    for m in partition.modules:
        if m.kind == "cpu":
            rows = _on_cpu(on_cpu, m.microseconds, f"cpu{len(result.parts) - len(result.busy)}")
            long, line = sum(r.microseconds for r in rows), None
            result.cpu_milliseconds += long / 1e3
        else:
            number = len(result.busy)
            line = timeline(programs[number], found, on=len(chosen))
            long = line.milliseconds * 1e3
            rows = npu_rows(line, meta["npu"][number]["layers"], f"npu{number}")
            result.busy.append(line.busy())
            result.npu_milliseconds += line.milliseconds
        if rows:
            result.parts.append(Part(rows[0].module, now, now + long, line))
        result.layers += rows
        now += long
    result.layers = [replace(r, id=i) for i, r in enumerate(result.layers)]
    result.milliseconds = result.npu_milliseconds + result.cpu_milliseconds
    return result


def _of_chip_files(
    package: Package,
    chip: str | Chip | None,
    clock: float | None,
    ddr: float | None,
    core_mask: CoreMask | None,
) -> Performance:
    """The prediction of a package with files of the chip, whose commands are fixed."""
    from intaglio.analysis import chip_package  # reads this module

    given = {"chip": chip, "core_mask": core_mask}
    for what, value in given.items():
        if value is not None:
            raise BadInput(
                f"{option(what, value)} is for programs of Intaglio's own instruction set; this "
                f"package has files of the chip, which only {option('clock')} and "
                f"{option('ddr')} change"
            )
    return chip_package.performance(package, clock, ddr)


def npu_rows(line: Timeline, layers: Sequence[Mapping[str, Any]], module: str) -> list[LayerRow]:
    """The rows of a program's layers."""
    loads = line.loads()
    return [_row(r, layers[r["layer"]], module, line, loads[r["layer"]]) for r in line.layers()]


def _row(
    r: Mapping[str, Any],
    layer: Mapping[str, Any],
    module: str,
    line: Timeline,
    load: tuple[float, ...],
) -> LayerRow:
    microseconds = r["cycles"] / line.chip.clock
    shapes = ",".join("x".join(map(str, s)) for s in layer["inputs"])
    if "kernel" in layer:
        shapes += " w" + "x".join(map(str, layer["kernel"]))
    return LayerRow(
        0,
        module,
        layer["op"],
        layer["name"],
        layer["dtype"],
        "NPU",
        shapes,
        "x".join(map(str, layer["output"])),
        r["ddr"],
        r["npu"],
        r["cycles"],
        microseconds,
        _use(r, line, layer["dtype"]),
        int(r["read"] + r["written"]),
        int(r["near"]),
        r["bound"],
        _hint(r, layer, line.chip),
        load,
        _all_cores(r, line),
        r["layer"],
    )


def _all_cores(r: Mapping[str, Any], line: Timeline) -> float:
    """Upper bound of a layer's speed-up if all cores share its work and DDR stays as fast."""
    if line.chip.cores <= line.cores or not r["cycles"]:
        return 1.0
    each = r["npu"] / line.cores * (1 - line.cores / line.chip.cores)
    return float(
        r["cycles"] / max(r["cycles"] - min(each, r["cycles"]), r["ddr"], 1e-9)
        if r["cycles"] > r["ddr"]
        else 1.0
    )


def _use(r: Mapping[str, Any], line: Timeline, dtype: str) -> float:
    """The layer's MACs divided by those that the cores could do in its time."""
    known = line.chip.units["conv"].rate
    rate = known.get(dtype, max(known.values())) * line.cores
    busy = max(r["cycles"], r["npu"] / line.cores)
    return float(r["products"] / (busy * rate)) if busy else 0.0


def _on_cpu(rows: list[OnCpu], microseconds: float, module: str) -> list[LayerRow]:
    """Takes the next CPU ops from `rows`, up to a total of `microseconds`: those of one module."""
    results: list[LayerRow] = []
    while rows and sum(r.microseconds for r in results) < microseconds * (1 - 1e-9):
        r = rows.pop(0)
        results.append(
            LayerRow(
                0,
                module,
                r.op,
                r.name,
                r.type.split("[")[0],
                "CPU",
                r.inputs,
                r.type.partition("[")[2].partition("]")[0],
                0.0,
                0.0,
                0.0,
                r.microseconds,
                0.0,
                0,
                0,
                "CPU",
                r.remedy or r.why,
            )
        )
    return results


def _hint(r: Mapping[str, Any], layer: Mapping[str, Any], chip: Chip) -> str:
    """Advice to make a layer faster; empty if there is none."""
    op = layer["op"].split("+")[0]
    unit = chip.units.get(op)
    if r["bound"] == "launch":
        return "starting it takes longer than its work: use fewer, larger layers"
    if r["bound"] == "bandwidth":
        if "kernel" in layer and math.prod(layer["kernel"]) > 0.6 * (r["read"] + r["written"]):
            return "most of its traffic is weights: use fewer channels, or sparse weights"
        return "its feature maps go through DDR: with fewer channels or rows they stay on chip"
    if op == "conv" and unit is not None and "kernel" in layer:
        out, ins = layer["kernel"][0], layer["kernel"][1]
        oa, ia = (a.get(layer["dtype"], 1) for a in (unit.out_atom, unit.in_atom))
        used = out * ins / (-(-out // oa) * oa * -(-ins // ia) * ia)
        if used < 0.8:
            return f"{ins} input and {out} output channels use {used:.0%} of blocks of {ia} by {oa}"
    return ""
