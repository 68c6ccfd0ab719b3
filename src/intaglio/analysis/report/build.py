"""Builds the report of a model: compiles, compares, profiles or predicts, and joins it by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import intaglio
from intaglio import progress
from intaglio.analysis.agreement import usable_inputs
from intaglio.analysis.arena import live_bytes
from intaglio.analysis.compare import compare
from intaglio.analysis.comparison import Comparison
from intaglio.analysis.cpu_memory import CpuMemory, cpu_memory
from intaglio.analysis.golden import is_quantized
from intaglio.analysis.memory import memory
from intaglio.analysis.performance import LayerRow, performance
from intaglio.analysis.profile import profile
from intaglio.analysis.report.model_report import ModelReport
from intaglio.analysis.report.package_nodes import package_nodes
from intaglio.analysis.report.report_node import ReportNode
from intaglio.analysis.step_names import tensor_name
from intaglio.errors import BadInput, option
from intaglio.ir import Graph
from intaglio.ops.registry import REGISTRY
from intaglio.package import Package
from intaglio.passes.partition_report import Partition
from intaglio.quant.options import Options

SECONDS = 0.3  # of measuring
MOST_FUSED = 8  # nodes of the model in one step
SAMPLES = {True: 2, False: 1}  # by whether there is data; unless more are asked for
QUICK = Options(method="minmax", accuracy=None, rounding="nearest", bias_correction=False)


@dataclass
class _Sides:
    """The package that runs, and what it is compared with."""

    package: Package
    golden: Any  # None: nothing to compare with
    other: Any  # a graph or the package; None: the golden model itself
    notes: list[str]
    layers: bool = True  # whether layers have an error of their own


def report(
    model: str | Path | Graph | Package,
    golden: str | Path | Graph | None = None,
    data: Any = None,
    *,
    target: str | None = None,
    samples: int | None = None,
    seed: int = 0,
    reading: Mapping[str, Any] | None = None,
    accuracy: bool = True,
    speed: bool = True,
    name: str = "",
    **load: Any,
) -> ModelReport:
    """What runs, how exact, how fast and in which memory, for one page: `.save("report.html")`.

    `model` is a package, or a model that is compiled for `target` (default: this CPU; a float model
    for a chip is quantised with `data`). `golden` is the float model that it is compared with.
    `data`, `samples`, `seed` and `reading` are those of `compare`. CPU packages are timed on this
    machine; times on chips are predicted. Other keywords are for `intaglio.load`.
    """
    sides = _sides(model, golden, data, target, seed, dict(reading or {}), load)
    package = sides.package
    with progress.inside("reading the plan"):
        nodes, edges = package_nodes(package)
    result = ModelReport(
        name or _name(model, package),
        str(package.meta.get("target", "cpu")),
        nodes,
        edges,
        len(package.bytes),
        notes=sides.notes,
    )
    result.memory = memory(package) if "npu" in package.meta else cpu_memory(package)
    if partition := package.meta.get("partition"):
        result.partition = Partition.from_dict(partition)
    _add_memory(result)
    if speed:
        with progress.inside("timing"):
            _add_times(result, package)
    if accuracy and sides.golden is not None:
        with progress.inside("comparing"):
            result.comparison = compare(
                sides.golden,
                sides.other,
                data,
                samples=samples or SAMPLES[data is not None],
                seed=seed,
                reading=reading,
                runs=("interpreter",) if sides.layers else ("native",),
                histograms=True,
            )
        join_rows(nodes, result.comparison)
    return result


def _name(model: Any, package: Package) -> str:
    known = package.meta.get("name") or package.plans[-1].name
    return Path(model).name if isinstance(model, str | Path) else known or "model"


def _sides(
    model: Any,
    golden: Any,
    data: Any,
    target: str | None,
    seed: int,
    reading: dict[str, Any],
    load: Mapping[str, Any],
) -> _Sides:
    notes: list[str] = []
    if isinstance(model, str | Path) and _starts_as_package(Path(model)):
        model = Package.load(model)
    if isinstance(model, Package):
        if target is not None:
            raise BadInput(
                f"a package is compiled already; leave out {option('target')}, or give the model"
            )
        if golden is None:
            notes.append(
                "accuracy: a package holds no float values; give the float model that it was "
                "compiled from as `golden`"
            )
        return _Sides(model, _loaded(golden, load), model, notes)
    graph = model.copy() if isinstance(model, Graph) else intaglio.load(model, **load)
    given, chip = _loaded(golden, load), target or "cpu"
    if chip != "cpu" and not is_quantized(graph):
        if data is None:
            notes.append(
                "accuracy on your data: ranges come from random samples; give samples as `data`"
            )
        given = graph if given is None else given
        graph = _quantized(graph, data, chip, seed, reading)
    package = intaglio.compile(graph.copy(), target=chip)
    if given is not None:
        return _Sides(package, given, graph, notes)
    if not is_quantized(graph):
        notes.append(
            "quantisation: the model computes in floats, so only the rounding of floats is "
            "compared; give a quantised model, and this one as `golden`"
        )
    return _Sides(package, graph, None, notes, is_quantized(graph))


def _loaded(golden: Any, load: Mapping[str, Any]) -> Any:
    if isinstance(golden, str | Path):
        return intaglio.load(golden, **load)
    return golden


def _quantized(
    graph: Graph, data: Any, target: str, seed: int, reading: Mapping[str, Any]
) -> Graph:
    samples: Any = data
    if data is None:
        samples = [usable_inputs(graph, seed + i)[0] for i in (0, 1)]
    how: dict[str, Any] = {"options": QUICK} if data is None else dict(reading)
    quiet: Any = lambda words: None  # noqa: E731  # the page shows the accuracy
    with progress.inside(f"quantising for {target}"):
        return intaglio.quantize(graph, samples, target=target, warn=quiet, **how)


def _starts_as_package(path: Path) -> bool:
    if path.is_dir():
        return False
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"ITG1"
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None


# ---- joining by node -----------------------------------------------------------------------------
def _add_memory(result: ModelReport) -> None:
    """The live internal memory of every step or layer."""
    if isinstance(result.memory, CpuMemory):
        live = result.memory.live()
        for n in result.nodes:
            if n.unit == "CPU" and 0 <= n.number < len(live):
                n.live = live[n.number]
        return
    if result.memory is None:
        return
    for k, spans in enumerate(result.memory.lives):
        live = live_bytes(spans, result.memory.layers[k]) if spans else []
        for n in result.nodes:
            if n.module == f"npu{k}":
                n.live = live[n.number] if n.number < len(live) else 0


def _add_times(result: ModelReport, package: Package) -> None:
    """Measured times of a CPU package, predicted ones of a package for a chip."""
    if "npu" in package.meta and "partition" in package.meta:
        result.performance = performance(package)
        _add_predicted(result.nodes, result.performance.layers)
        return
    if package.meta.get("target", "cpu") != "cpu":
        result.notes.append("time: the package has no NPU program of Intaglio's own")
        return
    fixed = all(t.fixed for t in package.inputs.values())
    if not fixed or len(package.plans) != 1:
        result.notes.append("time: the package has several sizes; compile one of them")
        return
    result.profile = profile(package, SECONDS)
    steps = {n.number: n for n in result.nodes if n.unit == "CPU"}
    for i, s in enumerate(result.profile.steps):
        if (node := steps.get(i)) is not None:
            node.microseconds, node.of_peak, node.bound = s.microseconds, s.roofline, s.bound


def _add_predicted(nodes: list[ReportNode], rows: list[LayerRow]) -> None:
    by_layer = {(n.module, n.number): n for n in nodes if n.unit == "NPU"}
    on_cpu: dict[str, list[ReportNode]] = {}
    for n in nodes:
        if n.unit == "CPU":
            for name in dict.fromkeys((tensor_name(n.origin), n.name, tensor_name(n.tensor))):
                on_cpu.setdefault(name, []).append(n)
    for r in rows:
        node = by_layer.get((r.module, r.layer))
        if node is None:
            same = [
                n
                for n in on_cpu.get(tensor_name(r.name), ())
                if n.microseconds is None and n.op == r.op
            ]
            if not same:
                continue
            node, node.why = same[0], r.hint
        else:
            node.advice, node.of_peak, node.bytes = r.hint, r.mac_use or None, r.bytes
        node.microseconds, node.bound = r.microseconds, r.bound


def join_rows(nodes: list[ReportNode], found: Comparison) -> None:
    """Give every node the compared tensors that it makes: by tensor name, else by origin."""
    by_tensor: dict[str, ReportNode] = {}
    by_origin: dict[str, ReportNode] = {}
    named = Counter(n.origin for n in nodes)
    for n in nodes:
        n.rows = []
        if n.unit:
            by_tensor.setdefault(tensor_name(n.tensor), n)
            if n.unit == "NPU":  # its only name is that of its node in the model file, or tensor
                by_origin.setdefault(n.name, n)
            # the compiler names nodes by their op, but so do some models
            if n.origin and (n.origin not in REGISTRY or named[n.origin] == 1):
                by_origin[n.origin] = n
    made: dict[str, ReportNode] = {}
    for row in found.rows:
        tensors = (row.name, row.other, tensor_name(row.stored[0]))
        origins = (row.origin, row.name, row.stored[1])
        node = next((by_tensor[x] for x in tensors if x and x in by_tensor), None)
        node = node or next((by_origin[x] for x in origins if x in by_origin), None)
        if node is not None:
            made[row.name] = node
    for row in found.rows:
        if (node := made.get(row.name) or _fused_into(row.name, found.readers, made)) is not None:
            node.rows.append(row)


def _fused_into(
    name: str, readers: Mapping[str, list[str]], made: Mapping[str, ReportNode]
) -> ReportNode | None:
    """The node that makes the nearest tensor computed from this one."""
    front = [name]
    for _ in range(MOST_FUSED):
        front = list(dict.fromkeys(x for n in front for x in readers.get(n, ())))
        if (found := next((made[x] for x in front if x in made), None)) is not None:
            return found
    return None
