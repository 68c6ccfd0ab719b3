"""Partition a graph between NPU and CPU: which nodes the NPU runs, in which programs.

Nodes are assigned to stages that alternate between CPU and NPU. A node goes into the stage of its
operands, or into the next one if they run on the other device. No CPU node lies between two NPU
nodes of one stage, so every NPU stage becomes one program. Nodes that only later stages read move
there. Nodes whose speed-up does not pay for their transfers return to the CPU, and stages are
assigned again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from intaglio.ir import Graph, Node, Value
from intaglio.npu.lowering.builder import is_npu
from intaglio.npu.lowering.limits import UNITS
from intaglio.npu.ops.program import MOST_RESULTS
from intaglio.ops.registry import REGISTRY
from intaglio.passes.partition_report import Module, OnCpu, Partition, what_is_done, why_and_remedy
from intaglio.rewrite import Trace
from intaglio.targets import Target
from intaglio.targets.chip import Chip
from intaglio.targets.host import nanoseconds

# Indices of operands that are not activations: weights, scale, bias and table.
PARAMETERS = {
    "npu.conv": (1, 2, 3, 5),
    "npu.depthwise": (1, 2, 3, 5),
    "npu.eltwise": (2,),
    "npu.lut": (1,),
    "npu.layer_norm": (1, 2),
    "npu.float_conv": (1, 2),
    "npu.float_depthwise": (1, 2),
    "npu.constant": (0,),
}
# The units of layers that only files of chips have; the others of them work on single elements.
ONLY_IN_FILES = {
    "npu.float_matmul": "matmul",
    **dict.fromkeys(
        ("npu.permute", "npu.join", "npu.cut", "npu.repeat", "npu.spread_rows"), "copy"
    ),
}
LAUNCH = 20_000.0  # nanoseconds to start a program and wait for its end


def partition(target: Target) -> Callable[[Graph, Trace], Partition]:
    """The pass that groups the NPU nodes of a graph into programs; it returns a report."""
    assert target.chip is not None
    return _Partition(target, target.chip)


def report(target: Target, stages: dict[int, list[Node]], why: dict[Node, str]) -> Partition:
    """The report of stages that are chosen already; `why` nodes are on the CPU."""
    assert target.chip is not None
    return _Partition(target, target.chip)._report(
        {_name(i): nodes for i, nodes in stages.items()}, why
    )


class _Partition:
    def __init__(self, target: Target, chip: Chip):
        self.target, self.chip = target, chip

    def __call__(self, graph: Graph, trace: Trace) -> Partition:
        graph.tidy()
        why = self._give_back(graph)
        modules = modules_of(stages_of(list(graph.nodes())))
        report = self._report(modules, why)
        for name, nodes in modules.items():
            if is_npu(nodes[0]):
                gather(graph, nodes, name)
        graph.tidy()
        return report

    def _give_back(self, graph: Graph) -> dict[Node, str]:
        """Return nodes to the CPU that do not pay on the NPU; returns them with the reason."""
        why: dict[Node, str] = {}
        while found := self._losses(list(graph.nodes())):
            for node, words in found.items():
                result = given_back(graph, node)
                why.update(dict.fromkeys(result, words))
        return why

    def _losses(self, nodes: list[Node]) -> dict[Node, str]:
        """The NPU nodes whose stage, or connected part of it, is faster on the CPU."""
        losses: dict[Node, str] = {}
        for stage in stages_of(nodes).values():
            if not is_npu(stage[0]):
                continue
            parts = [(part, self._gain(part)) for part in _parts(stage)]
            saved = sum(max(gain, 0.0) for _, gain in parts) - LAUNCH
            parts = [(part, gain) for part, gain in parts if gain < 0]
            for part, loss in parts if saved >= 0 else [(stage, saved)]:
                ops = f"{len(part)} ops" if len(part) > 1 else "one op"
                words = f"{ops} between CPU ops would take {-loss / 1e3:.3g} us longer"
                losses.update(dict.fromkeys(part, f"{words} on the NPU, with transfers and launch"))
        return losses

    def _gain(self, part: list[Node]) -> float:
        """Nanoseconds that the NPU saves on these connected nodes, without the launch."""
        inside = set(part)
        crossing: dict[Value, None] = {}
        for n in part:
            for v in images(n):
                if v.producer is None or not is_npu(v.producer):
                    crossing[v] = None
            for v in n.outputs:
                if any(user not in inside and not is_npu(user) for user in v.uses):
                    crossing[v] = None
        moved = sum(v.type.bytes for v in crossing) / self.chip.ddr
        return sum(self.on_cpu(n) - self.on_npu(n) for n in part) - moved

    # ---- estimates -------------------------------------------------------------------------------
    def on_cpu(self, node: Node) -> float:
        """Nanoseconds on the chip's CPU."""
        return nanoseconds(node, self.chip.host)

    def on_npu(self, node: Node) -> float:
        """Nanoseconds on one core; only weights come from DDR."""
        unit = self.chip.units[UNITS.get(node.op) or ONLY_IN_FILES.get(node.op, "eltwise")]
        work = REGISTRY[node.op].macs(node) or node.outputs[0].type.size
        first = node.inputs[0]
        assert first is not None
        rate = unit.rate.get(first.dtype) or max(unit.rate.values())
        weights = sum(v.type.bytes for v in node.inputs if v is not None and v.data is not None)
        return max(work / rate * 1e3 / self.chip.clock, weights / self.chip.ddr)

    # ---- the report ------------------------------------------------------------------------------
    def _report(self, of: dict[str, list[Node]], why: dict[Node, str]) -> Partition:
        modules, stay = [], []
        for name, nodes in of.items():
            npu = is_npu(nodes[0])
            each = {n: self.on_npu(n) if npu else self.on_cpu(n) for n in nodes}
            read, results = _boundary(nodes)
            modules.append(
                Module(
                    "npu" if npu else "cpu",
                    name,
                    len(nodes),
                    sum(REGISTRY[n.op].macs(n) for n in nodes),
                    sum(each.values()) / 1e3,
                    sum(v.type.bytes for v in read),
                    sum(v.type.bytes for v in results),
                )
            )
            stay += [] if npu else [(n, ns / 1e3) for n, ns in each.items() if ns]
        total = sum(m.microseconds for m in modules) or 1.0
        every = [n for nodes in of.values() for n in nodes]
        done = what_is_done(every, self.target.precision)
        return Partition(self.chip.name, modules, [self._row(*r, total, why, done) for r in stay])

    def _row(
        self,
        node: Node,
        microseconds: float,
        total: float,
        why: dict[Node, str],
        done: Collection[str],
    ) -> OnCpu:
        words = why.get(node) or self.target.why_not(node) or "no lowering rule matched"
        out = node.outputs[0]
        read = ",".join(
            "x".join(map(str, v.shape)) for v in node.inputs if v is not None and v.shape
        )
        return OnCpu(
            node.op,
            node.origin or out.name,
            str(out.type),
            *why_and_remedy(node, words, done),
            microseconds,
            microseconds / total,
            read,
        )


