"""From a model to a package: load, optimise, lower to the target, plan memory, pack."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import intaglio
from intaglio import passes, progress, recipe, targets
from intaglio.arguments import require_graph
from intaglio.batches import load_batch
from intaglio.compile_options import OPTION_NAMES, CompileOptions, split_options
from intaglio.errors import BadInput, option, unknown_keyword
from intaglio.find_padding import find_padding
from intaglio.frontends import picture_format
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.preprocess import OPTIONS as PREPROCESSING
from intaglio.frontends.preprocess import preprocess
from intaglio.heap import Arena
from intaglio.ir import Array, Graph, Value
from intaglio.open_graph import symbols_of
from intaglio.package import Package
from intaglio.package.constant_pool import ConstantPool
from intaglio.passes.memory import plan_memory
from intaglio.passes.output_scales import inner_scales, output_scales, set_output_scales
from intaglio.passes.partition_report import Partition
from intaglio.passes.prune import Pruned
from intaglio.plan import Plan, Tensor
from intaglio.replace_constants import replace_constants
from intaglio.size_lists import variants, with_batches
from intaglio.tune import Decision, Decisions, Tuned, Tuner, Tuning
from intaglio.tune.replay import Replayed

COLLECT_ABOVE_BYTES = 64 << 20  # of constants: collect garbage before packing, to lower the peak
MAX_PACKING_GROWTH = 8  # times its size that a weight may take once packed; Winograd needs 64 / 9
MAX_RESERVED_BYTES = 4 << 30  # of address space for packed weights


@dataclass
class Compiled:
    """A package and how it was made: the source of every report."""

    package: Package
    graph: Graph  # in the target's own ops
    plan: Plan
    tensors: dict[Value, Tensor]
    records: list[passes.Record]
    decisions: list[Decision]  # nodes for which several implementations were available
    tuned: Tuned | None = None  # summary of the measurements, if `tune` was given
    partition: Partition | None = None  # of a chip with an NPU: which node runs where, and why
    pruned: Pruned | None = None  # channels that were removed


@dataclass(frozen=True)
class Again:
    """What a compilation takes from an earlier one, for `Package.with_weights`."""

    choices: recipe.Choices = field(default_factory=list)  # for each size
    constants: Mapping[str, Array] | None = None  # that replace those of the model, by name


@dataclass
class Optimized:
    """An optimised graph, what each pass did, and the channels that were removed."""

    graph: Graph
    records: list[passes.Record]
    pruned: Pruned | None = None


def optimize(
    graph: Graph,
    level: int = CompileOptions.level,
    disable: Collection[str] = (),
    dump_dir: str | Path | None = None,
) -> Graph:
    """An equivalent graph with less work; the given graph stays unchanged.

    Level 0 changes nothing, 1 only what is exact, 2 also reassociates floating-point sums, 3 also
    turns quantise-dequantise pairs into integer arithmetic; `compile` adds rules for its target at
    level 3. `disable` names rules that must not fire, and `dump_dir` receives the graph as text
    before and after every pass.
    """
    return trace_optimize(graph, level, disable, dump_dir).graph


def trace_optimize(
    graph: Graph,
    level: int = CompileOptions.level,
    disable: Collection[str] = (),
    dump_dir: str | Path | None = None,
) -> Optimized:
    """`optimize`, with a record of every pass."""
    options = CompileOptions(level=level, disable=disable, dump_dir=dump_dir)
    graph = require_graph(graph, "optimize").copy()
    with progress.inside("optimising"):
        ran = passes.run(graph, passes.neutral(), options.level, dump_dir, disable)
    return Optimized(graph, ran.records, ran.found.get("pruned"))


def compile(
    model: str | Path | Graph,
    target: str | targets.Target = "cpu",
    options: CompileOptions | None = None,
    **keywords: Any,
) -> Package:
    """Compile a model file, a Graph or a live PyTorch module (`inputs=` examples) for a target.

    The keywords are the fields of `CompileOptions` (`isa`, `level`, `precision`, `disable`, `tune`,
    `cores`, `by_layer`, `npu_code`, `strip`, `dump_dir`, `progress`), which replace those of
    `options`, and for a model file those of `intaglio.load`. Its preprocessing options are valid
    for a Graph too.
    """
    return trace(model, target, options, **keywords).package


def trace(
    model: str | Path | Graph,
    target: str | targets.Target = "cpu",
    options: CompileOptions | None = None,
    *,
    again: Again = Again(),
    **keywords: Any,
) -> Compiled:
    """`compile`, with every intermediate result."""
    options, load = split_options(keywords, options)
    _check_load_options(load)
    with progress.to(progress.named(options.progress)):
        return _traced(model, target, options, load, again)


def _traced(
    model: str | Path | Graph,
    target: str | targets.Target,
    options: CompileOptions,
    load: dict[str, Any],
    again: Again,
) -> Compiled:
    chip = targets.find(target, options.isa, options.precision)
    _refuse_npu_options(chip, options)
    options = replace(options, npu_code=_npu_code(chip, options))
    if options.npu_code == "chip":
        from intaglio.npu.chips.packaged import target_of

        chip = target_of(chip)
    sizes = with_batches(variants(load), options.batch)
    lowered, pool = [], ConstantPool() if len(sizes) > 1 else None
    for i, (at, batch) in enumerate(sizes):
        if len(sizes) > 1:
            progress.report("compiling for each size", i, len(sizes))
        chosen = again.choices[i] if i < len(again.choices) else []
        decisions = Replayed(chosen) if chosen else Decisions()
        one = replace(options, batch=batch)
        lowered.append(_lowered(chip, one, model, at, pool, decisions, again.constants))
    origin = recipe.of_compilation(options, load, [one.decisions for one in lowered])
    lowered.sort(key=lambda one: sum(t.size for t in one.plan.inputs if t is not None))
    return _packed(chip, options, lowered, {} if options.strip else origin)


@dataclass
class _Lowered:
    """A graph in the target's own ops, with its plan, before it is packed."""

    graph: Graph
    plan: Plan
    tensors: dict[Value, Tensor]
    ran: passes.Ran
    decisions: list[Decision]
    arena: Arena | None  # of its constants


