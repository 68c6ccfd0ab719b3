"""The part of a quantised network that a chip's file holds, and the ops before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value
from intaglio.npu.lowering.builder import integer, is_npu, scale_of
from intaglio.ops.registry import REGISTRY
from intaglio.passes.partition_report import CONSEQUENCES, IN_A_PACKAGE
from intaglio.targets import Target

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
class FilePart:
    """A graph of the NPU ops of a file, and the nodes of the caller."""

    layers: Graph
    inputs: list[Port]
    outputs: list[Port]
    before: list[Node] = field(default_factory=list)
    after: list[tuple[Node, str]] = field(default_factory=list)


def real_outputs(graph: Graph) -> list[tuple[float, int] | None]:
    """Scale and zero of each integer output, as the ops that make them have it.

    They are read before the graph is lowered: the chip's ops keep one factor for each rounding.
    """
    return [_real(v) for v in graph.outputs]


def _real(v: Value) -> tuple[float, int] | None:
    while v.producer is not None:
        node, op = v.producer, REGISTRY[v.producer.op]
        names = list(op.signature.parameters)
        scale = "scale" if node.op == "quantize_linear" else "y_scale"
        if scale in names:
            at = names.index(scale)
            made = node.inputs[at]
            if made is None or made.data is None or made.data.size != 1:
                return None
            return float(scale_of(made)), integer((*node.inputs, None)[at + 1])
        if not (op.keeps_scale or node.op in MOVES) or not node.inputs or node.inputs[0] is None:
            return None
        v = node.inputs[0]
    return _of_type(v)


def _of_type(v: Value) -> tuple[float, int] | None:
    quant = v.type.quant
    if quant is None or len(quant.scale) != 1:
        return None
    return float(quant.scale[0]), int(quant.zero[0])


def file_part(
    graph: Graph, target: Target, reals: Sequence[tuple[float, int] | None] = ()
) -> FilePart:
    """The NPU ops of a lowered graph; Unsupported names ops in the way.

    `reals` are the `real_outputs` of the graph before it was lowered.
    """
    before, chosen, after = _parts(list(graph.nodes()))
    if not chosen or any(REGISTRY[n.op].macs(n) for n in (*before, *after)):
        _refuse(target, before, chosen, after)
    read, results = _boundary(graph, chosen)
    names = dict(zip(graph.outputs, graph.output_names, strict=True))
    inputs = [_input(v) for v in read]
    known = {v: r for v, r in zip(graph.outputs, reals, strict=False) if r is not None}
    outputs = [_output(v, names, known) for v in results]
    for ports in (inputs, outputs):
        _distinct(ports)
    copied = _subgraph(chosen, read, results, inputs, outputs, graph.name)
    return FilePart(copied, inputs, outputs, before, [(n, _why(target, n)) for n in after])


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


def is_view(n: Node) -> bool:
    """Is it a reshape of a result of the file?"""
    made: Node | None = n
    while made is not None and made.op == "reshape":
        v = made.inputs[0]
        made = v.producer if v is not None else None
    return n.op == "reshape" and made is not None and is_npu(made)


SAME_ELEMENTS = "its elements are those of the file's output, in the same order"


def _why(target: Target, n: Node) -> str:
    if is_npu(n):
        return "it reads the result of an op on the CPU"
    if is_view(n):
        return SAME_ELEMENTS
    return target.why_not(n) or "it is after the last layer"


def _refuse(target: Target, before: list[Node], chosen: list[Node], after: list[Node]) -> None:
    """Raise Unsupported: no layer runs on the NPU, or convolutions wait for ops on the CPU."""
    if not chosen:
        stay = [n for n in before if n.op not in (*MOVES, "quantize_linear", "dequantize_linear")]
        what = "no layer runs on the NPU"
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
    raise Unsupported(f"{target.name}: {what}: {'; '.join(named[:MOST_NAMED]) or 'none'}{rest}")


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
    if (scale, zero) == (1.0, 0):  # nothing was quantised on the way: the model takes integers
        scale, zero = _of_type(source) or (scale, zero)
    return Port(source.name or v.name or "input", v.dtype, v.shape, scale, zero)


def _output(v: Value, names: dict[Value, str], reals: dict[Value, tuple[float, int]]) -> Port:
    """An output, with the scale and the name that its readers give it."""
    port = Port(names.get(v) or v.name or "output", v.dtype, v.shape)
    stack: list[Value] = [v]
    while stack:
        now = stack.pop()
        if now in reals:
            port.scale, port.zero = reals[now]
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