# ---- stages --------------------------------------------------------------------------------------
def images(node: Node) -> list[Value]:
    """The activations that an NPU node reads, without weights and tables."""
    away = PARAMETERS.get(node.op, ())
    return [v for k, v in enumerate(node.inputs) if v is not None and k not in away]


def stages_of(nodes: list[Node]) -> dict[int, list[Node]]:
    """The nodes of every stage, in execution order; even stages run on the CPU, odd on the NPU."""
    of: dict[Node, int] = {}
    for n in nodes:
        before = [v.producer for v in n.inputs if v is not None and v.producer is not None]
        of[n] = max((of[p] + (is_npu(p) != is_npu(n)) for p in before), default=int(is_npu(n)))
    for stage in sorted(_grouped(nodes, of).items(), reverse=True):
        for part in _parts(stage[1]) if stage[0] % 2 else ():
            inside = set(part)
            readers = [u for n in part for v in n.outputs for u in v.uses if u not in inside]
            if readers and all(u in of and is_npu(u) for u in readers):
                of.update(dict.fromkeys(part, min(of[u] for u in readers)))
    return dict(sorted(_grouped(nodes, of).items()))


def _grouped(nodes: list[Node], of: dict[Node, int]) -> dict[int, list[Node]]:
    stages: dict[int, list[Node]] = {}
    for n in nodes:
        stages.setdefault(of[n], []).append(n)
    return stages


