"""A bmodel's commands as steps of a timeline, with the layers that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from intaglio.errors import BadFile, Unsupported
from intaglio.npu.chips.bm1684x import commands, numbers, timing
from intaglio.npu.chips.bm1684x.bmodel import Bmodel
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.predict.engines import KnownLayers, LayerText, Step, Timed, numbered_waits

SOURCE = (
    "the commands of the bmodel: cycles fitted to times of single commands on real chips, "
    "which tpu-mlir publishes"
)
FIRST = ("CONV", "PorD", "MM", "SFU", "SG")  # a command of these begins a layer
OTHER = {"tiu": "dma", "dma": "tiu"}
ENGINES = {"tiu": "TIU", "dma": "DMA"}


def of_file(
    model: Bmodel,
    clock: float | None = None,
    ddr: float | None = None,
    given: KnownLayers | None = None,
) -> Timed:
    """The steps of a file; layers that are not known begin with a product or a pool."""
    chip = timing.VARIANTS.get(model.chip)
    if chip is None:
        known = ", ".join(timing.VARIANTS)
        raise Unsupported(f"no times are known for {model.chip or 'no chip'}; only for {known}")
    if not model.nets or not model.nets[0].stages:
        raise BadFile("bmodel: it has no network")
    notes = []
    form = "bm1688" if chip.name == "bm1688" else chip.title.lower()
    streams: list[list[Command]] = []
    for subnet in model.nets[0].stages[0].subnets:
        if subnet.mode or subnet.dynamic:
            notes.append(f"subnet {subnet.id} runs on the CPU or the firmware")
            continue
        cores = subnet.cores or [subnet.groups]
        streams += [[] for _ in range(len(cores) - len(streams))]
        for stream, groups in zip(streams, cores, strict=False):
            for group in groups:
                _append(stream, commands.decode(group.tiu, group.dma, form), form)
    layers: list[LayerText] = given.layers if given else []
    for core, stream in enumerate(streams):
        if given:
            given.give(stream)
            continue
        _in_layers(stream, layers, f" of core {core}" if len(streams) > 1 else "")
    if len(streams) == 1:
        timed = of_commands(streams[0], layers, chip, clock, ddr)
    else:
        timed = _on_cores(streams, layers, chip, clock, ddr)
    timed.notes += notes
    return timed


def _append(stream: list[Command], more: list[Command], form: str) -> None:
    """Add commands whose numbers begin again at 1."""
    last = {e: max((c.number for c in stream if c.engine == e), default=0) for e in OTHER}
    for c in more if stream else ():
        c.number += last[c.engine]
        c.depends = (c.depends & commands.DEPENDENCY.get(form, -1)) + last[OTHER[c.engine]]
    stream += more


def _on_cores(
    streams: list[list[Command]],
    layers: list[LayerText],
    chip: Variant,
    clock: float | None,
    ddr: float | None,
) -> Timed:
    """The steps of several cores, which meet at barriers and share DDR."""
    parts = [commands.between_barriers(stream) for stream in streams]
    timed = [of_commands(s, layers, chip, clock, ddr) for s in streams]
    rates = timing.RATES[chip.name]
    slowest = max(1.0, rates.read * len(streams) / rates.all_cores)  # if all move as much
    steps: list[Step] = []
    at: list[list[int]] = [[] for _ in streams]  # the place of each step of a core
    sent: list[int] = []
    for number in range(max(map(len, parts))):
        before, sent = sent, []
        moved = [
            sum(s.bytes for s in t.steps[len(mine) : len(mine) + len(_part(p, number))])
            for t, mine, p in zip(timed, at, parts, strict=True)
        ]
        for core, (stream, mine) in enumerate(zip(streams, at, strict=True)):
            others = (sum(moved) - moved[core]) / max(moved[core] * (len(streams) - 1), 1)
            share = 1 + min(others, 1.0) * (slowest - 1)
            for c in stream[len(mine) : len(mine) + len(_part(parts[core], number))]:
                s = timed[core].steps[len(mine)]
                waits = mine[s.waits] if s.waits >= 0 else -1
                also = tuple(before) if commands.is_one_of(c, commands.WAITS) else ()
                long = s.start + (s.microseconds - s.start) * (share if s.bytes else 1.0)
                name = f"{s.engine} {core}"
                mine.append(len(steps))
                steps.append(replace(s, engine=name, waits=waits, also=also, microseconds=long))
                if commands.is_one_of(c, commands.SENDS):
                    sent.append(mine[-1])
    return Timed(steps, layers, SOURCE, timed[0].clock, timed[0].ddr, cores=len(streams))


def _part(parts: list[list[Command]], number: int) -> list[Command]:
    return parts[number] if number < len(parts) else []


def of_commands(
    found: Sequence[Command],
    layers: list[LayerText],
    chip: Variant,
    clock: float | None = None,
    ddr: float | None = None,
) -> Timed:
    """Commands with their costs. `clock` (MHz) and `ddr` (GB/s) replace the chip's figures."""
    rates = timing.RATES[chip.name]
    mask = commands.DEPENDENCY.get(chip.title.lower(), -1)
    waits = numbered_waits(
        [c.engine for c in found],
        [c.number for c in found],
        [c.depends & mask for c in found],
        OTHER,
    )
    scale = (clock or rates.tiu) / rates.tiu
    faster = (ddr * 1e3 / rates.dma / rates.read) if ddr else 1.0
    steps = []
    for c, wait in zip(found, waits, strict=True):
        one = timing.cost(c, chip)
        if c.engine == "tiu":
            mhz = rates.tiu * scale
        else:
            mhz = rates.dma
            work = (one.cycles - one.start) / (faster if one.bytes else 1.0)
            one = replace(one, cycles=one.start + work)
        step = Step(
            ENGINES[c.engine],
            commands.kind_of(c, chip.title.lower()),
            c.layer,
            one.cycles / mhz,
            one.start / mhz,
            wait,
            one.bytes,
            one.macs,
            c.engine == "dma",
        )
        steps.append(step)
    return Timed(steps, layers, SOURCE, rates.tiu * scale, ddr or rates.read * rates.dma / 1e3)


def _in_layers(found: list[Command], layers: list[LayerText], core: str) -> None:
    """Give each command a layer: DMA commands that of the TIU command that needs them."""
    first = len(layers)
    layers.append(LayerText("moves", f"before the first layer{core}", ""))
    for c in found:
        if c.engine != "tiu":
            continue
        name = c.name.removeprefix("s")
        if name.startswith(FIRST):
            layers.append(_text(c, core))
        c.layer = len(layers) - 1
    moved: list[Command] = []
    last = first
    for c in found:
        if c.engine == "dma":
            c.layer = last
            moved.append(c)
            continue
        for m in moved:
            if m.number <= c.depends & ((1 << 20) - 1) and m.layer >= 0:
                m.layer = c.layer
        moved = [m for m in moved if m.number > c.depends & ((1 << 20) - 1)]
        last = c.layer


def _text(c: Command, core: str) -> LayerText:
    v = c.fields

    def shape(name: str) -> str:
        return "x".join(str(v[f"{name}_{d}"]) for d in "nchw" if f"{name}_{d}" in v)

    kernel = f" w{v['opd1_h']}x{v['opd1_w']}" if "opd1_h" in v and "opd1_w" in v else ""
    dtype = numbers.NAMES.get(v.get("opd0_prec", 0), "")
    kind = commands.kind_of(c)
    return LayerText(
        kind, f"TIU command {c.number}{core}", dtype, shape("opd0") + kernel, shape("res0")
    )
