"""From a quantised graph to the layers of CV18xx: the part that a cvimodel holds, and its meaning.

Rules that all NPUs share make the layers. Ops before the first and after the last are left to the
caller; an op between them that the TPU cannot do is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import passes
from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value, constant
from intaglio.npu.chips.cv18xx import ops
from intaglio.npu.chips.cv18xx.arithmetic import of_convolution, of_sum
from intaglio.npu.lowering.builder import integer, is_npu, scale_of
from intaglio.npu.lowering.target import npu_target
from intaglio.ops.registry import REGISTRY
from intaglio.targets import Target
from intaglio.targets.chip import Chip

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
    target = npu_target(chip)
    passes.run(graph, passes.neutral(), level)
    passes.run(graph, passes.offload(target)[:1], level)
    graph.tidy()
    nodes = list(graph.nodes())
    chosen = [n for n in nodes if is_npu(n)]
    before, after, middle = _around(nodes)
    if middle or not chosen:
        _refuse(chip, target, middle or [n for n in nodes if n.op != "quantize_linear"], chosen)
    read, results = _boundary(graph, chosen)
    names = dict(zip(graph.outputs, graph.output_names, strict=True))
    inputs = [_input(v) for v in read]
    outputs = [_output(v, names) for v in results]
    for ports in (inputs, outputs):
        _distinct(ports)
    copied = _subgraph(chosen, read, results, inputs, outputs, graph.name)
    reasons = [(n, target.why_not(n) or "it is after the last layer") for n in after]
    return Lowered(copied, meaning(copied), inputs, outputs, before, reasons)


def _around(nodes: list[Node]) -> tuple[list[Node], list[Node], list[Node]]:
    """The CPU's nodes before all NPU nodes, after them, and between them."""
    below: set[Node] = set()  # nodes that depend on an NPU node
    for n in nodes:
        makers = [v.producer for v in n.inputs if v is not None and v.producer is not None]
        if is_npu(n) or any(m in below for m in makers):
            below.add(n)
    above: set[Node] = set()  # nodes that an NPU node depends on
    for n in reversed(nodes):
        if is_npu(n) or n in above:
            above.update(v.producer for v in n.inputs if v is not None and v.producer is not None)
    own = [n for n in nodes if not is_npu(n)]
    middle = [n for n in own if n in above and n in below]
    before = [n for n in own if n not in below]
    return before, [n for n in own if n in below and n not in above], middle


def _refuse(chip: Chip, target: Target, nodes: list[Node], chosen: list[Node]) -> None:
    named = []
    for n in nodes:
        why = target.why_not(n) or "no rule lowers it"
        named.append(f"{n.origin or n.outputs[0].name} ({n.op}): {why}")
    rest = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    what = "these ops between its layers stay on the CPU" if chosen else "no layer runs on the TPU"
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
        window: dict[str, Any] = {k: a[k] for k in ("stride", "pad", "dilation")}
        return ops.conv.node(
            given[0],
            given[1],
            constant(np.ascontiguousarray(of_convolution(n).table)),
            **window,
            groups=given[0].shape[1] if n.op == "npu.depthwise" else 1,
            padding=a["x_zero"],
            relu=_relu(n),
            dtype=a["dtype"],
            origin=n.origin,
        )
    if n.op == "npu.eltwise":
        s = of_sum(n)
        numbers = {"left": s.left, "right": s.right, "offset": s.offset, "shift": s.shift}
        return ops.add.node(*given[:2], **numbers, relu=_relu(n), dtype=a["dtype"], origin=n.origin)
    return REGISTRY[n.op].node(*given, **a, origin=n.origin)


def _relu(n: Node) -> bool:
    return bool(n.attrs["low"] == 0 and n.attrs["dtype"] == "i8")
