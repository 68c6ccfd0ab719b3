"""From a graph of NPU ops to its program: tiling, memory, instructions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from intaglio import dtypes, progress
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node
from intaglio.npu.chip_layout import ChipLayout
from intaglio.npu.layers import Network, network
from intaglio.npu.own.emit import Emitter
from intaglio.npu.own.isa import Feature, Port, Program
from intaglio.npu.simulate.run import npu_run
from intaglio.npu.tiling.pinning import MemoryPlan, plan_memory
from intaglio.npu.tiling.search import choose_groups
from intaglio.npu.tiling.tiles import MULTI_CORE_TRAFFIC_WEIGHT, TilingContext
from intaglio.targets.chip import Chip


@dataclass(slots=True)
class Compiled:
    """A program and its weights, with the tiling and memory plan that reports read."""

    program: Program
    weights: Array
    net: Network
    context: TilingContext
    memory_plan: MemoryPlan

    @property
    def traffic(self) -> int:
        """Bytes moved between cores and DDR in one run, without those of shared SRAM."""
        near = self.program.near
        moves = [i.fields for i in self.program.instructions if i.op in ("load", "store")]
        return sum(_moved(f, near) for f in moves)

    @property
    def least_traffic(self) -> int:
        """The lower bound of `traffic`: weights, inputs and outputs, each moved once."""
        maps = sum(v.type.bytes for v in [*self.net.inputs, *self.net.outputs])
        return len(self.weights) + maps


def _moved(fields: dict[str, object], near: int) -> int:
    """Bytes of DDR that a load or store moves."""
    src, dst = fields["src"], fields["dst"]
    assert isinstance(src, Feature)
    assert isinstance(dst, Feature)
    if "sram" not in (src.space, dst.space):  # a copy within DDR, which reads and writes
        item = dtypes.TABLE[dst.dtype].numpy.itemsize
        return 2 * dst.channels * dst.height * dst.width * item
    f = dst if src.space == "sram" else src
    blocks = -(-(f.first + f.channels) // f.c2)
    line = f.width * f.pixel
    if f.space != "internal" or f.offset >= near:
        return blocks * f.height * line
    starts = f.offset + np.arange(blocks)[:, None] * f.plane + np.arange(f.height) * f.row
    return int(np.clip(starts + line - near, 0, line).sum())


def build(
    body: Graph,
    chip: Chip,
    grouped: bool = True,
    cores: int = 1,
    chip_layout: ChipLayout | None = None,
) -> Compiled:
    """The program of a graph of NPU ops.

    With `grouped` False each layer runs alone, and all maps between layers go through DDR.
    `chip_layout` is that of an encoder of real commands, which translates the program.
    """
    if not 1 <= cores <= chip.cores:
        raise BadInput(f"{chip.name}: {cores} cores are requested; it has {chip.cores}")
    of_chip = chip_layout or ChipLayout()
    net = network(body, chip, of_chip.exact_rows, of_chip.spread)
    context = TilingContext.of(net, chip, cores, chip_layout)
    layer_by_layer = _compile(body, net, context, False)
    if not grouped:
        return layer_by_layer
    result = layer_by_layer
    for traffic_weight in context.chip_layout.traffic_weights:
        context.traffic_weight = traffic_weight
        result = _compile(body, net, context, True)
        if result.traffic <= layer_by_layer.traffic:
            break
        result = layer_by_layer
    return _split_attention(body, net, result) if cores > 1 else result


def _split_attention(body: Graph, net: Network, made: Compiled) -> Compiled:
    """The program, or one that splits attention over all cores if that is faster.

    A matrix product needs its second operand whole. If everything fits, it runs as one band on one
    core, and the other cores idle.
    """
    idle = [
        x.group
        for x in made.memory_plan.layouts
        if x.group.tiles * x.group.images < made.context.cores
    ]
    if not any(net.layers[k].op == "matmul" for g in idle for k in g.numbers):
        return made
    context = replace(made.context, traffic_weight=MULTI_CORE_TRAFFIC_WEIGHT, split_over_cores=True)
    other = _compile(body, net, context, True)
    times = [sum(x.group.time for x in m.memory_plan.layouts) for m in (other, made)]
    return other if times[0] < times[1] else made


def _compile(body: Graph, net: Network, context: TilingContext, grouped: bool) -> Compiled:
    chip, cores = context.chip, context.cores
    found = choose_groups(net, context, grouped)
    progress.report("placing tensors in memory")
    memory_plan = plan_memory(net, context, found, pin=grouped and cores == 1)
    progress.report("writing instructions")
    emitter = Emitter(context, memory_plan)
    emitter.run()
    program = Program(
        chip=chip.name,
        cores=cores,
        sram=chip.sram,
        internal=memory_plan.internal,
        weights=len(emitter.weights),
        inputs=[Port(v.dtype, v.shape) for v in body.inputs],
        outputs=[Port(v.dtype, v.shape) for v in body.outputs],
        instructions=emitter.instructions,
        near=min(chip.shared, memory_plan.internal),
        align=chip.align,
        chip_cores=chip.cores,
    )
    weights = np.frombuffer(bytes(emitter.weights), np.uint8)
    return Compiled(program, weights, net, context, memory_plan)


def compile_programs(
    graph: Graph, chip: Chip, grouped: bool = True, cores: int = 1
) -> list[Compiled]:
    """Replace every `npu.program` of a graph by `npu.run` of its compiled program."""
    results = []
    for node in [n for n in graph.nodes() if n.op == "npu.program"]:
        compiled = build(node.attrs["body"], chip, grouped, cores)
        results.append(compiled)
        run = npu_run.node(
            compiled.program.encode(), compiled.weights, *node.inputs, origin=node.origin
        )
        _replace(graph, node, run)
    return results


def _replace(graph: Graph, old: Node, new: Node) -> None:
    for before, after in zip(old.outputs, new.outputs, strict=True):
        after.name = before.name
        graph.replace(before, after)
