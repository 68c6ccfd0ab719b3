"""From a quantised graph to the layers of CV18xx: the part that a cvimodel holds, and its meaning.

Rules that all NPUs share make the layers. Ops before the first and after the last are left to the
caller; an op between them that the TPU cannot do is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from intaglio import passes
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.chips.cv18xx import average, limits, ops
from intaglio.npu.chips.cv18xx.arithmetic import of_convolution, of_sum
from intaglio.npu.chips.cv18xx.large_scales import split_large_scales
from intaglio.npu.chips.cv18xx.phases import fill_lanes, split_depthwise_phases
from intaglio.npu.chips.cv18xx.product import of_product
from intaglio.npu.chips.cv18xx.repeat_channel import repeat_single_channels
from intaglio.npu.chips.cv18xx.signed import as_signed
from intaglio.npu.chips.cv18xx.split import split_wide_means
from intaglio.npu.lowering.builder import integer, is_npu, scale_of
from intaglio.npu.lowering.target import npu_target
from intaglio.ops.registry import REGISTRY
from intaglio.passes.partition_report import CONSEQUENCES, IN_A_PACKAGE
from intaglio.targets import Target
from intaglio.targets.chip import Chip

MOST_PARTS = 8  # of a map whose mean does not fit in local memory
MOST_NAMED = 8  # ops that an error names
MOVES = ("reshape", "transpose")


@dataclass(slots=True)
class Port:
    """An input or output of the file: real = scale * (byte - zero)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float = 1.0
    zero: int = 0


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
    passes.run(graph, passes.neutral(), level)
    split_depthwise_phases(graph)
    split_large_scales(graph)
    passes.run(graph, passes.offload(target)[:1], level)
    graph.tidy()
    before, chosen, after = _parts(list(graph.nodes()))
    if not chosen or any(REGISTRY[n.op].macs(n) for n in (*before, *after)):
        _refuse(chip, target, before, chosen, after)
    read, results = _boundary(graph, chosen)
    names = dict(zip(graph.outputs, graph.output_names, strict=True))
    inputs = [_input(v) for v in read]
    outputs = [_output(v, names) for v in results]
    for ports in (inputs, outputs):
        _distinct(ports)
    copied = _subgraph(chosen, read, results, inputs, outputs, graph.name)
    copied = prepared(copied, chip)
    for port in outputs:
        if port.dtype == "u8":
            port.dtype, port.zero = "i8", port.zero - 128
    split_wide_means(copied, chip)
    reasons = [(n, _why(target, n)) for n in after]
    return Lowered(copied, meaning(copied), inputs, outputs, before, reasons)


def prepared(layers: Graph, chip: Chip, keep_types: bool = False) -> Graph:
    """Layers as the TPU computes them; `keep_types`: outputs of u8 stay u8, not i8."""
    repeat_single_channels(layers)
    fill_lanes(layers, chip)
    return as_signed(layers, keep_types)


def _parts(nodes: list[Node]) -> tuple[list[Node], list[Node], list[Node]]:
    """The CPU's nodes before the first layer, the layers of the file, and what comes after."""
    before: list[Node] = []
    chosen: dict[Node, None] = {}
    after: dict[Node, None] = {}
    for n in nodes:
        makers = {v.producer for v in n.inputs if v is not None and v.producer is not None}
        late = any(m in after for m in makers)
        if is_npu(n) and not late:
            chosen[n] = None
        elif late or any(m in chosen for m in makers):
            after[n] = None
        else:
            before.append(n)
    return before, list(chosen), list(after)


def _why(target: Target, n: Node) -> str:
    if is_npu(n):
        return "it reads the result of an op on the CPU"
    return target.why_not(n) or "it is after the last layer"


def _refuse(
    chip: Chip, target: Target, before: list[Node], chosen: list[Node], after: list[Node]
) -> None:
    """Raise Unsupported: no layer runs on the TPU, or convolutions wait for ops on the CPU."""
    if not chosen:
        stay = [n for n in before if n.op not in (*MOVES, "quantize_linear", "dequantize_linear")]
        what = "no layer runs on the TPU"
    else:
        needed: set[Node] = set()  # nodes that a product waits for
        for n in reversed(after):
            if n in needed or REGISTRY[n.op].macs(n):
                needed.update(v.producer for v in n.inputs if v is not None and v.producer)
        stay = [n for n in before if REGISTRY[n.op].macs(n)]
        stay += [n for n in after if not is_npu(n) and (n in needed or REGISTRY[n.op].macs(n))]
        what = "these ops before or among its convolutions stay on the CPU"
    causes = [n for n in stay if n.op not in CONSEQUENCES] or stay
    named = [f"{n.origin or n.outputs[0].name or n.op} ({n.op}): {_why(target, n)}" for n in causes]
    rest = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    rest += f"; {IN_A_PACKAGE}" if chosen else ""
    raise Unsupported(f"{chip.name}: {what}: {'; '.join(named[:MOST_NAMED]) or 'none'}{rest}")


