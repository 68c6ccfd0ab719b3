"""Control flow: if, loop, scan.

A body is a Graph. Its inputs are first the values that the op feeds it, then the captured outer
values, which are also the last inputs of the node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Graph, Node, Type, Value
from intaglio.ops.registry import REGISTRY, evaluate, op

UNBOUNDED = 1 << 62  # `bound` of a loop without scan outputs
MAX_ITERATIONS = 1_000_000  # of the numpy body


def _scalar(v: Value | None, dtype: str, what: str) -> None:
    if v is not None and (v.dtype != dtype or v.type.size != 1):
        raise BadInput(f"{what} must be a scalar {dtype}, it is {v.type}")


def body_macs(graph: Graph) -> int:
    """MACs of all nodes of a body."""
    return sum(REGISTRY[n.op].macs(n) for n in graph.nodes())


def _fits(to: Type, given: Type) -> bool:
    """Whether a value of type `given` can be passed where type `to` is declared."""
    return (
        to.dtype == given.dtype
        and to.rank == given.rank
        and all(
            b <= a if i in to.dynamic else b == a and i not in given.dynamic
            for i, (a, b) in enumerate(zip(to.shape, given.shape, strict=True))
        )
    )


def check_inputs(what: str, body: Graph, types: Sequence[Type | None]) -> None:
    """BadInput if `body` does not take inputs of these types."""
    if len(body.inputs) != len(types):
        raise BadInput(f"{what} takes {len(body.inputs)} inputs, {len(types)} are given")
    for v, t in zip(body.inputs, types, strict=True):
        if t is not None and not _fits(v.type, t):
            raise BadInput(f"{what} takes {v.type} as '{v.name}', it is given {t}")


def _check_states(what: str, ins: list[Value], outs: list[Value]) -> None:
    for v, w in zip(ins, outs, strict=True):
        if not _fits(v.type, w.type):
            raise BadInput(f"{what} changes the type of state '{v.name}' from {v.type} to {w.type}")


def _collected(length: int, dynamic: bool, each: Type) -> Type:
    axes = tuple(i + 1 for i in each.dynamic)
    return Type(each.dtype, (length, *each.shape), dynamic=(0, *axes) if dynamic else axes)


def _stack(parts: list[Array], value: Value) -> Array:
    if parts:
        return np.stack(parts)
    return np.zeros((0, *value.shape), dtypes.numpy_of(value.dtype))


# ---- if ------------------------------------------------------------------------------------------
def _if(cond: Value, *captures: Value, then_graph: Graph, else_graph: Graph) -> list[Type]:
    _scalar(cond, "bool", "the condition")
    types: list[Type | None] = [v.type for v in captures]
    check_inputs("the then-branch", then_graph, types)
    check_inputs("the else-branch", else_graph, types)
    if len(then_graph.outputs) != len(else_graph.outputs):
        raise BadInput("the branches have different numbers of outputs")
    pairs = zip(then_graph.outputs, else_graph.outputs, strict=True)
    return [_either(a.type, b.type) for a, b in pairs]


def _either(a: Type, b: Type) -> Type:
    """A type that holds both: an axis that differs becomes dynamic, as long as the longer one."""
    if a.dtype != b.dtype or a.rank != b.rank:
        raise BadInput(f"the branches make {a} and {b}; element type and rank must be equal")
    pairs = list(enumerate(zip(a.shape, b.shape, strict=True)))
    dynamic = {i for i, (x, y) in pairs if x != y} | {*a.dynamic, *b.dynamic}
    return Type(a.dtype, tuple(max(p) for _, p in pairs), dynamic=tuple(sorted(dynamic)))


def _if_macs(node: Node) -> int:
    return max(body_macs(node.attrs[name]) for name in ("then_graph", "else_graph"))


@op(_if, name="if", macs=_if_macs)
def if_(cond: Array, *captures: Array, then_graph: Graph, else_graph: Graph) -> tuple[Array, ...]:
    """The outputs of one of two branches; both take the captured values."""
    return tuple(evaluate(then_graph if cond.reshape(-1)[0] else else_graph, captures))


# ---- loop ----------------------------------------------------------------------------------------
def _always(trip: Value | None, cond: Value | None, body: Graph, bound: int) -> bool:
    """Whether the loop runs exactly `bound` times: its condition cannot end it early."""
    if trip is None or trip.data is None or int(trip.data.reshape(-1)[0]) != bound:
        return False
    if cond is not None and (cond.data is None or not cond.data.reshape(-1)[0]):
        return False
    again = body.outputs[0]
    return again is body.inputs[1] or bool(again.data is not None and again.data.reshape(-1)[0])


def _loop(
    trip: Value | None, cond: Value | None, *values: Value, body: Graph, carried: int, bound: int
) -> list[Type]:
    _scalar(trip, "i64", "the trip count")
    _scalar(cond, "bool", "the condition")
    if not 0 <= carried <= len(values) or len(body.outputs) <= carried or bound < 0:
        raise BadInput(
            f"a loop with {len(values)} values cannot carry {carried}, with bound {bound}"
        )
    check_inputs("the loop's body", body, [None, None, *(v.type for v in values)])
    _scalar(body.inputs[0], "i64", "the body's iteration number")
    _scalar(body.inputs[1], "bool", "the body's condition")
    _scalar(body.outputs[0], "bool", "the condition that the body makes")
    states = body.inputs[2 : 2 + carried]
    _check_states("the loop's body", states, body.outputs[1 : 1 + carried])
    scans = body.outputs[1 + carried :]
    varies = not _always(trip, cond, body, bound)
    return [v.type for v in states] + [_collected(bound, varies, v.type) for v in scans]


def _loop_macs(node: Node) -> int:
    bound: int = node.attrs["bound"]
    return body_macs(node.attrs["body"]) * (bound if bound < UNBOUNDED else 1)


@op(_loop, macs=_loop_macs)
def loop(
    trip: Array | None, cond: Array | None, *values: Array, body: Graph, carried: int, bound: int
) -> tuple[Array, ...]:
    """body(iteration, condition, carried..., captures...) -> condition, carried..., collected...

    runs `trip` times (None: no limit) or until its condition fails, but at most `bound` times."""
    states, captures = list(values[:carried]), values[carried:]
    limit = None if trip is None else int(trip.reshape(-1)[0])
    go = True if cond is None else bool(cond.reshape(-1)[0])
    collected: list[list[Array]] = [[] for _ in body.outputs[1 + carried :]]
    i = 0
    while go and (limit is None or i < limit):
        if i >= min(bound, MAX_ITERATIONS):
            raise RunError(f"loop: more than {min(bound, MAX_ITERATIONS)} iterations")
        number = np.full(body.inputs[0].shape, i, np.int64)
        again = np.full(body.inputs[1].shape, go)
        out = evaluate(body, [number, again, *states, *captures])
        go, states = bool(out[0].reshape(-1)[0]), out[1 : 1 + carried]
        for parts, part in zip(collected, out[1 + carried :], strict=True):
            parts.append(part)
        i += 1
    scans = zip(collected, body.outputs[1 + carried :], strict=True)
    return (*states, *(_stack(parts, v) for parts, v in scans))


# ---- scan ----------------------------------------------------------------------------------------
def _scan(
    *values: Value, body: Graph, states: int, scans: int, reverse_in: int, reverse_out: int
) -> list[Type]:
    if states < 0 or scans < 1 or states + scans > len(values) or len(body.outputs) < states:
        raise BadInput(
            f"a scan of {len(values)} inputs cannot have {states} states and {scans} scanned inputs"
        )
    scanned = values[states : states + scans]
    for v in scanned:
        if v.type.rank < 1 or v.shape[0] != scanned[0].shape[0]:
            raise BadInput(f"the scanned inputs differ in length: {scanned[0].type}, {v.type}")
    slices = [
        Type(v.dtype, v.shape[1:], dynamic=tuple(i - 1 for i in v.type.dynamic if i))
        for v in scanned
    ]
    outer = [v.type for v in (*values[:states], *values[states + scans :])]
    types: list[Type | None] = [*outer[:states], *slices, *outer[states:]]
    check_inputs("the scan's body", body, types)
    _check_states("the scan's body", body.inputs[:states], body.outputs[:states])
    length, varies = scanned[0].shape[0], any(0 in v.type.dynamic for v in scanned)
    collected = [_collected(length, varies, v.type) for v in body.outputs[states:]]
    return [v.type for v in body.inputs[:states]] + collected


def _scan_macs(node: Node) -> int:
    first = node.inputs[node.attrs["states"]]
    return body_macs(node.attrs["body"]) * (first.shape[0] if first else 1)


@op(_scan, macs=_scan_macs)
def scan(
    *values: Array, body: Graph, states: int, scans: int, reverse_in: int = 0, reverse_out: int = 0
) -> tuple[Array, ...]:
    """body(states..., slices..., captures...) -> states..., slices... for every step along axis 0.

    Bit i of `reverse_in` or `reverse_out`: scanned input or output i runs backwards."""
    now, scanned = list(values[:states]), values[states : states + scans]
    captures, length = values[states + scans :], len(scanned[0])
    collected: list[list[Array]] = [[] for _ in body.outputs[states:]]
    for step in range(length):
        slices = [
            a[length - 1 - step if reverse_in >> k & 1 else step] for k, a in enumerate(scanned)
        ]
        out = evaluate(body, [*now, *slices, *captures])
        now = out[:states]
        for parts, part in zip(collected, out[states:], strict=True):
            parts.append(part)
    results = []
    for k, (parts, v) in enumerate(zip(collected, body.outputs[states:], strict=True)):
        results.append(_stack(parts[::-1] if reverse_out >> k & 1 else parts, v))
    return (*now, *results)
