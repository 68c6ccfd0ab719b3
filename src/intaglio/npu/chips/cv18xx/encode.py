"""From the instructions of a schedule to commands of the TIU and the TDMA.

The schedule has three queues, the chip two engines: loads, stores and copies between lanes share
the TDMA in the order of the program. A command waits for one command of the other engine, the last
of those that the instruction waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from intaglio.errors import Unsupported
from intaglio.npu.chips.cv18xx import compute
from intaglio.npu.chips.cv18xx.commands import Command
from intaglio.npu.chips.cv18xx.tensors import BASES, Fields, Local, ddr_side, local_side
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import QUEUES, Feature, Instruction

ENGINES = ("tiu", "dma")
NAMES = {"tiu": "tiu", "dma": "tdma"}
TO_LOCAL, TO_DDR, LOCAL_TO_LOCAL = 0, 1, 3  # directions of a transfer


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an input or output in DDR: base register and offset."""

    base: int
    offset: int = 0


@dataclass
class Encoder:
    """Encodes the instructions of one program, in their order."""

    layers: list[Layer]
    lanes: int
    inputs: list[Place]
    outputs: list[Place]
    commands: list[Command] = field(default_factory=list)
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENGINES, 0))
    # by queue: the last command of each engine after so many of its instructions
    ended: dict[str, list[dict[str, int]]] = field(
        default_factory=lambda: {q: [dict.fromkeys(ENGINES, 0)] for q in QUEUES}
    )

    def run(self, instructions: list[Instruction]) -> list[Command]:
        """The commands of these instructions."""
        for i in instructions:
            self.instruction(i)
        return self.commands

    def instruction(self, i: Instruction) -> None:
        before = [self.ended[q][n] for q, n in zip(QUEUES, i.wait, strict=True)]
        before.append(self.ended[i.queue][-1])  # its queue is in order, on either engine
        waits = {e: max(one[e] for one in before) for e in ENGINES}
        for engine, fields in self.encoded(i):
            self.count[engine] += 1
            other = ENGINES[1 - ENGINES.index(engine)]
            made = Command(engine, NAMES[engine], fields, self.count[engine], waits[other], i.layer)
            self.commands.append(made)
            waits[engine] = self.count[engine]
        self.ended[i.queue].append({e: max(waits[e], self.ended[i.queue][-1][e]) for e in ENGINES})

    def encoded(self, i: Instruction) -> Iterator[tuple[str, Fields]]:
        """Engine and fields of the commands of an instruction."""
        src, dst = i.fields["src"], i.fields["dst"]
        if i.op == "load":
            yield "dma", self.load(src, dst)
        elif i.op == "store":
            yield "dma", self.store(src, dst)
        elif i.op == "copy" and src.first != dst.first:
            sides = local_side("src", self.local(src)) | local_side("dst", self.local(dst))
            yield "dma", {"trans_dir": LOCAL_TO_LOCAL, **sides}
        elif i.op not in compute.OPS:
            raise Unsupported(f"cv18xx: {i.op} '{self.layers[i.layer].name}' has no command")
        else:
            for fields in compute.OPS[i.op](i, self.layers[i.layer], self.lanes):
                yield "tiu", fields

    def local(self, f: Feature) -> Local:
        return Local.of(f, self.lanes)

    def load(self, src: Feature, dst: Feature) -> Fields:
        if src.space == "weights":  # the same number of bytes for each lane
            n = src.width // self.lanes
            ddr = replace(src, channels=self.lanes, width=n, plane=n, row=n)
            lane = Local(dst.offset // self.lanes, self.lanes, 1, n, n, n, 1, False, self.lanes)
            return {
                "trans_dir": TO_LOCAL,
                **ddr_side("src", BASES["weights"], ddr),
                **local_side("dst", lane),
            }
        sides = self.in_ddr("src", src) | local_side("dst", self.local(dst))
        return {"trans_dir": TO_LOCAL, **sides}

    def store(self, src: Feature, dst: Feature) -> Fields:
        sides = local_side("src", self.local(src)) | self.in_ddr("dst", dst)
        return {"trans_dir": TO_DDR, **sides}

    def in_ddr(self, side: str, f: Feature) -> Fields:
        """An input, an output, or memory between layers."""
        if f.space in BASES:
            return ddr_side(side, BASES[f.space], f)
        port = (self.inputs if f.space == "input" else self.outputs)[f.slot]
        return ddr_side(side, port.base, replace(f, offset=f.offset + port.offset))
