"""From the graph of an NPU module to its program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node
from intaglio.npu.layers import Network, network
from intaglio.npu.own.emit import Emitter
from intaglio.npu.own.isa import Feature, Port, Program
from intaglio.npu.simulate.run import npu_run
from intaglio.npu.tiling.pinning import Arrangement, arrange
from intaglio.npu.tiling.search import groups
from intaglio.npu.tiling.tiles import PRICES, SPREAD, Facts
from intaglio.targets.chip import Chip

Progress = Callable[[str], None]


@dataclass(slots=True)
class Compiled:
    """A program, its weights, and how it came to be: what the reports are made of."""

    program: Program
    weights: Array
    net: Network
    facts: Facts
    arrangement: Arrangement

    @property
    def traffic(self) -> int:
        """Bytes that it moves between cores and DDR; the chip's shared SRAM does not count."""
        near = self.program.near
        moves = [i.fields for i in self.program.instructions if i.op in ("load", "store")]
        return sum(_moved(f, near) for f in moves)

    @property
    def least_traffic(self) -> int:
        """Bytes that any program moves: weights, inputs and outputs, each once."""
        maps = sum(v.type.bytes for v in [*self.net.inputs, *self.net.outputs])
        return len(self.weights) + maps


def _moved(fields: dict[str, object], near: int) -> int:
    """Bytes of DDR that a transfer touches."""
    src, dst = fields["src"], fields["dst"]
    assert isinstance(src, Feature)
    assert isinstance(dst, Feature)
    f = dst if src.space == "sram" else src
    blocks = -(-(f.first + f.channels) // f.c2)
    line = f.width * f.pixel
    if f.space != "internal" or f.offset >= near:
        return blocks * f.height * line
    starts = f.offset + np.arange(blocks)[:, None] * f.plane + np.arange(f.height) * f.row
    return int(np.clip(starts + line - near, 0, line).sum())


def build(
    body: Graph, chip: Chip, together: bool = True, cores: int = 1, progress: Progress | None = None
) -> Compiled:
    """The program of a graph of npu ops for so many cores.

    With `together` False each layer runs by itself, and all that lies between goes outside.
    """
    if not 1 <= cores <= chip.cores:
        raise BadInput(f"{chip.name}: {cores} cores are asked for; it has {chip.cores}")
    net = network(body, chip)
    tell = progress or (lambda words: None)
    facts = Facts.of(net, chip, cores)
    alone = _arranged(body, net, facts, False, tell)
    if not together:
        return alone
    made = alone
    for price in PRICES:
        facts.price = price
        made = _arranged(body, net, facts, True, tell)
        if made.traffic <= alone.traffic:
            break
        made = alone
    return _spread(body, net, made, tell) if cores > 1 else made


def _spread(body: Graph, net: Network, made: Compiled, tell: Progress) -> Compiled:
    """The program, or one that deals attention to all cores where that is sooner.

    Its keys are needed whole, so that it runs in one band, on one core, where all of it fits.
    """
    idle = [
        x.group
        for x in made.arrangement.layouts
        if x.group.tiles * x.group.images < made.facts.cores
    ]
    if not any(net.layers[k].op == "matmul" for g in idle for k in g.numbers):
        return made
    facts = replace(made.facts, price=SPREAD, spread=True)
    other = _arranged(body, net, facts, True, tell)
    times = [sum(x.group.time for x in m.arrangement.layouts) for m in (other, made)]
    return other if times[0] < times[1] else made


def _arranged(body: Graph, net: Network, facts: Facts, together: bool, tell: Progress) -> Compiled:
    chip, cores = facts.chip, facts.cores
    found = groups(net, facts, together, lambda i, n: tell(f"cut layer {i + 1} of {n}"))
    arrangement = arrange(net, facts, found, stay=together and cores == 1)
    emitter = Emitter(facts, arrangement)
    emitter.run()
    program = Program(
        chip=chip.name,
        cores=cores,
        sram=chip.sram,
        internal=arrangement.internal,
        weights=len(emitter.weights),
        inputs=[Port(v.dtype, v.shape) for v in body.inputs],
        outputs=[Port(v.dtype, v.shape) for v in body.outputs],
        instructions=emitter.instructions,
        near=min(chip.shared, arrangement.internal),
        align=chip.align,
    )
    weights = np.frombuffer(bytes(emitter.weights), np.uint8)
    return Compiled(program, weights, net, facts, arrangement)


def compile_programs(
    graph: Graph,
    chip: Chip,
    together: bool = True,
    cores: int = 1,
    progress: Progress | None = None,
) -> list[Compiled]:
    """Replace every `npu.program` of a graph by the instructions that compute it."""
    made = []
    for node in [n for n in graph.nodes() if n.op == "npu.program"]:
        compiled = build(node.attrs["body"], chip, together, cores, progress)
        made.append(compiled)
        run = npu_run.node(
            compiled.program.encode(), compiled.weights, *node.inputs, origin=node.origin
        )
        _replace(graph, node, run)
    return made


def _replace(graph: Graph, old: Node, new: Node) -> None:
    for before, after in zip(old.outputs, new.outputs, strict=True):
        after.name = before.name
        graph.replace(before, after)