def _boundary(graph: Graph, nodes: list[Node]) -> tuple[list[Value], list[Value]]:
    """The maps that these nodes read from outside, and those that are read outside."""
    inside = set(nodes)
    read: dict[Value, None] = {}
    for n in nodes:
        for v in n.inputs:
            if v is not None and v.data is None and v.producer not in inside:
                read[v] = None
    results = [v for n in nodes for v in n.outputs if any(u not in inside for u in v.uses)]
    return list(read), results


def _input(v: Value) -> Port:
    """An input, named after the tensor of the user that becomes it."""
    node, scale, zero, source = v.producer, 1.0, 0, v
    while node is not None and node.inputs and node.inputs[0] is not None:
        if node.op == "quantize_linear":
            scale = float(scale_of(node.inputs[1]))  # type: ignore[arg-type]
            zero = integer(node.inputs[2] if len(node.inputs) > 2 else None)
        source = node.inputs[0]
        node = source.producer
    return Port(source.name or v.name or "input", v.dtype, v.shape, scale, zero)


def _output(v: Value, names: dict[Value, str]) -> Port:
    """An output, with the scale and the name that its readers give it."""
    port = Port(names.get(v) or v.name or "output", v.dtype, v.shape)
    stack: list[Value] = [v]
    while stack:
        now = stack.pop()
        for reader in now.uses:
            if reader.op == "dequantize_linear" and reader.inputs[0] is now:
                port.scale = float(scale_of(reader.inputs[1]))  # type: ignore[arg-type]
                port.zero = integer(reader.inputs[2] if len(reader.inputs) > 2 else None)
                port.name = names.get(reader.outputs[0], port.name)
            elif reader.op in MOVES:
                stack.append(reader.outputs[0])
                port.name = names.get(reader.outputs[0], port.name)
    return port


def _distinct(ports: Iterable[Port]) -> None:
    """Give ports of the same name different ones."""
    seen: set[str] = set()
    for p in ports:
        base, k = p.name, 1
        while p.name in seen:
            p.name, k = f"{base}_{k}", k + 1
        seen.add(p.name)


def _subgraph(
    nodes: list[Node],
    read: list[Value],
    results: list[Value],
    inputs: list[Port],
    outputs: list[Port],
    name: str,
) -> Graph:
    """A copy of these nodes as a graph of its own."""
    inner = {v: Value(v.type, p.name) for v, p in zip(read, inputs, strict=True)}
    for n in nodes:
        given = [v if v is None or v.data is not None else inner[v] for v in n.inputs]
        copied = Node(n.op, given, n.attrs, [v.type for v in n.outputs], n.origin)
        for old, new in zip(n.outputs, copied.outputs, strict=True):
            new.name, inner[old] = old.name, new
    found = [inner[v] for v in read], [inner[v] for v in results]
    return Graph(*found, [p.name for p in outputs], name)


# ---- the chip's arithmetic -----------------------------------------------------------------------
def meaning(graph: Graph) -> Graph:
    """A graph of NPU ops with those that round replaced by the chip's own."""
    inner: dict[Value, Value] = {v: Value(v.type, v.name) for v in graph.inputs}
    for n in graph.nodes():
        given = [v if v is None or v.data is not None else inner[v] for v in n.inputs]
        made = _chip_node(n, given)
        for old, new in zip(n.outputs, made.outputs, strict=True):
            new.name, inner[old] = old.name, new
    outputs = [inner[v] for v in graph.outputs]
    return Graph([inner[v] for v in graph.inputs], outputs, graph.output_names, graph.name)


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
    if n.op == "npu.eltwise":
        s = of_sum(n)
        terms = {"left": s.left, "right": s.right, "offset": s.offset, "shift": s.shift}
        return ops.add.node(*given[:2], **terms, relu=_relu(n), dtype=a["dtype"], origin=n.origin)
    return REGISTRY[n.op].node(*given, **a, origin=n.origin)


def _relu(n: Node) -> bool:
    return bool(n.attrs["low"] == 0 and n.attrs["dtype"] == "i8")
