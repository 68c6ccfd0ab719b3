"""The nodes of a package and who reads whom: steps of its plan, and layers of its NPU programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from intaglio.analysis.report.report_node import ReportNode
from intaglio.analysis.step_names import node_name, step_name
from intaglio.package import Package
from intaglio.plan import Plan, Step, Tensor

PROGRAM = "npu.run"
SHOWN_ATTRS = 12  # attributes of a step on the page
MOST_WORDS = 60  # characters of an attribute

Edges = dict[tuple[int, int], str]  # numbers of nodes, and the type of the tensor


def package_nodes(package: Package) -> tuple[list[ReportNode], Edges]:
    """Nodes in the order of execution, and edges from lower to higher numbers."""
    plan, programs = package.plans[-1], list(package.meta.get("npu", []))
    found = _Nodes()
    for t in plan.inputs:
        if t is not None:
            found.add(ReportNode("input", t.name, tensor=t.name, type=str(t.type)), [], [t])
    for number, step in enumerate(plan.steps):
        if step.op == PROGRAM and programs:
            _add_program(found, step, programs.pop(0))
        else:
            found.add(_of_step(step, number), step.inputs, step.outputs)
    for t in plan.outputs:
        found.add(ReportNode("output", t.name, tensor=t.name, type=str(t.type)), [t], [])
    return found.nodes, found.edges


def _of_step(step: Step, number: int) -> ReportNode:
    tensor = step.outputs[0] if step.outputs else None
    moved = {id(t): t.size for t in (*step.inputs, *step.outputs) if t is not None}
    held = {id(t): t.size for t in step.inputs if t is not None and t.fixed}
    return ReportNode(
        step.op.removeprefix("cpu."),
        step_name(step),
        step.origin,
        "CPU",
        tensor.name if tensor else "",
        str(tensor.type) if tensor else "",
        ", ".join(str(t.type) for t in step.inputs if t is not None and not t.fixed),
        _attributes(step.attrs),
        step.macs,
        sum(moved.values()),
        sum(held.values()),
        number=number,
    )


def _attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    shown = {k: v for k, v in attrs.items() if not isinstance(v, Plan)}
    words = {k: str(v) for k, v in shown.items()}
    short = {k: w if len(w) <= MOST_WORDS else f"{w[:MOST_WORDS]}…" for k, w in words.items()}
    return dict(list(short.items())[:SHOWN_ATTRS])


def _add_program(found: _Nodes, step: Step, program: Mapping[str, Any]) -> None:
    """The layers of an NPU program; the first read its inputs, the last write its outputs."""
    module = f"npu{found.programs}"
    found.programs += 1
    inputs = [t for t in step.inputs if t is not None and not t.fixed]
    layers, first = program["layers"], len(found.nodes)
    for k, layer in enumerate(layers):
        here = found.append(_of_layer(layer, module, k))
        for before in layer.get("from", [k - 1]):  # older packages do not say: a chain
            slot = -1 - before
            sources = [first + before] if before >= 0 else found.writers(inputs[slot : slot + 1])
            found.edges |= {(source, here): "" for source in sources if source < here}
    writer = {slot: first + k for k, layer in enumerate(layers) for slot in layer.get("to", ())}
    for slot, t in enumerate(step.outputs):
        found.write(t, writer.get(slot, len(found.nodes) - 1))


def _of_layer(layer: Mapping[str, Any], module: str, number: int) -> ReportNode:
    return ReportNode(
        layer["op"],
        node_name("", layer["name"], layer["op"]),
        "",
        "NPU",
        layer["name"],
        f"{layer['dtype']}[{'x'.join(map(str, layer['output']))}]",
        ", ".join("x".join(map(str, s)) for s in layer["inputs"]),
        {"kernel": "x".join(map(str, layer["kernel"]))} if "kernel" in layer else {},
        layer.get("macs", 0),
        module=module,
        number=number,
    )


class _Nodes:
    """Nodes, edges, and which node wrote each byte that is live."""

    def __init__(self) -> None:
        self.nodes: list[ReportNode] = []
        self.edges: Edges = {}
        self.programs = 0
        self._written: dict[tuple[str, int], list[tuple[int, int, int]]] = {}

    def add(
        self, node: ReportNode, reads: Iterable[Tensor | None], writes: Iterable[Tensor]
    ) -> None:
        sources = [
            (w, str(t.type))
            for t in reads
            if t is not None and not t.fixed
            for w in self.writers([t])
        ]
        here = self.append(node)
        for source, words in sources:
            self.edges[(source, here)] = words
        for t in writes:
            self.write(t, here)

    def append(self, node: ReportNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def writers(self, tensors: Iterable[Tensor]) -> list[int]:
        """The nodes that wrote bytes of these tensors."""
        found: dict[int, None] = {}
        for t in tensors:
            for a, b, node in self._written.get((t.memory, t.slot), ()):
                if a < t.end and t.offset < b:
                    found[node] = None
        return list(found)

    def write(self, t: Tensor, node: int) -> None:
        if t.fixed or not t.size:
            return
        rest = []
        for a, b, old in self._written.get((t.memory, t.slot), ()):
            if a < t.offset:
                rest.append((a, min(b, t.offset), old))
            if b > t.end:
                rest.append((max(a, t.end), b, old))
        self._written[(t.memory, t.slot)] = [*rest, (t.offset, t.end, node)]
