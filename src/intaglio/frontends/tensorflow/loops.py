"""Loops of TensorFlow 1 and 2: carried values, invariants, trip counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import UNKNOWN, EdgeValue, TensorList, TfNode
from intaglio.frontends.tensorflow.scope import Capture, folded
from intaglio.ir import Array, Graph, Type, Value, constant
from intaglio.ops.control import UNBOUNDED
from intaglio.ops.registry import evaluate

MAX_SHAPE_TRIALS = 4  # imports of the body until the carried shapes are stable
MAX_COUNTED = 1 << 14  # iterations that are simulated to find the trip count
MAX_COUNTER = 16  # elements of a loop counter
Condition = Callable[[Sequence[EdgeValue], Capture | None], EdgeValue]
Body = Callable[[Sequence[EdgeValue], Capture | None], list[EdgeValue]]


def build_loop(
    n: TfNode, initial: Sequence[EdgeValue], fixed: set[int], condition: Condition, body: Body
) -> list[EdgeValue]:
    """A loop that runs `body` on the carried values while `condition` holds; `fixed` ones stay."""
    first_iteration = _inline(initial, condition, body)
    if first_iteration is not None:
        return first_iteration
    n.scope.model.inside += 1
    result = _built(n, initial, fixed, condition, body)
    n.scope.model.inside -= 1
    return result


def _inline(
    initial: Sequence[EdgeValue], condition: Condition, body: Body
) -> list[EdgeValue] | None:
    """The results of a loop that runs at most first_iteration; None if it may run more often."""
    go = _known(condition(initial, None))
    if go is None or UNKNOWN in initial:
        return None
    if not go:  # the element shape of a list is known only from the body
        blank = any(isinstance(t, TensorList) and t.value is None for t in initial)
        return None if blank else list(initial)
    first_iteration = body(initial, None)
    return (
        first_iteration
        if UNKNOWN in first_iteration or _known(condition(first_iteration, None)) is False
        else None
    )


def _known(flag: EdgeValue) -> bool | None:
    """The value of a constant condition; None otherwise."""
    held = flag.data if isinstance(flag, Value) else None
    return None if held is None or held.size != 1 else bool(held.reshape(-1)[0])


def _built(
    n: TfNode, initial: Sequence[EdgeValue], fixed: set[int], condition: Condition, body: Body
) -> list[EdgeValue]:
    if UNKNOWN in initial:
        return [UNKNOWN] * len(initial)
    start = list(initial)
    fixed = fixed | {i for i, t in enumerate(start) if not isinstance(t, Value | TensorList)}
    for _ in range(MAX_SHAPE_TRIALS):
        capture = Capture()
        given = [capture.take(t) if i in fixed else _variable(t, i) for i, t in enumerate(start)]
        after = body(given, capture)
        if UNKNOWN in after:
            return [UNKNOWN] * len(initial)
        steady = True
        for i in range(len(start)):
            if i not in fixed:
                start[i], same = _stable_initial(n, i, start[i], given[i], after[i])
                steady = steady and same
        if steady:
            break
    else:
        n.unsupported(
            "a carried value changes its shape in every iteration; its shape must become stable"
        )
    carried = [i for i in range(len(start)) if i not in fixed]
    now = condition(given, capture)
    trips = _count(now, carried, start, given, after)
    first, again = condition(start, None), condition(after, capture)
    if UNKNOWN in (first, again):
        return [UNKNOWN] * len(initial)
    if not isinstance(first, Value) or not isinstance(again, Value):
        raise BadInput("its condition is not a tensor")
    if trips is not None:
        again = constant(True)
    result = _loop(n, carried, start, given, after, capture, trips, first, again)
    return [
        _like_edge(start[i], result[carried.index(i)]) if i in carried else start[i]
        for i in range(len(start))
    ]


def _loop(
    n: TfNode,
    carried: list[int],
    start: list[EdgeValue],
    given: list[EdgeValue],
    after: list[EdgeValue],
    capture: Capture,
    trips: int | None,
    first: Value,
    again: Value,
) -> list[Value]:
    inside = [_tensor_of(given[i]) for i in carried]
    leaving = [_tensor_of(after[i]) for i in carried]
    number, go = Value(Type("i64", ()), "iteration"), Value(Type("bool", ()), "again")
    inner = Graph(
        [number, go, *inside, *capture.inside.values()],
        [again, *leaving],
        ["again", *(v.name or f"carried_{i}" for i, v in enumerate(inside))],
        n.origin,
    )
    inner.tidy()
    trip = None if trips is None else constant(trips, dtype="i64")
    result = ops.loop(
        trip,
        None if trips is not None else ops.reshape(first, shape=()),
        *(_tensor_of(start[i]) for i in carried),
        *capture.inside,
        body=inner,
        carried=len(carried),
        bound=UNBOUNDED if trips is None else trips,
    )
    return result if isinstance(result, list) else [result]


def _tensor_of(edge: EdgeValue) -> Value:
    v = edge.value if isinstance(edge, TensorList) else edge
    if not isinstance(v, Value):
        raise BadInput("a loop carries a value that is not a tensor, or a list without elements")
    return v


def _like_edge(like: EdgeValue, v: Value) -> EdgeValue:
    return (
        TensorList(v, like.count, like.dtype, like.element) if isinstance(like, TensorList) else v
    )


def _variable(edge: EdgeValue, i: int) -> EdgeValue:
    """The body's input for a carried value."""
    if isinstance(edge, TensorList) and edge.value is None:
        return edge
    held = _tensor_of(edge)
    return _like_edge(edge, Value(held.type.but(dynamic=()), held.name or f"carried_{i}"))


