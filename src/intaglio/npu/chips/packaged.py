"""Packages with vendors' files inside: each NPU part of a network becomes a file of the chip."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from intaglio import passes, progress
from intaglio.custom import simulated
from intaglio.errors import BadInput, option
from intaglio.ir import Graph, Node, constant
from intaglio.npu.chips.bm1684x import bmodel, cut
from intaglio.npu.chips.bm1684x import compile as bm1684x
from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.variants import VARIANTS
from intaglio.npu.chips.cv18xx import compile as cv18xx
from intaglio.npu.chips.cv18xx import limits, lower
from intaglio.npu.chips.cv18xx.commands import CHIPS
from intaglio.npu.chips.cv18xx.commands import Command as CvCommand
from intaglio.npu.chips.sophgo_run import numbers_of, sophgo_run
from intaglio.npu.lowering.target import npu_target
from intaglio.npu.metadata import describe
from intaglio.ops.control import body_macs
from intaglio.passes.partition import report
from intaglio.passes.partition_report import Partition
from intaglio.targets import Target
from intaglio.targets.chip import Chip


@dataclass(frozen=True, slots=True)
class ChipFile:
    """The file of one NPU part, and the graph whose meaning it has."""

    name: str
    data: bytes
    graph: Graph
    about: dict[str, Any]  # layers and memory, as of programs of our own instruction set


def has_files(chip: Chip) -> bool:
    """Whether packages for a chip may hold files of it; a chip with other figures has none."""
    return chip.name in (*CHIPS, *VARIANTS) and chip.name != "sg2260"


def target_of(given: Target) -> Target:
    """A target whose NPU parts are what the chip's encoder can write."""
    chip = given.chip
    if chip is None or chip.name not in (*CHIPS, *VARIANTS):
        raise BadInput(
            f"{option('npu_code', 'chip')} puts files of the chip into a package, for "
            f"{', '.join((*CHIPS, *VARIANTS))}; the target is {given.name}: leave it out"
        )
    why_not = limits.why_not if chip.name in CHIPS else cut.why_not
    return npu_target(chip, given.isa, given.precision, also=why_not)


def rounds_otherwise(chip: Chip | None) -> bool:
    """Whether packages for a chip hold files that scale by multipliers and shifts."""
    return chip is not None and chip.name in CHIPS and has_files(chip)


def meaning(graph: Graph, target: Target) -> Graph:
    """A quantised graph in the arithmetic of its package for CV18xx, for the interpreter."""
    to, result = target_of(target), graph.copy()
    assert to.chip is not None
    passes.run(result, [*passes.neutral(to.cost), *passes.offload(to)])
    for node in result.nodes():
        if node.op == "npu.program":
            body = lower.prepared(node.attrs["body"], to.chip, keep_types=True)
            node.attrs["body"] = lower.meaning(body)
    return result


def computes_floats(chip: Chip, precision: str) -> bool:
    """Whether the files of a chip compute all layers of floats in this precision."""
    return chip.name in VARIANTS and precision in ("f16", "bf16")


def lower_floats(graph: Graph, target: Target, precision: str) -> Partition:
    """Turn all layers that the chip computes in floats into one `npu.program`; what is where."""
    assert target.chip is not None
    to = npu_target(target.chip, target.isa, also=cut.why_not)
    lowered = cut.lower(graph, to, precision)
    after = [node for node, _ in lowered.after]
    stages = {0: lowered.before, 1: list(lowered.graph.nodes()), 2: after}
    return report(to, {i: nodes for i, nodes in stages.items() if nodes}, dict(lowered.after))


def compile_programs(graph: Graph, chip: Chip) -> list[ChipFile]:
    """Replace every `npu.program` of a graph by `sophgo.run` of its file."""
    simulated.add()  # the runtime has to know the op
    nodes = [n for n in graph.nodes() if n.op == "npu.program"]
    made = []
    for i, node in enumerate(nodes):
        progress.report("writing files of the chip", i, len(nodes))
        made.append(_file(node.attrs["body"], chip, node.origin))
        _replace(graph, node, made[-1].data, chip)
    return made


def _file(body: Graph, chip: Chip, name: str) -> ChipFile:
    for i, v in enumerate(body.inputs):
        v.name = f"in{i}"  # the plug-in finds tensors by these names
    body.output_names = [f"out{i}" for i in range(len(body.outputs))]
    named = zip(body.output_names, body.outputs, strict=True)
    inputs = [(v.name, v.dtype, v.shape, 1.0, 0) for v in body.inputs]
    outputs = [(n, v.dtype, v.shape, 1.0, 0) for n, v in named]
    made: cv18xx.Compiled | bm1684x.Compiled
    if chip.name in CHIPS:
        of_cv = [lower.Port(*p) for p in inputs], [lower.Port(*p) for p in outputs]
        body = lower.prepared(body, chip, keep_types=True)
        made = cv18xx.compile_layers(lower.Lowered(body, lower.meaning(body), *of_cv), chip)
    else:
        of_bm = [cut.Port(*p) for p in inputs], [cut.Port(*p) for p in outputs]
        made = bm1684x.compile_layers(cut.Lowered(body, *of_bm), chip)
        # one runtime holds the files of all packages, and knows them by name
        made.model.nets[0].name = f"{name}_{hashlib.sha256(made.data).hexdigest()[:16]}"
        made.data = bmodel.write(made.model)
    program = made.schedule if isinstance(made, cv18xx.Compiled) else made.program
    about = describe(program, len(made.data) - program.program.weights)
    about["commands"] = _layers(made.commands)
    return ChipFile(name, made.data, made.graph, about)


def _layers(commands: Sequence[Command | CvCommand]) -> dict[str, list[list[int]]]:
    """The layer of every command, by engine: runs of [layer, count]. Files do not hold them."""
    engines = sorted({c.engine for c in commands})
    each = {e: [c.layer for c in commands if c.engine == e] for e in engines}
    return {e: [[k, len(list(run))] for k, run in groupby(found)] for e, found in each.items()}


def _replace(graph: Graph, old: Node, data: bytes, chip: Chip) -> None:
    new = sophgo_run.node(
        constant(np.frombuffer(data, np.uint8)),
        *old.inputs,
        chip=chip.name,
        macs=body_macs(old.attrs["body"]),
        types=numbers_of([v.type for v in old.outputs]),
        origin=old.origin,
    )
    for before, after in zip(old.outputs, new.outputs, strict=True):
        after.name = before.name
        graph.replace(before, after)
