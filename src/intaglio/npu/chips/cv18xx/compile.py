"""From a quantised graph to a cvimodel: the whole compiler for CV181x and CV180x."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Graph
from intaglio.npu import compile as schedule
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.commands import CHIPS, Command, encode
from intaglio.npu.chips.cv18xx.cvimodel import CMDBUF, WEIGHT, Cvimodel
from intaglio.npu.chips.cv18xx.encode import Encoder, Place
from intaglio.npu.chips.cv18xx.lane_layout import LaneLayout
from intaglio.npu.chips.cv18xx.lower import Lowered, Port, lower
from intaglio.npu.chips.cv18xx.tensors import FIRST_PORT, MOST_PORTS
from intaglio.npu.chips.quantised import require_quantised
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip

COMMANDS = "commands"
ALIGNMENT = 64  # bytes, of tensors in shared memory


@dataclass
class Compiled:
    """A cvimodel, its commands, and the graph whose meaning it has."""

    model: Cvimodel
    lowered: Lowered
    schedule: schedule.Compiled
    commands: list[Command]
    data: bytes

    @property
    def graph(self) -> Graph:
        """The layers with the chip's arithmetic: `intaglio.interpret` gives the file's bits."""
        return self.lowered.graph

    def save(self, path: str | Path) -> None:
        """Write the file."""
        write_atomically(path, self.data)


def compile_cvimodel(graph: Graph, chip: Chip | str, level: int = 3) -> Compiled:
    """Compile a quantised graph to a cvimodel; the given graph stays unchanged.

    Unsupported names the ops that stand in the way. Ops before the first layer (quantising the
    input) and after the last are left to the caller: `lowered.before` and `lowered.after`.
    """
    chip = chips.load(chip) if isinstance(chip, str) else chip
    if chip.name not in CHIPS:
        raise BadInput(f"{chip.name} runs no cvimodel; {' and '.join(CHIPS)} do")
    require_quantised(graph, chip.name)
    return compile_layers(lower(graph.copy(), chip, level), chip)


def compile_layers(lowered: Lowered, chip: Chip) -> Compiled:
    """The cvimodel of layers that are lowered already."""
    made = schedule.build(lowered.layers, chip, chip_layout=LaneLayout())
    inputs, outputs, shared = _places(lowered, made.program.internal)
    encoder = Encoder(made.net.layers, chip.c2["i8"], inputs, outputs)
    commands = encoder.run(made.program.instructions)
    model = _model(lowered, chip.name, inputs, outputs, shared)
    model.sections = [
        cvimodel.Section(WEIGHT, "weight", made.weights.tobytes()),
        cvimodel.Section(CMDBUF, COMMANDS, encode(commands, chip.name)),
    ]
    return Compiled(model, lowered, made, commands, cvimodel.write(model))


def _places(lowered: Lowered, internal: int) -> tuple[list[Place], list[Place], int]:
    """Where inputs and outputs lie, and the bytes of shared memory.

    The first five have a base register each; the others lie behind the maps between layers.
    """
    places, end = [], internal
    for k, port in enumerate([*lowered.inputs, *lowered.outputs]):
        if k < MOST_PORTS:
            places.append(Place(FIRST_PORT + k))
            continue
        end = -(-end // ALIGNMENT) * ALIGNMENT
        places.append(Place(cvimodel.SHARED, end))
        end += _bytes(port)
    count = len(lowered.inputs)
    return places[:count], places[count:], end


def _bytes(port: Port) -> int:
    total = 1
    for n in port.shape:
        total *= n
    return total


def _model(
    lowered: Lowered, chip: str, inputs: list[Place], outputs: list[Place], shared: int
) -> Cvimodel:
    named = [*zip(lowered.inputs, inputs, strict=True), *zip(lowered.outputs, outputs, strict=True)]
    factors = [1 / p.scale for p in lowered.inputs] + [p.scale for p in lowered.outputs]
    tensors = [
        cvimodel.Tensor(p.name, p.dtype, p.shape, at.base, at.offset, factor)
        for (p, at), factor in zip(named, factors, strict=True)
    ]
    read, made = ([p.name for p in ports] for ports in (lowered.inputs, lowered.outputs))
    routine = cvimodel.Routine("tpu", read, made, COMMANDS)
    program = cvimodel.Program(read, made, tensors, [routine], shared)
    return Cvimodel(lowered.graph.name or "model", chip, [program], [], made_by="intaglio")