def _stable_initial(
    n: TfNode, i: int, start: EdgeValue, given: EdgeValue, after: EdgeValue
) -> tuple[EdgeValue, bool]:
    """The initial value, and whether the body keeps its type."""
    if isinstance(start, TensorList) and isinstance(after, TensorList):
        if start.value is None and after.value is not None:
            zeros = np.zeros(after.value.shape, dtypes.numpy_of(after.value.dtype))
            held = constant(zeros)
            return TensorList(held, after.count, after.value.dtype, after.value.shape[1:]), False
        if after.value is None:
            return start, True
    a, b = _tensor_of(given), _tensor_of(after)
    if a.type.dynamic or b.type.dynamic or a.type != b.type:
        n.unsupported(
            f"carried value {i} is {a.type} as input and {b.type} as output; "
            "its shape must not change; cut the graph around the loop"
        )
    return start, True


# ---- trip count ----------------------------------------------------------------------------------
def _count(
    now: EdgeValue,
    carried: list[int],
    start: list[EdgeValue],
    given: list[EdgeValue],
    after: list[EdgeValue],
) -> int | None:
    """The trip count, if it depends only on counters with constant initial values."""
    if not isinstance(now, Value):
        return None
    place = {id(given[i]): i for i in carried if isinstance(given[i], Value)}
    needed: dict[int, None] = {}
    todo: list[Value] = [now]
    while todo:
        v = todo.pop()
        for leaf in _inputs_of(v):
            if id(leaf) not in place:
                return None
            i = place[id(leaf)]
            first, then = start[i], after[i]
            if not isinstance(first, Value) or first.data is None or first.type.size > MAX_COUNTER:
                return None
            if i not in needed:
                needed[i] = None
                todo.append(_tensor_of(then))
    inputs: list[Any] = [given[i] for i in needed]
    steps = Graph(inputs, [now, *(_tensor_of(after[i]) for i in needed)], ["go", *map(str, needed)])
    held: list[Array] = [_tensor_of(start[i]).data for i in needed]  # type: ignore[misc]
    for count in range(MAX_COUNTED):
        go, *held = evaluate(steps, held)
        if not go.reshape(-1)[0]:
            return count
    return None


def _inputs_of(v: Value) -> list[Value]:
    """The inputs that `v` depends on."""
    found, seen, stack = [], set(), [v]
    while stack:
        x = stack.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if x.producer is not None:
            stack.extend(w for w in x.producer.inputs if w is not None)
        elif x.data is None:
            found.append(x)
    return found


def bodies(
    graphs: Sequence[tuple[list[EdgeValue], Capture]], origin: str
) -> tuple[list[Graph], list[Value]]:
    """Branches as graphs with the same inputs: the outer values that any of them reads."""
    outer: dict[Value, None] = {}
    for _, capture in graphs:
        outer.update(dict.fromkeys(capture.inside))
    made = []
    for results, capture in graphs:
        inputs = [capture.inside.get(v) or Value(v.type, v.name) for v in outer]
        values = [folded(_tensor_of(r), origin, {}) for r in results]
        graph = Graph(inputs, values, [f"result_{i}" for i in range(len(values))], origin)
        graph.tidy()
        made.append(graph)
    return made, list(outer)
