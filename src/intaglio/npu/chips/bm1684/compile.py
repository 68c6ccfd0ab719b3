"""From a quantised graph to a bmodel of the BM1684: the whole compiler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.errors import BadInput, Unsupported
from intaglio.files import write_atomically
from intaglio.ir import Graph
from intaglio.npu import compile as schedule
from intaglio.npu.chips.bm1684.compute import compute
from intaglio.npu.chips.bm1684.layout import WordLayout
from intaglio.npu.chips.bm1684.lower import Lowered, lower
from intaglio.npu.chips.bm1684.transfers import move, table_to_l2
from intaglio.npu.chips.bm1684.variant import BM1684
from intaglio.npu.chips.bm1684x import bmodel, commands
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Group, Net, Stage, Subnet
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.compile import about_ports, places
from intaglio.npu.chips.bm1684x.encode import Encoder
from intaglio.npu.chips.quantised import require_quantised
from intaglio.npu.own.isa import Instruction
from intaglio.targets.chip import Chip

MAX_COMMANDS = (1 << 16) - 1  # numbers that a command's field holds


@dataclass
class Compiled:
    """A bmodel, and the graph of the chip's layers, whose meaning it has."""

    model: Bmodel
    lowered: Lowered
    program: schedule.Compiled
    commands: list[Command]
    data: bytes

    @property
    def graph(self) -> Graph:
        """The layers with the chip's arithmetic: `intaglio.interpret` gives the file's bits."""
        return self.lowered.graph

    @property
    def about(self) -> dict[str, Any]:
        """The ports of the file, with the scales that turn their numbers into real ones."""
        return about_ports(self.lowered.inputs, self.lowered.outputs)

    def save(self, path: str | Path) -> None:
        """Write the file."""
        write_atomically(path, self.data)


class WordEncoder(Encoder):
    """The chip's own commands, with the dependencies of its younger relatives."""

    def compute(self, given: Instruction) -> None:
        layer = self.made.net.layers[given.layer]
        constants = self.made.context.constants[given.layer]
        compute(given, layer, constants, self.add_tiu, self.move_table)

    def move_table(self, address: int) -> None:
        """Earlier lookups end before their table is overwritten, later ones wait for theirs."""
        waits, self.depends = self.depends, self.count["tiu"]
        self.add("dma", table_to_l2(address))
        self.copied = self.count["dma"]
        self.depends = max(waits, self.copied)

    def move(self, given: Instruction) -> None:
        self.add("dma", move(given, self.addresses))


def compile_bmodel(graph: Graph, chip: Chip, level: int = 3, grouped: bool = True) -> Compiled:
    """Compile a quantised graph to a bmodel; the given graph stays unchanged.

    Unsupported names the ops that stand in the way. Ops before the first layer (quantising the
    input) and after the last are left to the caller: `lowered.before` and `lowered.after`.
    """
    if chip.name != BM1684.name:
        raise BadInput(f"these bmodel files are written for {BM1684.name}, not for {chip.name}")
    require_quantised(graph, chip.name)
    return compile_layers(lower(graph.copy(), chip, level), chip, grouped)


def compile_layers(lowered: Lowered, chip: Chip, grouped: bool = True) -> Compiled:
    """The bmodel of layers that are lowered already."""
    program = schedule.build(lowered.layers, chip, grouped, chip_layout=WordLayout())
    coefficients = program.weights.tobytes() or bytes(64)
    internal = program.program.internal
    found = places(lowered.inputs, lowered.outputs, len(coefficients), internal, BM1684)
    stream = WordEncoder(program, found.addresses).run()
    counts = {e: sum(c.engine == e for c in stream) for e in commands.ENGINES}
    if max(counts.values()) > MAX_COMMANDS:
        raise Unsupported(
            f"bm1684: the program has {max(counts.values())} commands for one engine; "
            f"at most {MAX_COMMANDS} can be numbered: use a smaller input"
        )
    tiu, dma = commands.encode(stream, BM1684.name)
    group = Group(tiu, dma, counts["tiu"], counts["dma"])
    ports = found.inputs, found.outputs
    stage = Stage(
        *ports,
        [Subnet(*ports, [group])],
        coefficients,
        BM1684.coefficients,
        neurons=found.neurons,
        neuron_bytes=found.neuron_bytes,
    )
    model = Bmodel([Net(lowered.graph.name or "net", [stage])], BM1684.title)
    return Compiled(model, lowered, program, stream, bmodel.write(model))
