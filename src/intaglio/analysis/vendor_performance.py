"""The predicted speed of a vendor's file, from the commands in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from intaglio.analysis.performance import LayerRow, Part, Performance
from intaglio.ir import Graph, Node
from intaglio.npu.metadata import layers_of
from intaglio.npu.predict import bands
from intaglio.npu.predict.cycles import constants
from intaglio.npu.predict.engines import CPU, LayerText, Step, Timed, described, in_a_row
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip
from intaglio.targets.host import nanoseconds

ROOM = "intaglio.npu.chips"
CHIP_NAMES = {"bm1690": "sg2260", "cv186x": "bm1688"}  # in files: ours


def of_bmodel(data: bytes, clock: float | None = None, ddr: float | None = None) -> Performance:
    """Predict the speed of a bmodel."""
    bmodel, steps = _modules("bm1684x", "bmodel", "steps")
    model = bmodel.read(data)
    timed = steps.of_file(model, clock, ddr)
    return performance(timed, _chip(model.chip))


def of_cvimodel(data: bytes, clock: float | None = None, ddr: float | None = None) -> Performance:
    """Predict the speed of a cvimodel."""
    cvimodel, steps = _modules("cv18xx", "cvimodel", "steps")
    model = cvimodel.read(data)
    return performance(steps.of_file(model, clock, ddr), _chip(model.chip))


def of_kmodel(data: bytes, clock: float | None = None, ddr: float | None = None) -> Performance:
    """Predict the speed of a kmodel."""
    compiler, timing = _modules("k210", "compile", "timing")
    timed = timing.of_file(compiler.read(data), clock, ddr)
    return performance(timed, chips.load("k210"))


def of_rkjob(data: bytes, clock: float | None = None, ddr: float | None = None) -> Performance:
    """Predict the speed of a job for Rockchip's NPU."""
    job, timing = _modules("rockchip", "job", "timing")
    made = job.read(data)
    return performance(timing.of_job(made, clock, ddr), _chip(made.chip))


def of_graph(
    graph: Graph, chip: Chip, clock: float | None = None, ddr: float | None = None
) -> Performance:
    """Compile a quantised graph into the chip's file, and predict its speed.

    Unsupported if the file cannot hold the network. Ops before and after it run on the CPU.
    """
    made, timed = COMPILERS[chip.file](graph, chip, clock, ddr)
    before = [_on_cpu(n, chip) for n in made.lowered.before if isinstance(n, Node)]
    after = [_on_cpu(n, chip) for n, _ in made.lowered.after]
    return report(in_a_row([cpu(before), with_start(timed, chip), cpu(after)]), chip)


def _bmodel(graph: Graph, chip: Chip, clock: float | None, ddr: float | None) -> tuple[Any, Timed]:
    compiler, steps, variants = _modules("bm1684x", "compile", "steps", "variants")
    made = compiler.compile_bmodel(graph, chip)
    layers = described(layers_of(made.program))
    variant = variants.VARIANTS[chip.name]
    return made, steps.of_commands(made.commands, layers, variant, clock, ddr)


def _cvimodel(
    graph: Graph, chip: Chip, clock: float | None, ddr: float | None
) -> tuple[Any, Timed]:
    compiler, commands, steps = _modules("cv18xx", "compile", "commands", "steps")
    made = compiler.compile_cvimodel(graph, chip)
    layers = described(layers_of(made.schedule))
    return made, steps.of_commands(made.commands, layers, commands.CHIPS[chip.name], clock, ddr)


def _kmodel(graph: Graph, chip: Chip, clock: float | None, ddr: float | None) -> tuple[Any, Timed]:
    compiler, timing = _modules("k210", "compile", "timing")
    made = compiler.compile_kmodel(graph)
    return made, timing.of_file(made.model, clock, ddr)


COMPILERS: dict[str, Callable[..., tuple[Any, Timed]]] = {
    "bmodel": _bmodel,
    "cvimodel": _cvimodel,
    "kmodel": _kmodel,
}


def has_times(chip: Chip) -> bool:
    """Whether the commands of a chip's file have known times."""
    return chip.file in COMPILERS and not chip.only_shifts


