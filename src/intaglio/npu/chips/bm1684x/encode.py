"""From the schedule's instructions to the chip's commands, with their dependencies.

The chip has two engines. Compute instructions become commands of the tensor unit, loads and stores
commands of the DMA engine, which runs them in program order. Copies between lanes are DMA commands
as well: they wait for all compute commands before them, and the next compute command for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from intaglio.npu.chips.bm1684x import commands, tiu
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.compute import compute
from intaglio.npu.chips.bm1684x.float_compute import FLOAT_COMPUTE
from intaglio.npu.chips.bm1684x.transfers import Addresses, move
from intaglio.npu.compile import Compiled
from intaglio.npu.own.isa import Instruction

SEND, WAIT = 8, 9  # kinds of SYS
DMA_SEND, DMA_WAIT = 3, 4  # of sDMA_sys


@dataclass(slots=True)
class Encoder:
    """Commands of both engines in the order in which they could run one by one."""

    made: Compiled
    addresses: Addresses
    commands: list[Command] = field(default_factory=list)
    count: dict[str, int] = field(default_factory=lambda: {"tiu": 0, "dma": 0})
    # commands of its engine that have been written once the n-th instruction of a queue is
    ends: dict[str, list[int]] = field(
        default_factory=lambda: {"load": [0], "compute": [0], "store": [0]}
    )
    copied: int = 0  # the last copy between lanes, a command of the DMA engine
    depends: int = 0
    waited: dict[str, int] = field(default_factory=lambda: {"tiu": 0, "dma": 0})
    layer: int = 0
    core: int = 0  # whose commands these are
    barriers: int = 0

    def run(self) -> list[Command]:
        """The commands of the program that one core runs."""
        several = self.made.program.cores > 1
        if several:
            self.barrier()
        for given in self.made.program.instructions:
            if given.core == self.core:
                self.instruction(given)
        if several:  # the runtime takes the outputs when the first core has ended
            self.barrier()
        return self.commands

    def instruction(self, given: Instruction) -> None:
        self.layer = given.layer
        load, computed, store = given.wait
        if given.op == "barrier":
            self.barrier()
            self.ends["store"].append(self.count["dma"])
        elif given.op == "copy":
            self.depends = self.count["tiu"]
            self.move(given)
            self.copied = self.count["dma"]
            self.ends["compute"].append(self.count["tiu"])
        elif given.queue == "compute":
            needs = self.ends["load"][load], self.ends["store"][store], self.copied
            self.depends = max(needs)
            self.compute(given)
            self.ends["compute"].append(self.count["tiu"])
        else:
            self.depends = self.ends["compute"][computed]
            self.move(given)
            self.ends[given.queue].append(self.count["dma"])

    def compute(self, given: Instruction) -> None:
        """The commands of an instruction that computes."""
        layer = self.made.net.layers[given.layer]
        constants = self.made.context.constants[given.layer]
        compute(given, layer, constants, self.add_tiu, self.addresses.chip, FLOAT_COMPUTE)

    def move(self, given: Instruction) -> None:
        """The command of an instruction that moves data."""
        self.add("dma", move(given, self.addresses))

    def barrier(self) -> None:
        """Wait for all cores: each engine sends a message and waits for those of all engines."""
        chip = self.addresses.chip
        message = chip.first_message + self.barriers % 2
        count = len(commands.ENGINES) * self.made.program.cores
        for kind in (SEND, WAIT):
            self.depends = self.count["dma"]
            self.add("tiu", ("SYS", {"tsk_eu_typ": kind, "imm": count << 16 | message}))
            self.depends = self.count["tiu"]
            value = count << chip.message_bits | message
            special = {SEND: DMA_SEND, WAIT: DMA_WAIT}[kind]
            self.add(
                "dma", ("sDMA_sys", {"cmd_special_function": special, "constant_value": value})
            )
        self.barriers += 1

    def add_tiu(self, made: tuple[str, tiu.Fields]) -> None:
        self.add("tiu", made)

    def add(self, engine: str, made: tuple[str, tiu.Fields]) -> None:
        """Append a command of an engine; it waits at least for what those before it waited for."""
        self.count[engine] += 1
        self.waited[engine] = self.depends = max(self.waited[engine], self.depends)
        name, fields = made
        number = self.count[engine]
        depends = self.depends | self.addresses.chip.waits
        self.commands.append(Command(engine, name, fields, number, depends, self.layer))
