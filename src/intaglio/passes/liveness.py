"""Liveness: when each value is live, on one clock for a graph and all bodies inside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from intaglio.ir import Graph, Node, Value
from intaglio.passes.schedule import Order

START, END = -1, 1 << 60  # before the first and after the last step
Spans = list[tuple[int, int]]  # inclusive on both ends


@dataclass
class Control:
    """The times and values at the boundary of one control-flow node."""

    node: Node
    start: int
    ends: list[int]  # one per body; the last is the end of the node
    captures: list[tuple[Value, Value]]  # outside, inside
    carried: list[tuple[Value | None, Value, int, Value]] = field(default_factory=list)
    # initial value, body input, index of the body output, node output


@dataclass
class Lifetimes:
    """For every non-constant value, the spans of time in which its bytes are needed."""

    spans: dict[Value, Spans] = field(default_factory=dict)
    time: dict[Node, int] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=list)
    clock: int = 0

    def born(self, v: Value, at: int) -> None:
        self.spans[v] = [(at, at)]

    def read(self, v: Value | None, at: int) -> None:
        if v is not None and v.data is None and v in self.spans:
            first, last = self.spans[v][-1]
            self.spans[v][-1] = (first, max(last, at))

    def tick(self) -> int:
        self.clock += 1
        return self.clock


def lifetimes(graph: Graph, order: Order) -> Lifetimes:
    """The lifetimes of all values of `graph`, run in the given order."""
    life = Lifetimes()
    for v in graph.inputs:  # the caller's memory, which the runtime must not write
        life.spans[v] = [(START, END)]
    _walk(graph, order, life)
    for v in graph.outputs:
        life.read(v, END)
    return life


def _walk(graph: Graph, order: Order, life: Lifetimes) -> None:
    for node in order[graph]:
        at = life.time[node] = life.tick()
        if node.bodies():
            _CONTROL[node.op](node, at, order, life)
            continue
        for v in node.inputs:
            life.read(v, at)
        for v in node.outputs:
            life.born(v, at)


def _body(
    body: Graph, start: int, order: Order, life: Lifetimes, unused: Sequence[Value] = ()
) -> int:
    """Walk a body whose inputs are written at `start`; returns the time at which it ends."""
    for v in body.inputs:
        if v.uses or v not in unused:
            life.born(v, start)
    _walk(body, order, life)
    end = life.tick()
    for v in body.outputs:
        life.read(v, end)
    return end


def _if(node: Node, at: int, order: Order, life: Lifetimes) -> None:
    life.read(node.inputs[0], at)
    branches, ends = (node.attrs["then_graph"], node.attrs["else_graph"]), []
    pairs: list[tuple[Value, Value]] = []
    for branch in branches:
        ends.append(_body(branch, life.tick(), order, life))
        pairs += _pairs(node.inputs[1:], branch.inputs)
    for v in node.inputs:
        life.read(v, ends[-1])
    for v in node.outputs:
        life.spans[v] = [(end, end) for end in ends]  # only one branch runs
    control = Control(node, at, ends, pairs)
    life.controls.append(control)


def _loop(node: Node, at: int, order: Order, life: Lifetimes) -> None:
    carried, body = int(node.attrs["carried"]), node.attrs["body"]
    _repeat(
        node,
        at,
        order,
        life,
        first_in=2,
        first_body_in=2,
        first_body_out=1,
        carried=carried,
        handed=body.inputs[2 + carried :],
    )


def _scan(node: Node, at: int, order: Order, life: Lifetimes) -> None:
    states, scans, body = int(node.attrs["states"]), int(node.attrs["scans"]), node.attrs["body"]
    _repeat(
        node,
        at,
        order,
        life,
        first_in=0,
        first_body_in=0,
        first_body_out=0,
        carried=states,
        handed=body.inputs[states + scans :],
    )


def _repeat(
    node: Node,
    at: int,
    order: Order,
    life: Lifetimes,
    first_in: int,
    first_body_in: int,
    first_body_out: int,
    carried: int,
    handed: list[Value],
) -> None:
    body: Graph = node.attrs["body"]
    initial = node.inputs[first_in : first_in + carried]
    for v in initial:
        life.read(v, at)
    end = _body(body, at, order, life, body.inputs[:first_in])  # an unread loop counter
    for v in body.inputs:  # the next iteration reads them at the same place
        life.read(v, end)
    for v in node.inputs[:first_in] + node.inputs[first_in + carried :]:
        life.read(v, end)
    for i, v in enumerate(node.outputs):
        life.spans[v] = [(end, end)] if i < carried else [(at, end)]
    captured = node.inputs[len(node.inputs) - len(handed) :] if handed else []
    control = Control(node, at, [end], _pairs(captured, handed))
    for k in range(carried):
        control.carried.append(
            (initial[k], body.inputs[first_body_in + k], first_body_out + k, node.outputs[k])
        )
    life.controls.append(control)


def _pairs(outside: list[Value | None], inside: list[Value]) -> list[tuple[Value, Value]]:
    both = zip(outside, inside, strict=True)
    return [(o, i) for o, i in both if o is not None]


_CONTROL = {"if": _if, "loop": _loop, "scan": _scan}