def _lowered(
    chip: targets.Target,
    options: CompileOptions,
    model: str | Path | Graph,
    load: dict[str, Any],
    pool: ConstantPool | None,
    decisions: Decisions,
    constants: Mapping[str, Array] | None,
) -> _Lowered:
    """Run all passes and plan memory. Constants that are in `pool` already are taken from there."""
    host = chip.host or chip  # next to an NPU: the CPU that runs all other nodes
    measuring = []
    if options.tune:
        tuning = options.tune if isinstance(options.tune, Tuning) else Tuning()
        decisions = tuner = Tuner(host, tuning, options.level, options.disable)
        measuring = [passes.Pass("measure", tuner, level=2, finds="tuned")]
    progress.report("reading the model")
    assert options.batch is None or isinstance(options.batch, int | str)
    graph = _graph(model, load, options.batch)
    if constants is not None:
        replace_constants(graph, constants)
    _refuse_ranges(chip, options, graph)
    scales, inner = output_scales(graph), [] if options.strip else inner_scales(graph)
    offload = _offload(chip, options) if chip.chip else []
    lowering = passes.lowering(host, decisions.pick)
    pipeline = [*passes.neutral(chip.cost), *offload, *measuring, *lowering]
    with (
        Arena(_packed_size(graph)) if pool is None else nullcontext() as arena,
        progress.inside(f"compiling for {chip.name}"),
    ):
        ran = passes.run(graph, pipeline, options.level, options.dump_dir, options.disable)
    progress.report("planning memory")
    start = time.perf_counter()
    plan, tensors = plan_memory(graph, graph.name or "main")
    set_output_scales(plan, scales)
    record = passes.Record("plan memory", time.perf_counter() - start, len(plan.steps))
    ran.records.append(record)
    ran.found["scales"] = inner
    if pool is not None:
        pool.share(plan)
    return _Lowered(graph, plan, tensors, ran, decisions.made, arena)


def _packed(
    chip: targets.Target,
    options: CompileOptions,
    lowered: Sequence[_Lowered],
    origin: Mapping[str, Any],
) -> Compiled:
    """The package with all plans; reports are those of the largest."""
    last = lowered[-1]
    progress.report("packing weights")
    if sum(t.size for t in last.tensors.values() if t.fixed) > COLLECT_ABOVE_BYTES:
        gc.collect()  # replaced constants are still in memory
    meta = _metadata(last.graph, chip, options, last.decisions, last.ran.found) | dict(origin)
    plans = [one.plan for one in lowered]
    arena = last.arena if len(lowered) == 1 else None

    def build() -> Package:
        return Package.build(plans, isa=chip.isa, meta=meta, strip=options.strip, arena=arena)

    package = build()
    if len(plans) > 1 and (links := find_padding(package)) is not None:
        meta["padding"] = links
        package = build()
    found = {name: last.ran.found.get(name) for name in ("tuned", "partition", "pruned")}
    return Compiled(
        package, last.graph, last.plan, last.tensors, last.ran.records, last.decisions, **found
    )


def _refuse_ranges(chip: targets.Target, options: CompileOptions, graph: Graph) -> None:
    """BadInput where a model with ranges cannot be compiled."""
    symbols = symbols_of(graph)
    if not symbols:
        return
    sizes = {name: [s.low, s.high] for name, s in symbols.items()}
    remedy = f"list sizes instead: {option('dims', sizes)}"
    if chip.chip:
        raise BadInput(f"{chip.name} runs programs of fixed shapes, not ranges; {remedy}")
    if options.tune:
        raise BadInput(f"{option('tune', True)} measures fixed shapes, not ranges; {remedy}")
    for name in graph.state:
        types = [v.type for v in graph.inputs if v.name == name]
        if not all(t.fixed for t in types):
            raise BadInput(f"state '{name}' has open dimensions; a state has one size; {remedy}")