def modules_of(stages: dict[int, list[Node]]) -> dict[str, list[Node]]:
    """The nodes of every program, and of the CPU between them, by name, in execution order."""
    found = {}
    for i, nodes in stages.items():
        for k, part in enumerate(_with_few_results(nodes) if i % 2 else [nodes]):
            found[f"{_name(i)}_{k}" if k else _name(i)] = part
    return found


def _name(stage: int) -> str:
    return f"{'npu' if stage % 2 else 'cpu'}{stage // 2}"


def _with_few_results(nodes: list[Node]) -> list[list[Node]]:
    """A stage cut into runs that have no more results than a program may have."""
    parts = []
    while len(_boundary(nodes)[1]) > MOST_RESULTS:
        run = range(len(nodes) - 1, 0, -1)
        cut = next((k for k in run if len(_boundary(nodes[:k])[1]) <= MOST_RESULTS), 1)
        parts.append(nodes[:cut])
        nodes = nodes[cut:]
    return [*parts, nodes]


def _parts(nodes: list[Node]) -> list[list[Node]]:
    """The connected components of one stage."""
    left, parts = dict.fromkeys(nodes), []
    while left:
        stack, part = [next(iter(left))], []
        while stack:
            node = stack.pop()
            if node not in left:
                continue
            del left[node]
            part.append(node)
            around = [v.producer for v in node.inputs if v is not None]
            stack += [n for n in around if n in left]
            stack += [u for v in node.outputs for u in v.uses if u in left]
        parts.append(part)
    return parts


def _boundary(nodes: Iterable[Node]) -> tuple[list[Value], list[Value]]:
    """The values that a set of nodes reads from outside, and those that outside nodes read."""
    inside = set(nodes)
    read: dict[Value, None] = {}
    for n in nodes:
        for v in images(n) if is_npu(n) else n.inputs:
            if v is not None and v.producer not in inside and (v.data is None or is_npu(n)):
                read[v] = None
    results = [v for n in nodes for v in n.outputs if any(u not in inside for u in v.uses)]
    return list(read), results


# ---- graph edits ---------------------------------------------------------------------------------
def given_back(graph: Graph, node: Node) -> list[Node]:
    """Replace an NPU node by the neutral nodes it came from; returns them."""
    lower = REGISTRY[node.op].lower
    assert lower is not None
    result: Any = lower(*node.inputs, **node.attrs)
    value: Value = result
    nodes, stack = [], [value.producer]
    known = {v.producer for v in node.inputs if v is not None}
    while stack:
        new = stack.pop()
        if new is None or new in known or new in nodes:
            continue
        new.origin = new.origin or node.origin
        nodes.append(new)
        stack += [v.producer for v in new.inputs if v is not None]
    graph.replace(node.outputs[0], value)
    return nodes


def gather(graph: Graph, nodes: list[Node], name: str) -> None:
    """Replace the nodes of a stage by one npu.program."""
    read, results = _boundary(nodes)
    inner: dict[Value, Value] = {}
    names: set[str] = set()

    def named(v: Value, otherwise: str) -> str:
        found = v.name if v.name and v.name not in names else f"{otherwise}{len(names)}"
        names.add(found)
        return found

    for v in read:
        inner[v] = Value(v.type, named(v, "in"))
    for n in nodes:
        copied = Node(
            n.op,
            [_inside(v, inner) for v in n.inputs],
            n.attrs,
            [v.type for v in n.outputs],
            n.origin,
        )
        for old, new in zip(n.outputs, copied.outputs, strict=True):
            new.name, inner[old] = old.name, new
    body = Graph(
        [inner[v] for v in read],
        [inner[v] for v in results],
        [named(v, "out") for v in results],
        name,
    )
    outputs = REGISTRY["npu.program"].node(*read, body=body, origin=name).outputs
    for old, new in zip(results, outputs, strict=True):
        graph.replace(old, new)


def _inside(v: Value | None, inner: dict[Value, Value]) -> Value | None:
    """The value inside the program's body; constants get a copy."""
    if v is not None and v not in inner:
        assert v.data is not None
        inner[v] = Value(v.type, v.name, v.data)
    return None if v is None else inner[v]
