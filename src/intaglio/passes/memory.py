"""Static memory planning: every tensor gets its address at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.aliasing import Region, Sharing, share
from intaglio.passes.liveness import lifetimes
from intaglio.passes.schedule import Order, schedule
from intaglio.plan import Plan, State, Step, Tensor

ALIGN = 64  # bytes; a cache line, and the widest vector


@dataclass(slots=True)
class Buffer:
    """Bytes that are live from time `first` to time `last`, both included."""

    size: int
    first: int
    last: int
    offset: int = -1


def plan_memory(graph: Graph, name: str = "") -> tuple[Plan, dict[Value, Tensor]]:
    """The plan of a legal graph, and the tensor of each of its values."""
    _copy_swapped_states(graph)
    _copy_repeated_outputs(graph)
    order = schedule(graph)
    life = lifetimes(graph, order)
    sharing, done = share(graph, order, life)
    arena = _place(graph, sharing)
    emit = _Emitter(order, sharing, done)
    plan = emit.plan(graph, name)
    plan.arena = arena
    _name_outputs(plan, graph.output_names)
    places = {v.name: i for i, v in enumerate(graph.inputs)}
    plan.states = [State(places[n], graph.output_names.index(n), a) for n, a in graph.state.items()]
    return plan, emit.tensors


def _copy_swapped_states(graph: Graph) -> None:
    """Copy a loop state that becomes another state: the runtime updates states one by one."""
    graph.tidy()
    for node in graph.nodes():
        for body in node.bodies():
            _copy_swapped_states(body)
        if node.op not in ("loop", "scan"):
            continue
        body, loop = node.attrs["body"], node.op == "loop"
        states = node.attrs["carried" if loop else "states"]
        inputs = body.inputs[2 * loop :][:states]
        for k, own in enumerate(inputs):
            v = body.outputs[k + loop]
            if v in inputs and v is not own:
                _copy_operand(body.result, k + loop)


def _copy_repeated_outputs(graph: Graph) -> None:
    """Copy a repeated output with run-time extents: a tensor has one actual shape and one name."""
    seen: set[Value] = set(graph.inputs)
    for k, v in enumerate(graph.outputs):
        if v in seen and not v.type.fixed:
            _copy_operand(graph.result, k)
        seen.add(v)


def _copy_operand(node: Node, k: int) -> None:
    v = node.inputs[k]
    assert v is not None
    rank = v.type.rank
    copied = ops.slice_(v, start=(0,) * rank, stop=(2**62,) * rank, step=(1,) * rank)
    Graph.set_input(node, k, copied)


# ---- placement -----------------------------------------------------------------------------------
def _place(graph: Graph, sharing: Sharing) -> int:
    """Give every region a memory and an address; returns the size of the arena."""
    for slot, v in enumerate(graph.outputs):
        region = sharing.region.get(v)
        if region is not None and region.memory == "arena":
            at = region.at[v]
            if region.low == at and region.high == at + v.type.bytes:
                region.memory, region.slot = "output", slot
    regions = list(dict.fromkeys(sharing.region.values()))
    arena = [r for r in regions if r.memory == "arena"]
    buffers = []
    for r in arena:
        spans = [s for v in r.at for s in sharing.life.spans[v]]
        first, last = min(a for a, _ in spans), max(b for _, b in spans)
        buffers.append(Buffer(r.high - r.low, first, last))
    size = pack(buffers)
    offsets = {r: b.offset for r, b in zip(arena, buffers, strict=True)}
    for r in regions:
        move = offsets.get(r, 0) - r.low
        r.at = {v: at + move for v, at in r.at.items()}
    return size


def pack(buffers: Sequence[Buffer]) -> int:
    """Give every buffer an offset so that no two live buffers overlap. Returns the total size."""
    orders = [
        sorted(buffers, key=lambda b: (-b.size, b.first)),
        sorted(buffers, key=lambda b: (-(b.last - b.first + 1) * b.size, b.first)),
        sorted(buffers, key=lambda b: (b.first, -b.size)),
    ]
    bound = _peak_bytes(buffers)
    best, offsets = -1, [0] * len(buffers)
    for order in orders:
        size = _best_fit(order)
        if best < 0 or size < best:
            best, offsets = size, [b.offset for b in buffers]
        if best <= bound:
            break
    for b, at in zip(buffers, offsets, strict=True):
        b.offset = at
    return max(best, 0)


def _aligned(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


def _peak_bytes(buffers: Sequence[Buffer]) -> int:
    """The most bytes live at one time: a lower bound of every placement."""
    events = sorted(
        [(b.first, 1, _aligned(b.size)) for b in buffers]
        + [(b.last + 1, 0, -_aligned(b.size)) for b in buffers]
    )
    alive = most = 0
    for _, _, change in events:
        alive += change
        most = max(most, alive)
    return most


def _best_fit(order: Sequence[Buffer]) -> int:
    """Put each buffer into the smallest gap that is free while it is live, or at the end."""
    first = np.array([b.first for b in order])
    last = np.array([b.last for b in order])
    start = np.zeros(len(order), np.int64)
    stop = np.zeros(len(order), np.int64)
    size = 0
    for i, b in enumerate(order):
        need = _aligned(b.size)
        others = np.flatnonzero((first[:i] <= b.last) & (last[:i] >= b.first))
        at, free, tightest = 0, -1, -1
        for k in others[np.argsort(start[others], kind="stable")]:
            gap = int(start[k]) - at
            if gap >= need and (tightest < 0 or gap < tightest):
                free, tightest = at, gap
            at = max(at, int(stop[k]))
        b.offset = free if tightest >= 0 else at
        start[i], stop[i] = b.offset, b.offset + need
        size = max(size, b.offset + need)
    return size


# ---- the plan ------------------------------------------------------------------------------------
class _Emitter:
    """Turns nodes into steps over placed tensors."""

    def __init__(self, order: Order, sharing: Sharing, done: set[Node]):
        self.order, self.sharing, self.done = order, sharing, done
        self.tensors: dict[Value, Tensor] = {}

    def tensor(self, v: Value) -> Tensor:
        v = self.sharing.tensor_of(v)
        if v not in self.tensors:
            if v.data is not None:
                code = any(n.op == "npu.run" and n.inputs[0] is v for n in v.uses)
                self.tensors[v] = Tensor(
                    v.type, "code" if code else "const", name=v.name, data=v.data
                )
            else:
                r: Region = self.sharing.region[v]
                self.tensors[v] = Tensor(v.type, r.memory, r.at[v], r.slot, v.name)
        return self.tensors[v]

    def maybe(self, v: Value | None) -> Tensor | None:
        return None if v is None else self.tensor(v)

    def plan(self, graph: Graph, name: str) -> Plan:
        known = self.sharing.region
        inputs = [
            self.tensor(v) if v in known or v in self.sharing.same else None for v in graph.inputs
        ]
        steps = [s for node in self.order[graph] for s in self.steps(node)]
        outputs = [self.tensor(v) for v in graph.outputs]
        return Plan(inputs, outputs, steps, name=name)

    def steps(self, node: Node) -> list[Step]:
        if node.op == "concat" and node in self.done:
            return self._missing_parts(node)
        if node in self.done:
            return []
        attrs: dict[str, Any] = {
            k: self.plan(a, f"{node.origin or node.op}.{k}") if isinstance(a, Graph) else a
            for k, a in node.attrs.items()
        }
        ins, outs = [self.maybe(v) for v in node.inputs], [self.tensor(v) for v in node.outputs]
        return [Step(node.op, ins, outs, attrs, node.origin, REGISTRY[node.op].macs(node))]

    def _missing_parts(self, node: Node) -> list[Step]:
        """Copies for the operands of a concat that are not written in place."""
        out, result = self.tensor(node.outputs[0]), []
        at = out.offset
        for v in node.inputs:
            assert v is not None
            part = Tensor(v.type, out.memory, at, out.slot, v.name)
            there = self.tensor(v)
            if v.type.size and (there.memory, there.slot, there.offset) != (
                part.memory,
                part.slot,
                at,
            ):
                result.append(Step("reshape", [there], [part], {"shape": v.shape}, node.origin))
            at += v.type.bytes
        return result


def _name_outputs(plan: Plan, names: Sequence[str]) -> None:
    """Give outputs the model's names. An output that is also an input or another output gets its
    own tensor.
    """
    taken = {t for t in plan.inputs if t is not None}
    for k, (t, name) in enumerate(zip(plan.outputs, names, strict=True)):
        if t in taken or t.fixed:
            t = plan.outputs[k] = Tensor(t.type, t.memory, t.offset, t.slot, name, t.data)
        t.name = name
        taken.add(t)
