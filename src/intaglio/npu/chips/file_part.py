"""The part of a quantised network that a chip's file holds, and the ops before and after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from intaglio.errors import Unsupported
from intaglio.ir import Graph, Node, Value
from intaglio.npu.lowering.builder import integer, is_npu, scale_of
from intaglio.ops.registry import REGISTRY
from intaglio.passes.partition_report import CONSEQUENCES, IN_A_PACKAGE
from intaglio.targets import Target

MOST_NAMED = 8  # ops that an error names
MOVES = ("reshape", "transpose")
INTEGERS = ("i8", "u8")


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


Real = tuple[float, int]  # real = scale * (number - zero)


@dataclass(slots=True)
class Reals:
    """Scales and zeros of a model's integers, by the model's own ops.

    They are read before the graph is lowered: the chip's ops keep one factor for each rounding.
    """

    inputs: dict[Value, Real] = field(default_factory=dict)
    outputs: list[Real | None] = field(default_factory=list)
    read: dict[tuple[Node, int], Real] = field(default_factory=dict)  # by reader and operand

    def learn(self, graph: Graph) -> None:
        """Add those of a quantised graph, which may have been simplified since the last time."""
        made = [_made(v) for v in graph.outputs]
        self.outputs = [a or b for a, b in zip(self.outputs or made, made, strict=True)]
        for v in graph.inputs:
            if v.dtype in INTEGERS and (real := _of_type(v) or _of_readers(v)):
                self.inputs.setdefault(v, real)
        for n in graph.nodes():
            for i, source in enumerate(n.inputs):
                if source is None or source.data is not None or source.dtype not in INTEGERS:
                    continue
                if real := _made(source) or _operand(n, i):
                    self.read[n, i] = real

    def returned(self, graph: Graph) -> dict[Value, Real]:
        """Those of the outputs of the same graph after it was lowered."""
        pairs = zip(graph.outputs, self.outputs, strict=False)
        return {v: real for v, real in pairs if real is not None}


def _made(v: Value) -> Real | None:
    """Of a value, by the op that rounded it."""
    while v.producer is not None:
        node, op = v.producer, REGISTRY[v.producer.op]
        names = list(op.signature.parameters)
        scale = "scale" if node.op == "quantize_linear" else "y_scale"
        if scale in names:
            return _constants(node, names.index(scale))
        if not (op.keeps_scale or node.op in MOVES) or not node.inputs or node.inputs[0] is None:
            return None
        v = node.inputs[0]
    return _of_type(v)


def _operand(node: Node, i: int) -> Real | None:
    """Of an operand, by the scale that its reader has for it."""
    if node.op not in REGISTRY:  # it is an output of the graph
        return None
    names = list(REGISTRY[node.op].signature.parameters)
    scale = f"{names[i]}_scale" if i < len(names) else ""
    return _constants(node, names.index(scale)) if scale in names else None


def _of_readers(v: Value) -> Real | None:
    reals = {_operand(n, i) for n in v.uses for i, x in enumerate(n.inputs) if x is v}
    return reals.pop() if len(reals) == 1 else None


def _constants(node: Node, at: int) -> Real | None:
    """The scale at this place of a node's inputs, and the zero after it."""
    made = node.inputs[at] if at < len(node.inputs) else None
    if made is None or made.data is None or made.data.size != 1:
        return None
    return float(scale_of(made)), integer((*node.inputs, None)[at + 1])


def _of_type(v: Value) -> Real | None:
    quant = v.type.quant
    if quant is None or len(quant.scale) != 1:
        return None
    return float(quant.scale[0]), int(quant.zero[0])


def file_part(graph: Graph, target: Target, reals: Reals) -> FilePart:
    """The NPU ops of a lowered graph; Unsupported names ops in the way.

    `reals` knows the graph as it was before it was lowered.
    """
    before, chosen, after = _parts(list(graph.nodes()))
    if not chosen or any(REGISTRY[n.op].macs(n) for n in (*before, *after)):
        _refuse(target, before, chosen, after)
    read, results = _boundary(graph, chosen)
    names = dict(zip(graph.outputs, graph.output_names, strict=True))
    inputs = [input_port(v, reals) for v in read]
    outputs = [output_port(v, names, reals, reals.returned(graph)) for v in results]
    for ports in (inputs, outputs):
        distinct(ports)
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


def input_port(v: Value, reals: Reals) -> Port:
    """An input, named after the tensor of the user that becomes it."""
    real: Real | None = None
    node, source = v.producer, v
    while node is not None and node.inputs and node.inputs[0] is not None:
        if node.op == "quantize_linear":
            real = _constants(node, 1)
        source = node.inputs[0]
        node = source.producer
    if real is None:  # nothing was quantised on the way: the model takes integers
        real = reals.inputs.get(source)
    return Port(source.name or v.name or "input", v.dtype, v.shape, *(real or ()))


def output_port(
    v: Value, names: dict[Value, str], reals: Reals, returned: dict[Value, Real]
) -> Port:
    """An output, with the scale and the name that its readers give it."""
    real: Real | None = None
    name = names.get(v) or v.name
    stack: list[Value] = [v]
    while stack:
        now = stack.pop()
        name, real = name or now.name, returned.get(now, real)
        for reader in now.uses:
            at = next(i for i, x in enumerate(reader.inputs) if x is now)
            if reader.op == "dequantize_linear" and at == 0:
                real = _constants(reader, 1)
                name = names.get(reader.outputs[0], name)
            elif reader.op in MOVES:
                stack.append(reader.outputs[0])
                name = names.get(reader.outputs[0], name)
            elif real is None and now.dtype in INTEGERS:
                real = reals.read.get((reader, at))
    return Port(name or "output", v.dtype, v.shape, *(real or ()))


def distinct(ports: Iterable[Port]) -> None:
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
