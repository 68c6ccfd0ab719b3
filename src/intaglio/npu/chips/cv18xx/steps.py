"""A cvimodel's commands as steps of a timeline, with the layers that they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.npu.chips.cv18xx import disassembly, timing
from intaglio.npu.chips.cv18xx.commands import Chip, Command, decode, find_chip
from intaglio.npu.chips.cv18xx.cvimodel import CMDBUF, Cvimodel
from intaglio.npu.chips.cv18xx.fields import TDMA, TIU
from intaglio.npu.predict.engines import KnownLayers, LayerText, Step, Timed, numbered_waits
from intaglio.targets import chip as chips

SOURCE = "the commands of the cvimodel: cycles of tpu-mlir's own model, each piece of DDR counted"
OTHER = {"tiu": "tdma", "tdma": "tiu"}
PRODUCTS = (0, 1, 2)  # tsk_typ of convolutions, windows and matrix products: each begins a layer


def of_file(
    model: Cvimodel,
    clock: float | None = None,
    ddr: float | None = None,
    known: KnownLayers | None = None,
) -> Timed:
    """The steps of a file's first program."""
    chip = find_chip(model.chip)
    found: list[Command] = []
    notes = []
    for routine in model.programs[0].routines if model.programs else []:
        if routine.kind == "cpu":
            notes.append(f"{routine.name} runs on the CPU")
            continue
        stream = decode(model.section(CMDBUF, routine.name), chip)
        last = {name: sum(c.name == name for c in found) for name in OTHER}
        for c in stream:
            c.number += last[c.name]
            c.depends += last[OTHER[c.name]] if c.depends or found else 0
        found += stream
    if known:
        known.give(found)
    layers = known.layers if known else _in_layers(found)
    timed = of_commands(found, layers, chip, clock, ddr)
    timed.notes += notes
    return timed


def of_commands(
    found: Sequence[Command],
    layers: list[LayerText],
    chip: Chip,
    clock: float | None = None,
    ddr: float | None = None,
) -> Timed:
    """Commands with their costs. `clock` (MHz) and `ddr` (GB/s) replace the chip's figures."""
    count = dict.fromkeys(OTHER, 0)
    numbers = []
    for c in found:
        count[c.name] += 1
        numbers.append(count[c.name])
    names = [c.name for c in found]
    waits = numbered_waits(names, numbers, [c.depends for c in found], OTHER)
    mhz, bandwidth = clock or chip.clock / 1e6, (ddr or chips.load(chip.name).ddr) * 1e3
    steps = []
    for c, wait in zip(found, waits, strict=True):
        if c.name == "tiu":
            values = TIU.resets | c.fields
            long, moved, macs = timing.tiu_cycles(values, chip) / mhz, 0, _macs(values)
        else:
            values = TDMA.resets | c.fields
            moved, macs = timing.ddr_bytes(values), 0
            long = max(moved / bandwidth, timing.local_cycles(values) / mhz)
        kind = disassembly.kind(c)
        layer = max(c.layer, 0)
        moves = c.name == "tdma"
        steps.append(Step(c.name.upper(), kind, layer, long, 0.0, wait, moved, macs, moves))
    return Timed(steps, layers, SOURCE, mhz, bandwidth / 1e3)


def _macs(v: dict[str, int]) -> int:
    if v["tsk_typ"] > 1 or (v["tsk_typ"] == 1 and v["tsk_eu_typ"] != 2):
        return 0
    size = v["res0_n"] * v["res0_c"] * v["res0_h"] * v["res0_w"] * v["opd1_h"] * v["opd1_w"]
    return size * (v["opd0_c"] if v["tsk_typ"] == 0 else 1)


def _in_layers(found: list[Command]) -> list[LayerText]:
    """Give each command a layer: a product or a window begins one."""
    layers: list[LayerText] = []
    for i, c in enumerate(c for c in found if c.name == "tiu"):
        v = TIU.resets | c.fields
        if not layers or v["tsk_typ"] in PRODUCTS:
            sizes = ("x".join(str(v[f"{o}_{d}"]) for d in "nchw") for o in ("opd0", "res0"))
            read, made = sizes
            kernel = f" w{v['opd1_h']}x{v['opd1_w']}" if v["tsk_typ"] < 2 else ""
            title = f"TIU command {i + 1}"
            layers.append(LayerText(disassembly.kind(c), title, "i8", read + kernel, made))
        c.layer = len(layers) - 1
    layers = layers or [LayerText("moves", "", "")]
    last = 0
    for c in found:
        if c.name == "tiu":
            last = c.layer
        else:
            c.layer = last
    return layers
