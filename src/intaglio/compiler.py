"""From a model to a package: load, optimise, lower to the target, plan, pack."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import intaglio
from intaglio import passes, targets
from intaglio.errors import BadInput
from intaglio.frontends.preprocess import preprocess, split_options
from intaglio.heap import Arena
from intaglio.ir import Graph, Value
from intaglio.package import Package
from intaglio.passes.memory import plan_memory
from intaglio.passes.partition_report import Partition
from intaglio.plan import Plan, Tensor
from intaglio.tune import Decision, Decisions, Tuned, Tuner, Tuning

Progress = Callable[[str], None]
LEVEL = 3
MUCH = 64 << 20  # bytes of constants
SWOLLEN = 8  # times that weights may grow by packing: those of the largest tiles do by 64 / 9
MOST_RESERVED = 4 << 30  # bytes of addresses


@dataclass
class Compiled:
    """A package and how it came to be: what the reports are made of."""

    package: Package
    graph: Graph  # as the target runs it
    plan: Plan
    tensors: dict[Value, Tensor]
    records: list[passes.Record]
    decisions: list[Decision]  # where there were several ways to compute a node
    tuned: Tuned | None = None  # what measuring those came to
    partition: Partition | None = None  # of a chip with an NPU: what runs where, and why


def optimize(
    graph: Graph,
    level: int = LEVEL,
    disable: Collection[str] = (),
    dump_dir: str | Path | None = None,
    records: list[passes.Record] | None = None,
) -> Graph:
    """A graph that computes the same with less; the one that is given stays as it is.

    Level 0 changes nothing, 1 only what is exact, 2 also reassociates floating-point sums, 3 also
    computes in integers what a model says of quantised tensors in floats; `compile` adds at 3 what
    is good for its target. `disable` names rules that are not to fire, `dump_dir` receives the
    graph as text before and after every pass, and a list given as `records` what each of them did.
    """
    graph = graph.copy()
    made = passes.run(graph, passes.neutral(), _level(level), dump_dir, disable=disable)
    if records is not None:
        records += made
    return graph


def compile(
    model: str | Path | Graph,
    target: str | targets.Target = "cpu",
    isa: str | None = None,
    level: int = LEVEL,
    dump_dir: str | Path | None = None,
    progress: Progress | None = None,
    strip: bool = False,
    disable: Collection[str] = (),
    precision: str = "f32",
    tune: bool | Tuning = False,
    cores: int = 1,
    by_layer: bool = False,
    **load: Any,
) -> Package:
    """Compile a model file, a Graph or a live PyTorch module (`inputs=` examples) for a target.

    `isa` names the CPU's instruction set (None: this machine's). `level` is that of `optimize`.
    `dump_dir` receives the graph as text after every pass, `progress` is told what is being done,
    `strip` leaves names of internal tensors out, `disable` names rules that are not to fire.
    `precision` "bf16" computes products in bf16 with sums in f32; "f16" keeps weights and what
    lies between products in f16. `tune` times the ways to compute
    each layer on this machine and keeps the fastest (a Tuning says for how long, and so on); what
    was measured is kept on disk. On an NPU, `cores` share the work, and `by_layer` runs each layer
    by itself. All else goes to `intaglio.load`;
    its keywords for preprocessing are for a Graph too.
    """
    made = trace(
        model,
        target,
        isa,
        level,
        dump_dir,
        progress,
        strip,
        disable,
        precision,
        tune,
        cores,
        by_layer,
        **load,
    )
    return made.package


def trace(
    model: str | Path | Graph,
    target: str | targets.Target = "cpu",
    isa: str | None = None,
    level: int = LEVEL,
    dump_dir: str | Path | None = None,
    progress: Progress | None = None,
    strip: bool = False,
    disable: Collection[str] = (),
    precision: str = "f32",
    tune: bool | Tuning = False,
    cores: int = 1,
    by_layer: bool = False,
    **load: Any,
) -> Compiled:
    """`compile`, with everything that was learnt on the way."""
    tell = progress or (lambda words: None)
    chip = targets.find(target, isa, precision)
    host = chip.host or chip  # of an NPU: the CPU beside it
    decisions, measuring = Decisions(), []
    if tune:
        how = tune if isinstance(tune, Tuning) else Tuning()
        decisions = tuner = Tuner(host, how, level, disable)
        measuring = [passes.Pass("measure", tuner, level=2)]
    tell("reading the model")
    graph = _graph(model, load)
    offload = _offload(chip, cores, by_layer, tell) if chip.chip else []
    lowering = passes.lowering(host, decisions.pick)
    pipeline = [*passes.neutral(chip.cost), *offload, *measuring, *lowering]
    with Arena(_packed_size(graph)) as arena:
        records = passes.run(graph, pipeline, _level(level), dump_dir, tell, disable)
    tell("plan memory")
    start = time.perf_counter()
    plan, tensors = plan_memory(graph, graph.name or "main")
    records.append(passes.Record("plan memory", time.perf_counter() - start, len(plan.steps)))
    tell("pack")
    meta = {
        "name": graph.name,
        "metadata": graph.metadata,
        "target": chip.name,
        "compiler": f"intaglio {intaglio.__version__}",
        "level": level,
        "precision": precision,
    }
    if decisions.made and not strip:
        meta["choices"] = [d.to_dict() for d in decisions.made]
    partition = next((r.result for r in records if isinstance(r.result, Partition)), None)
    if partition and not strip:
        meta["partition"] = partition.to_dict()
        from intaglio.npu.metadata import describe

        programs = next(r.result for r in records if r.name == "program")
        meta["npu"] = [describe(made) for made in programs]
    if sum(t.size for t in tensors.values() if t.fixed) > MUCH:
        gc.collect()  # what passes replaced is still there, and is as large again
    package = Package.build([plan], isa=chip.isa, meta=meta, strip=strip, arena=arena)
    tuned = next((r.result for r in records if isinstance(r.result, Tuned)), None)
    return Compiled(package, graph, plan, tensors, records, decisions.made, tuned, partition)


def _packed_size(graph: Graph) -> int:
    """Bytes that its constants may take once they are packed: only to reserve them is for free."""
    known = sum(v.data.nbytes for v in graph.values() if v.data is not None)
    return min(SWOLLEN * known, MOST_RESERVED)


def _offload(
    target: targets.Target, cores: int, by_layer: bool, tell: Progress
) -> list[passes.Pass]:
    """What the NPU does becomes programs of instructions."""
    from intaglio.npu.compile import compile_programs  # which a CPU need not know of

    chip = target.chip
    assert chip is not None
    work = partial(compile_programs, chip=chip, together=not by_layer, cores=cores, progress=tell)
    return [*passes.offload(target), passes.Pass("program", lambda graph, _: work(graph))]


def _graph(model: str | Path | Graph, load: dict[str, Any]) -> Graph:
    """A graph of our own, to change at will."""
    if isinstance(model, Graph):
        pictures, others = split_options(load)
        if given := [k for k, v in others.items() if v]:
            raise BadInput(f"{given[0]}= is for model files; a Graph has its shapes already")
        graph = model.copy()
        if pictures:
            preprocess(graph, **pictures)
        return graph
    return intaglio.load(os.fspath(model) if isinstance(model, os.PathLike) else model, **load)


def _level(level: int) -> int:
    if not 0 <= level <= 3:
        raise BadInput(f"level is {level}; it is 0 (none), 1 (exact), 2 (floats) or 3 (target)")
    return level
