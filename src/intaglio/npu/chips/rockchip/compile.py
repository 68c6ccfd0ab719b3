"""From a quantised graph to the register commands of a Rockchip NPU: the whole compiler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Graph, Value
from intaglio.npu.chips.file_part import Port
from intaglio.npu.chips.rockchip import job
from intaglio.npu.chips.rockchip.encode import Encoder
from intaglio.npu.chips.rockchip.geometry import DESIGNS
from intaglio.npu.chips.rockchip.job import Job, JobPort
from intaglio.npu.chips.rockchip.lower import Lowered, lower
from intaglio.npu.chips.rockchip.memory import written_bytes
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip

CHIPS = ("rk3588", "rk3566", "rk3568", "rk3562", "rk3576", "rv1103", "rv1106")


@dataclass
class Compiled:
    """A job, and the graph whose meaning it has."""

    job: Job
    lowered: Lowered
    data: bytes

    @property
    def graph(self) -> Graph:
        """The layers with the chip's arithmetic: `intaglio.interpret` gives the file's bits."""
        return self.lowered.graph

    def save(self, path: str | Path) -> None:
        """Write the file."""
        write_atomically(path, self.data)


def compile_job(graph: Graph, chip: Chip | str, level: int = 3) -> Compiled:
    """Compile a quantised graph to register commands; the given graph stays unchanged.

    Unsupported names the ops that stand in the way. Ops before the first layer (quantising the
    input) and after the last are left to the caller: `lowered.before` and `lowered.after`.
    """
    chip = chips.load(chip) if isinstance(chip, str) else chip
    if chip.name not in CHIPS:
        raise BadInput(f"{chip.name} has no register commands here; {', '.join(CHIPS)} have")
    return compile_layers(lower(graph.copy(), chip, level), chip)


def compile_layers(lowered: Lowered, chip: Chip) -> Compiled:
    """The job of layers that are lowered already."""
    encoder = Encoder(lowered.graph, DESIGNS[chip.name])
    tasks = encoder.run()
    ports = [
        _port(encoder, v, port, is_output)
        for values, given, is_output in (
            (lowered.graph.inputs, lowered.inputs, False),
            (lowered.graph.outputs, lowered.outputs, True),
        )
        for v, port in zip(values, given, strict=True)
    ]
    made = Job(chip.name, tasks, ports, bytes(encoder.weights), encoder.memory.size)
    return Compiled(made, lowered, job.write(made))


def _port(encoder: Encoder, v: Value, port: Port, is_output: bool) -> JobPort:
    place = encoder.memory.places[v]
    size = job.stored_bytes(v.shape, place.picture, encoder.design)
    assert size <= written_bytes(v, encoder.design) or place.picture
    flags = is_output, port.dtype == "u8", place.picture
    return JobPort(port.name, *flags, v.shape, port.scale, port.zero, place.start, size)
