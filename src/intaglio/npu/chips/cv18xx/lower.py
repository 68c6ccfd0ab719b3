"""From a quantised graph to the layers of CV18xx: the part that a cvimodel holds, and its meaning.

Rules that all NPUs share make the layers. Ops before the first and after the last are left to the
caller; an op between them that the TPU cannot do is an error that names it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from intaglio import passes
from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.chips.cv18xx import average, limits, ops
from intaglio.npu.chips.cv18xx.arithmetic import of_convolution, of_sum
from intaglio.npu.chips.cv18xx.large_scales import split_large_scales
from intaglio.npu.chips.cv18xx.matmul import of_matmul
from intaglio.npu.chips.cv18xx.phases import fill_lanes, split_depthwise_phases
from intaglio.npu.chips.cv18xx.product import of_product
from intaglio.npu.chips.cv18xx.repeat_channel import repeat_single_channels
from intaglio.npu.chips.cv18xx.signed import as_signed
from intaglio.npu.chips.cv18xx.split import split_wide_layers, split_wide_means
from intaglio.npu.chips.file_part import Port as Port
from intaglio.npu.chips.file_part import Reals, file_part
from intaglio.npu.chips.input_layout import transpose_inputs_first
from intaglio.npu.chips.own_arithmetic import with_ops_of_chip
from intaglio.npu.lowering.target import npu_target
from intaglio.ops.registry import REGISTRY
from intaglio.targets.chip import Chip

MOST_PARTS = 8  # of a map whose mean does not fit in local memory


@dataclass(slots=True)
class Lowered:
    """A graph of NPU ops for tiling, the same graph with the chip's arithmetic, and the rest."""

    layers: Graph
    graph: Graph
    inputs: list[Port]
    outputs: list[Port]
    before: list[Node] = field(default_factory=list)
    after: list[tuple[Node, str]] = field(default_factory=list)


def lower(graph: Graph, chip: Chip, level: int = 3) -> Lowered:
    """The layers of a quantised graph, which changes; Unsupported names ops in the way."""
    # split_wide_means cuts what is larger than local memory
    target = npu_target(replace(chip, sram=MOST_PARTS * chip.sram), also=limits.why_not)
    reals = Reals()
    reals.learn(graph)
    passes.run(graph, passes.neutral(), level)
    reals.learn(graph)
    transpose_inputs_first(graph)
    split_depthwise_phases(graph)
    split_large_scales(graph)
    passes.run(graph, passes.offload(target)[:-1], level)
    graph.tidy()
    part = file_part(graph, target, reals)
    copied = prepared(part.layers, chip)
    for port in part.outputs:
        if port.dtype == "u8":
            port.dtype, port.zero = "i8", port.zero - 128
    split_wide_means(copied, chip)
    split_wide_layers(copied, chip)
    ports = part.inputs, part.outputs
    return Lowered(copied, meaning(copied), *ports, part.before, part.after)


def prepared(layers: Graph, chip: Chip, keep_types: bool = False) -> Graph:
    """Layers as the TPU computes them; `keep_types`: outputs of u8 stay u8, not i8."""
    repeat_single_channels(layers)
    fill_lanes(layers, chip)
    return as_signed(layers, keep_types)


# ---- the chip's arithmetic -----------------------------------------------------------------------
def meaning(graph: Graph) -> Graph:
    """A graph of NPU ops with those that round replaced by the chip's own."""
    return with_ops_of_chip(graph, _chip_node)


def _chip_node(n: Node, given: list[Value | None]) -> Node:
    a = n.attrs
    if n.op in ("npu.conv", "npu.depthwise"):
        assert given[0] is not None
        table = of_convolution(n)
        window: dict[str, Any] = {k: a[k] for k in ("stride", "pad", "dilation")}
        return ops.conv.node(
            given[0],
            constant(table.weights),
            constant(np.ascontiguousarray(table.table)),
            **window,
            groups=given[0].shape[1] if n.op == "npu.depthwise" else 1,
            padding=a["x_zero"],
            relu=_relu(n),
            dtype=a["dtype"],
            origin=n.origin,
        )
    if n.op == "npu.pool" and a["kind"] == "avg":
        return ops.avg_pool.node(
            given[0],
            constant(average.table(n)),
            constant(np.array(average.counts(n), np.int64)),
            **{k: a[k] for k in ("kernel", "stride", "pad")},
            weight=average.weight(n),
            padding=a["x_zero"],
            relu=_relu(n),
            dtype=a["dtype"],
            origin=n.origin,
        )
    if n.op == "npu.eltwise" and a["kind"] == "mul":
        numbers = asdict(of_product(n))
        return ops.mul.node(*given[:2], **numbers, relu=_relu(n), dtype=a["dtype"], origin=n.origin)
    if n.op == "npu.matmul":
        end = asdict(of_matmul(n))
        return ops.matmul.node(*given, **end, relu=_relu(n), dtype=a["dtype"], origin=n.origin)
    if n.op == "npu.eltwise":
        s = of_sum(n)
        terms = {"left": s.left, "right": s.right, "offset": s.offset, "shift": s.shift}
        return ops.add.node(*given[:2], **terms, relu=_relu(n), dtype=a["dtype"], origin=n.origin)
    return REGISTRY[n.op].node(*given, **a, origin=n.origin)


def _relu(n: Node) -> bool:
    return bool(n.attrs["low"] == 0 and n.attrs["dtype"] == "i8")