def _metadata(
    graph: Graph,
    chip: targets.Target,
    options: CompileOptions,
    decisions: list[Decision],
    found: dict[str, Any],
) -> dict[str, Any]:
    own = {k: v for k, v in graph.metadata.items() if k != picture_format.KEY}
    meta: dict[str, Any] = {
        "name": graph.name,
        "metadata": own,
        "target": chip.name,
        "compiler": f"intaglio {intaglio.__version__}",
        "level": options.level,
        "precision": chip.precision,
    }
    if formats := picture_format.formats_of(graph.metadata):
        meta["preprocessing"] = picture_format.plain(formats)
    if options.strip:
        return meta
    if found.get("scales"):
        meta["scales"] = found["scales"]
    if decisions:
        meta["choices"] = [d.to_dict() for d in decisions]
    if "partition" in found:
        meta["partition"] = found["partition"].to_dict()
    if "partition" in found:
        from intaglio.npu.metadata import describe

        of_chip = options.npu_code == "chip"
        meta["npu"] = [p.about if of_chip else describe(p) for p in found["programs"]]
        meta["outline"] = found["outline"]
    return meta


def _packed_size(graph: Graph) -> int:
    """Upper bound of the bytes of all packed constants. Reserving address space costs nothing."""
    known = sum(v.data.nbytes for v in graph.values() if v.data is not None)
    return min(MAX_PACKING_GROWTH * known, MAX_RESERVED_BYTES)


def _offload(target: targets.Target, options: CompileOptions) -> list[passes.Pass]:
    """The passes that turn nodes into NPU programs, or files of the chip."""
    from intaglio.npu.outline import outline  # a CPU does not need it

    chip = target.chip
    assert chip is not None
    work: Callable[[Graph], Any]
    outlined = passes.Pass("outline", lambda graph, _: outline(graph, chip), finds="outline")
    program = passes.Pass("program", lambda graph, _: work(graph), finds="programs")
    if options.npu_code == "chip":
        from intaglio.npu.chips import packaged

        work = partial(packaged.compile_programs, chip=chip)
        if options.precision and packaged.computes_floats(chip, options.precision):
            kind = options.precision
            floats = partial(packaged.lower_floats, target=target, precision=kind)
            lower = passes.Pass("lower floats", lambda graph, _: floats(graph), finds="partition")
            return [lower, outlined, program]
    else:
        if options.precision == "bf16" and chip.file == "bmodel":
            raise BadInput(
                f"programs of our instruction set for {chip.name} do not compute in bf16: write a "
                f"file of the chip with `intaglio compile -o m.bmodel`, or give "
                f"{option('precision', 'f16')}"
            )
        from intaglio.npu.compile import compile_programs

        grouped = not options.by_layer
        work = partial(compile_programs, chip=chip, grouped=grouped, cores=options.cores)
    return [*passes.offload(target), outlined, program]


def _npu_code(target: targets.Target, options: CompileOptions) -> str:
    """What NPU parts become: what the options say, or files of the chip if there are such."""
    if options.npu_code != "auto" or target.chip is None:
        return options.npu_code
    from intaglio.npu.chips.packaged import has_files

    wants_own = options.by_layer or options.cores > 1
    return "chip" if has_files(target.chip) and not wants_own else "own"


def _refuse_npu_options(target: targets.Target, options: CompileOptions) -> None:
    """BadInput where an option for NPUs does not fit the target."""
    if target.chip:
        if options.cores > target.chip.cores:
            raise BadInput(
                f"cores is {options.cores}; {target.name} has {target.chip.cores}; give at most "
                f"{option('cores', target.chip.cores)}"
            )
        if options.npu_code == "chip" and (options.by_layer or options.cores > 1):
            name = "by_layer" if options.by_layer else "cores"
            raise BadInput(
                f"{option(name, getattr(options, name))} is for programs of Intaglio's own "
                f"instruction set; leave it out, or {option('npu_code', 'chip')}"
            )
        return
    for name in ("cores", "by_layer", "npu_code"):
        value = getattr(options, name)
        if value != getattr(CompileOptions, name):
            raise BadInput(
                f"{option(name, value)} is for chips with an NPU, the target is {target.name}; "
                f"leave it out, or choose a chip with {option('target')}"
            )


def _check_load_options(given: dict[str, Any]) -> None:
    """TypeError for a keyword that neither `compile` nor `load` has."""
    of_load = (*(f.name for f in fields(ImportOptions)), *PREPROCESSING)
    for name in given:
        if name not in of_load:
            raise unknown_keyword("compile", name, ("target", *OPTION_NAMES, *of_load))


def _graph(
    model: str | Path | Graph, load: dict[str, Any], batch: int | str | None = None
) -> Graph:
    """A graph that the passes may change."""
    if isinstance(model, Graph):
        pictures = {k: v for k, v in load.items() if k in PREPROCESSING}
        if given := [k for k, v in load.items() if v and k not in PREPROCESSING]:
            raise BadInput(
                f"{option(given[0])} is for model files: a Graph is loaded already; give it to "
                "intaglio.load"
            )
        graph = model.copy()
        if pictures:
            preprocess(graph, **pictures)
    elif batch is None:
        graph = intaglio.load(model, **load)
    else:
        return load_batch(model, load, batch)
    return graph if batch is None else load_batch(graph, {}, batch)