READERS: dict[str, Callable[..., Performance]] = {
    "bmodel": of_bmodel,
    "cvimodel": of_cvimodel,
    "kmodel": of_kmodel,
    "rkjob": of_rkjob,
}


def performance(timed: Timed, chip: Chip) -> Performance:
    """The report of a timeline of commands, with the time that the runtime takes to start it."""
    return report(with_start(timed, chip), chip)


def with_start(timed: Timed, chip: Chip) -> Timed:
    """A timeline of commands behind the time that the runtime takes to start it."""
    module = timed.layers[0].module.replace("npu", "cpu") if timed.layers else ""
    start = LayerText("start", "start by the runtime", "", module=module)
    return in_a_row([cpu([(start, constants(chip)["start"])]), timed])


def report(timed: Timed, chip: Chip) -> Performance:
    """The report of a timeline."""
    mhz = timed.clock
    result = Performance(
        chip.name,
        mhz,
        timed.ddr,
        timed.cores,
        chip_cores=chip.cores,
        source=timed.source,
        notes=list(timed.notes),
        family=chip.family,
        kind=bands.kind((text.op for text in timed.layers), 0),
    )
    spent, bounds = timed.spent()
    for number, text in enumerate(timed.layers):
        mine = [s for s in timed.steps if s.layer == number]
        if mine:
            row = _row(number, text, mine, spent[number], bounds[number], chip, mhz)
            result.layers.append(row)
    result.layers = [r for r in result.layers if r.microseconds or r.npu_cycles or r.ddr_cycles]
    cpu = sum(r.microseconds for r in result.layers if r.unit == CPU)
    result.milliseconds = timed.microseconds / 1e3
    result.cpu_milliseconds = cpu / 1e3
    result.npu_milliseconds = result.milliseconds - result.cpu_milliseconds
    result.busy = [{k: [v] for k, v in timed.busy().items()}]
    result.parts = [Part("npu0", 0.0, timed.microseconds)]
    result.commands = timed
    return result


def _row(
    number: int,
    text: LayerText,
    steps: list[Step],
    microseconds: float,
    bound: str,
    chip: Chip,
    mhz: float,
) -> LayerRow:
    on_cpu = all(s.engine == CPU for s in steps)
    macs = sum(s.macs for s in steps)
    computes = sum(s.microseconds for s in steps if not s.moves and s.engine != CPU) * mhz
    moves = sum(s.microseconds for s in steps if s.moves) * mhz
    known = chip.units["conv"].rate
    peak = known.get(text.dtype, max(known.values()))
    busy = max(microseconds * mhz, computes)
    return LayerRow(
        number,
        text.module or ("cpu0" if on_cpu else "npu0"),
        text.op,
        text.name,
        text.dtype,
        CPU if on_cpu else "NPU",
        text.inputs,
        text.output,
        moves,
        computes,
        0.0 if on_cpu else microseconds * mhz,
        microseconds,
        macs / (busy * peak) if busy else 0.0,
        sum(s.bytes for s in steps),
        0,
        bound,
        load=(1.0,),
        layer=number,
    )


def cpu(ops: Iterable[tuple[LayerText, float]]) -> Timed:
    """Ops of the CPU and their microseconds as a timeline."""
    rows = list(ops)
    steps = [Step(CPU, text.op, i, long) for i, (text, long) in enumerate(rows)]
    return Timed(steps, [text for text, _ in rows], "", 0.0, 0.0)


def _on_cpu(node: Node, chip: Chip) -> tuple[LayerText, float]:
    """An op of the CPU, with its estimated time."""
    shape = "x".join(map(str, node.outputs[0].shape))
    text = LayerText(node.op, node.origin or node.outputs[0].name, "", "", shape)
    return text, nanoseconds(node, chip.host) / 1e3


def _modules(room: str, *names: str) -> list[Any]:
    return [import_module(f"{ROOM}.{room}.{name}") for name in names]


def _chip(name: str) -> Chip:
    lower = name.lower()
    return chips.load(CHIP_NAMES.get(lower, lower))
