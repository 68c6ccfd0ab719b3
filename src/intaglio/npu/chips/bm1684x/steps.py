"""A bmodel's commands as steps of a timeline, with the layers that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from intaglio.errors import BadFile, Unsupported
from intaglio.npu.chips.bm1684x import commands, numbers, timing
from intaglio.npu.chips.bm1684x.bmodel import Bmodel
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.predict.engines import LayerText, Step, Timed, numbered_waits

SOURCE = (
    "the commands of the bmodel: cycles fitted to times of single commands on real chips, "
    "which tpu-mlir publishes"
)
FIRST = ("CONV", "PorD", "MM", "SFU", "SG")  # a command of these begins a layer
OTHER = {"tiu": "dma", "dma": "tiu"}
ENGINES = {"tiu": "TIU", "dma": "DMA"}


def of_file(model: Bmodel, clock: float | None = None, ddr: float | None = None) -> Timed:
    """The steps of a file; its layers are runs of commands that begin with a product or a pool."""
    chip = timing.VARIANTS.get(model.chip)
    if chip is None:
        known = ", ".join(timing.VARIANTS)
        raise Unsupported(f"no times are known for {model.chip or 'no chip'}; only for {known}")
    if not model.nets or not model.nets[0].stages:
        raise BadFile("bmodel: it has no network")
    found: list[Command] = []
    notes = []
    form = "bm1688" if chip.name == "bm1688" else chip.title.lower()
    for subnet in model.nets[0].stages[0].subnets:
        if subnet.mode or subnet.dynamic:
            notes.append(f"subnet {subnet.id} runs on the CPU or the firmware")
            continue
        if len(subnet.cores) > 1:
            notes.append(f"only core 0 of {len(subnet.cores)} is counted")
        for group in subnet.groups or (subnet.cores[0] if subnet.cores else []):
            ran = commands.decode(group.tiu, group.dma, form)
            if not found:
                found = ran
                continue
            last = {e: max((c.number for c in found if c.engine == e), default=0) for e in OTHER}
            for c in ran:
                c.number += last[c.engine]
                c.depends = (c.depends & commands.DEPENDENCY.get(form, -1)) + last[OTHER[c.engine]]
            found += ran
    found, layers = _in_layers(found)
    timed = of_commands(found, layers, chip, clock, ddr)
    timed.notes += notes
    return timed


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


def described(layers: Sequence[dict[str, Any]]) -> list[LayerText]:
    """The texts of layers as `npu.metadata.describe` has them."""
    found = []
    for layer in layers:
        shapes = ",".join("x".join(map(str, s)) for s in layer["inputs"])
        if "kernel" in layer:
            shapes += " w" + "x".join(map(str, layer["kernel"]))
        output = "x".join(map(str, layer["output"]))
        found.append(LayerText(layer["op"], layer["name"], layer["dtype"], shapes, output))
    return found


def _in_layers(found: list[Command]) -> tuple[list[Command], list[LayerText]]:
    """Give each command a layer: DMA commands that of the TIU command that needs them."""
    layers: list[LayerText] = []
    for c in found:
        if c.engine != "tiu":
            continue
        name = c.name.removeprefix("s")
        if not layers or name.startswith(FIRST):
            layers.append(_text(c))
        c.layer = len(layers) - 1
    if not layers:
        layers.append(LayerText("moves", "", ""))
    moved: list[Command] = []
    last = 0
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
    return found, layers


def _text(c: Command) -> LayerText:
    v = c.fields

    def shape(name: str) -> str:
        return "x".join(str(v[f"{name}_{d}"]) for d in "nchw" if f"{name}_{d}" in v)

    kernel = f" w{v['opd1_h']}x{v['opd1_w']}" if "opd1_h" in v and "opd1_w" in v else ""
    dtype = numbers.NAMES.get(v.get("opd0_prec", 0), "")
    kind = commands.kind_of(c)
    return LayerText(kind, f"TIU command {c.number}", dtype, shape("opd0") + kernel, shape("res0"))
