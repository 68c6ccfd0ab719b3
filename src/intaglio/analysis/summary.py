"""The contents of a model or a package as plain data, which `intaglio inspect` prints."""

from __future__ import annotations

from collections import Counter
from typing import Any

from intaglio.analysis.arena import Span, live_bytes
from intaglio.ir import Graph, Type
from intaglio.ops.complexity import all_nodes, complexity, macs
from intaglio.plan import Plan
from intaglio.symint import is_symbolic


def of_graph(graph: Graph) -> dict[str, Any]:
    """Inputs, outputs, operations, parameters and multiply-accumulates of a graph."""
    nodes, total = list(all_nodes(graph)), complexity(graph)
    ops = Counter(n.op for n in nodes)
    by_op = Counter[str]()
    for n in nodes:
        by_op[n.op] += macs(n)
    return {
        "name": graph.name,
        "metadata": graph.metadata,
        "inputs": {v.name: _type(v.type) for v in graph.inputs if v.name not in graph.state},
        "outputs": {
            name: _type(v.type)
            for name, v in zip(graph.output_names, graph.outputs, strict=True)
            if name not in graph.state
        },
        "state": {v.name: _type(v.type) for v in graph.inputs if v.name in graph.state},
        "ops": {op: {"count": n, "macs": by_op[op]} for op, n in ops.most_common()},
        "nodes": len(nodes),
        "parameters": total.parameters,
        "parameter_bytes": total.parameter_bytes,
        "macs": total.macs,
    }


def of_plan(plan: Plan) -> dict[str, Any]:
    """Inputs, outputs, steps and memory of a compiled plan."""
    steps = [s for p in plan.walk() for s in p.steps]
    weights = {id(t): t for t in plan.tensors() if t.memory == "const"}
    spans = arena_spans(plan)
    live = live_bytes(spans, len(plan.steps))
    peak = max(range(len(live)), key=live.__getitem__, default=0)
    ops = Counter(s.op for s in steps)
    return {
        **_ports(plan),
        "ops": {
            op: {"count": n, "macs": sum(s.macs for s in steps if s.op == op)}
            for op, n in ops.most_common()
        },
        "steps": len(steps),
        "macs": sum(s.macs for s in steps),
        "weight_bytes": sum(t.size for t in weights.values()),
        "code_bytes": sum({id(t): t.size for t in plan.tensors() if t.memory == "code"}.values()),
        "arena_bytes": plan.arena,
        "io_bytes": sum(t.size for t in plan.tensors() if t.memory in ("input", "output")),
        "peak_step": plan.steps[peak].origin or plan.steps[peak].op if plan.steps else "",
        "peak_live_bytes": max(live, default=0),
    }


def _ports(plan: Plan) -> dict[str, Any]:
    """Inputs, outputs, and the state that a session carries between runs."""
    read, result = {s.input for s in plan.states}, {s.output for s in plan.states}
    ins = [(i, t) for i, t in enumerate(plan.inputs) if t is not None]
    return {
        "inputs": {t.name: _type(t.type) for i, t in ins if i not in read},
        "outputs": {t.name: _type(t.type) for i, t in enumerate(plan.outputs) if i not in result},
        "state": {t.name: _type(t.type) for i, t in ins if i in read},
    }


def arena_spans(plan: Plan) -> list[Span]:
    """When and where every arena tensor is live; a sub-plan is live while its step runs."""
    ranges: dict[int, tuple[int, int]] = {}
    tensors = {}

    def touch(t: Any, i: int) -> None:
        if t is not None and t.memory == "arena":
            tensors[id(t)] = t
            first, last = ranges.get(id(t), (i, i))
            ranges[id(t)] = (min(first, i), max(last, i))

    for i, step in enumerate(plan.steps):
        for t in (*step.inputs, *step.outputs):
            touch(t, i)
        for sub in step.plans:
            for t in sub.tensors():
                touch(t, i)
    for t in plan.outputs:
        touch(t, max(len(plan.steps) - 1, 0))
    return [Span(t.name, t.offset, t.size, *ranges[key]) for key, t in tensors.items() if t.size]


def _type(t: Type) -> dict[str, Any]:
    shape = [str(d) if is_symbolic(d) else d for d in t.shape]
    plain: dict[str, Any] = {"dtype": t.dtype, "shape": shape}
    if t.dynamic:
        plain["dynamic"] = list(t.dynamic)
    return plain
