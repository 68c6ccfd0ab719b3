"""The part of a network that a file for the KPU holds, and the ops before and after it."""

from __future__ import annotations

from dataclasses import dataclass, field

from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value
from intaglio.npu.chips.file_part import Reals
from intaglio.npu.chips.k210.lower import READS, Lowering, Port
from intaglio.npu.chips.k210.operands import name_of, offset
from intaglio.npu.lowering.builder import integer, scale_of
from intaglio.ops.registry import REGISTRY


@dataclass(slots=True)
class Lowered:
    """A graph of the KPU's layers, its ports, and the ops that the caller's CPU has to do."""

    graph: Graph
    inputs: list[Port]
    outputs: list[Port]
    before: list[Node] = field(default_factory=list)
    after: list[tuple[Node, str]] = field(default_factory=list)


def lower(graph: Graph) -> Lowered:
    """The KPU's layers of a quantised graph; Unsupported names all ops that are in the way."""
    reals = Reals()
    reals.learn(graph)
    work = Lowering(graph, reals)
    work.run()
    after = [(n, why) for n, why in work.refused.items() if n not in work.before]
    cut = _cut(graph, work)
    _refuse_middle(work, after)
    if not cut or not any(v.producer for v in (work.maps[c].value for c in cut)):
        reasons = "; ".join(f"{name_of(n)} ({n.op}): {why}" for n, why in after[:3])
        raise Unsupported(f"k210: no layer runs on the KPU: {reasons or 'there is none'}")
    outputs = _named_apart([_output(graph, work, v) for v in cut])
    lowered = Graph(
        [p.value for p in work.inputs],
        [p.value for p in outputs],
        [p.name for p in outputs],
        graph.name,
    )
    return Lowered(lowered, work.inputs, outputs, work.before, after)


def _cut(graph: Graph, work: Lowering) -> list[Value]:
    """The tensors that the file returns: outputs, and what refused ops read."""
    found: dict[Value, None] = {}
    for v in graph.outputs:
        if v in work.maps:
            found[v] = None
    for node in work.refused:
        read = [v for v in node.inputs if v is not None and v in work.maps]
        found.update({v: None for v in read if work.maps[v].value.producer is not None})
    return list(found)


def _refuse_middle(work: Lowering, after: list[tuple[Node, str]]) -> None:
    """Unsupported where a refused op stands before a convolution that reads its result."""
    blocked = [n for n, why in after if why.startswith(READS) and REGISTRY[n.op].macs(n)]
    if not blocked:
        return
    own = [(n, why) for n, why in after if not why.startswith(READS)]
    named = [f"{name_of(n)} ({n.op}): {why}" for n, why in own]
    rest = f"; and {len(named) - 8} more" if len(named) > 8 else ""
    raise Unsupported(
        f"k210: {len(blocked)} convolutions read results of ops that the KPU does not do: "
        f"{'; '.join(named[:8])}{rest}"
    )


def _named_apart(ports: list[Port]) -> list[Port]:
    """Ports whose names differ."""
    taken: set[str] = set()
    for port in ports:
        name, count = port.name, 1
        while port.name in taken:
            port.name, count = f"{name}_{count}", count + 1
        taken.add(port.name)
    return ports


def _output(graph: Graph, work: Lowering, v: Value) -> Port:
    """A tensor that the file returns, with the scale that its readers use."""
    value = work._whole(v)
    scale, zero = work.scales.get(v, (1.0, 0))
    for reader in v.uses:
        if reader.op == "dequantize_linear" and reader.inputs[0] is v:
            scale = float(scale_of(reader.inputs[1]))  # type: ignore[arg-type]
            zero = integer(reader.inputs[2] if len(reader.inputs) > 2 else None) + offset(v)
    names = dict(zip(graph.outputs, graph.output_names, strict=True))
    name = names.get(v) or v.name or (v.producer.origin if v.producer else "") or "output"
    for reader in v.uses:
        if reader.op in ("dequantize_linear", "reshape") and reader.outputs[0] in names:
            name = names[reader.outputs[0]]
    return Port(name, v.shape, scale, zero, value)
