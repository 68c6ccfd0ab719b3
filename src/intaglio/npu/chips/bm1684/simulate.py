"""Runs the commands of a bmodel for the BM1684: what the chip computes, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684 import units
from intaglio.npu.chips.bm1684.memory import Memory
from intaglio.npu.chips.bm1684.variant import BM1684
from intaglio.npu.chips.bm1684x import commands, simulate
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Stage
from intaglio.npu.chips.bm1684x.commands import Command

UNITS: dict[str, Callable[[Memory, Mapping[str, int]], None]] = {
    "CONV": units.conv,
    "PorD": units.windows,
    "AR": units.arithmetic,
    "LUT": units.lookup,
    "DMA_tensor": units.move,
}


def execute(memory: Memory, command: Command) -> None:
    """Run one command; Unsupported where it is not simulated."""
    form = commands.form_of(command, BM1684.name)
    if form is None or command.name not in UNITS:
        kind = commands.kind_of(command, BM1684.name)
        raise Unsupported(f"command {command.name} ({kind}) is not simulated")
    fields = dict.fromkeys(form.names, 0) | dict(form.defaults) | command.fields
    where = f"command {command.number} of the {command.engine}, {command.name}"
    try:
        with np.errstate(all="ignore"):
            UNITS[command.name](memory, fields)
    except (BadFile, Unsupported) as e:
        raise type(e)(f"{where}: {e}") from None
    except (BadInput, ValueError, IndexError, KeyError, OverflowError, MemoryError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise BadFile(f"{where}: its fields do not fit together ({reason})") from None


class Machine:
    """A bmodel file for the BM1684, and the memories of the chip that runs it."""

    def __init__(self, model: Bmodel):
        if not model.nets or not model.nets[0].stages:
            raise BadFile("bmodel: it has no network")
        self.stage = model.nets[0].stages[0]
        if self.stage.encrypted:
            raise Unsupported(f"the coefficients of '{model.nets[0].name}' are encrypted")
        self.program: list[Command] = []
        for subnet in self.stage.subnets:
            if subnet.mode or subnet.dynamic:
                kind = "the CPU" if subnet.mode else "the chip's firmware"
                raise Unsupported(f"a part of the network runs on {kind}; only commands are")
            for g in subnet.groups:
                self.program += commands.decode(g.tiu, g.dma, BM1684.name)
        self.memory = Memory([_extent(self.stage), (BM1684.l2, BM1684.l2_bytes)])
        data = np.frombuffer(self.stage.coefficients, np.uint8)
        self._bytes(self.stage.address, len(data))[:] = data

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for some inputs."""
        for t in self.stage.inputs:
            self._bytes(t.address, t.size)[:] = simulate.input_bytes(feeds, t)
        for command in self.program:
            execute(self.memory, command)
        return {
            t.name: self._bytes(t.address, t.size)
            .copy()
            .view(simulate.dtype_of(t))
            .reshape(t.shape)
            for t in self.stage.outputs
        }

    def _bytes(self, address: int, size: int) -> Array:
        memory, offset = self.memory.find(address, size)
        return memory[offset : offset + size]


def _extent(stage: Stage) -> tuple[int, int]:
    """The first address of DDR that a file uses, and how many bytes follow."""
    places = [(stage.address, len(stage.coefficients)), (stage.neurons, stage.neuron_bytes)]
    for t in (*stage.inputs, *stage.outputs):
        simulate.dtype_of(t)
        places.append((t.address, t.size))
    used = [(at, size) for at, size in places if size]
    first = min((at for at, _ in used), default=0)
    size = max((at + size for at, size in used), default=0) - first
    if size > simulate.MOST_DDR:
        raise BadFile(f"bmodel: it needs {size} bytes of DDR; {simulate.MOST_DDR} are simulated")
    return first, size


def machine_of(model: Bmodel) -> Machine | simulate.Machine:
    """The machine of the chip that a bmodel is for."""
    return Machine(model) if model.chip == BM1684.title else simulate.Machine(model)
