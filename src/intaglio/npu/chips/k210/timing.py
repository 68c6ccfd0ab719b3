"""How long a kmodel takes: the KPU reads a line of 64 bytes in a cycle for each output channel.

With a 3x3 window that is 576 products in a cycle; 557 have been measured (Sipeed, 128 channels).
Weights are loaded beside the computation. Copies are made by the CPU, a byte in a cycle.
"""

from __future__ import annotations

from math import prod

from intaglio.npu.chips.k210 import layer as kpu_layer
from intaglio.npu.chips.k210 import ram
from intaglio.npu.chips.k210.model import Command, Conv, Copy, CpuLayer, Download, Kmodel, Upload
from intaglio.npu.predict.engines import LayerText, Step, Timed

SOURCE = "the layers of the kmodel: a line of the KPU's RAM for each cycle and output channel"
CLOCK = 400.0  # MHz
PORT = 8  # bytes of main memory in a cycle
START = 2000  # cycles to start a layer and take its interrupt


def of_file(model: Kmodel, clock: float | None = None, ddr: float | None = None) -> Timed:
    """The steps of all functions of the KPU; `ddr` is the speed of main memory in GB/s."""
    mhz = clock or CLOCK
    port = ddr * 1e3 / mhz if ddr else PORT
    steps: list[Step] = []
    layers: list[LayerText] = []
    notes = []
    for module in model.modules:
        if module.kind != "k210":
            notes.append(f"the code of module '{module.kind}' runs on the CPU")
            continue
        for function in module.functions:
            for command in function.commands:
                _add(command, steps, layers, mhz, port)
    skipped = sum(s.engine == "skipped" for s in steps)
    if skipped:
        notes.append(f"{skipped} layers of kmodel 3 run on the CPU")
    steps = [s for s in steps if s.engine != "skipped"]
    return Timed(steps, layers, SOURCE, mhz, port * mhz / 1e3, notes)


def _add(
    command: Command, steps: list[Step], layers: list[LayerText], mhz: float, port: float
) -> None:
    number, before = len(layers), len(steps) - 1
    match command:
        case Conv():
            one = kpu_layer.read(command.words)
            cycles, weights, macs = _conv(one)
            moved = weights
            if command.output is not None:
                moved += command.output.size
            work = max(cycles, moved / port) * command.batches
            kind = "depthwise" if one.depthwise else "conv"
            text = LayerText(
                kind,
                f"layer {number}",
                "u8",
                f"{_text(one.in_shape)} w{one.kernel}x{one.kernel}",
                _text(one.out_shape),
            )
            layers.append(text)
            long = (START + work) / mhz
            step = Step("KPU", kind, number, long, START / mhz, before, moved, macs)
            step.moves = moved / port > cycles
            steps.append(step)
        case Upload(shape=shape) | Download(shape=shape) | Copy(shape=shape):
            size = prod(shape)
            kind = type(command).__name__.lower()
            layers.append(LayerText(kind, f"layer {number}", "u8", _text(shape), _text(shape)))
            steps.append(Step("CPU", kind, number, size / mhz, 0.0, before, size, 0, True))
        case CpuLayer():
            layers.append(LayerText(command.kind, f"layer {number}", "", "", ""))
            steps.append(Step("skipped", command.kind, number, 0.0))


def _conv(one: kpu_layer.Layer) -> tuple[float, int, int]:
    """Cycles of the KPU, bytes of weights, and products."""
    channels, height, width = one.in_shape
    place = ram.layout(width)
    lines = place.row_lines * height * place.blocks(channels)
    outputs = 1 if one.depthwise else one.out_channels
    macs = prod(one.weight_shape) * height * width
    return float(lines * outputs), prod(one.weight_shape), macs


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
