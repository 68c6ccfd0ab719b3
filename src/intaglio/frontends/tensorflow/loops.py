"""Loops, however the file spells them: what is carried, what stays, how often they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import UNKNOWN, Rows, TfNode, Thing
from intaglio.frontends.tensorflow.scope import Capture, folded
from intaglio.ir import Array, Graph, Type, Value, constant
from intaglio.ops.control import UNBOUNDED
from intaglio.ops.registry import evaluate

TRIALS = 4  # bodies that are imported until all shapes stay as they are
COUNTED = 1 << 14  # iterations that are counted beforehand
SMALL = 16  # elements of what counts them
Condition = Callable[[Sequence[Thing], Capture | None], Thing]
Body = Callable[[Sequence[Thing], Capture | None], list[Thing]]


def build_loop(
    n: TfNode, initial: Sequence[Thing], fixed: set[int], condition: Condition, body: Body
) -> list[Thing]:
    """While `condition` holds, `body` makes new values of old; those of `fixed` never change."""
    once = _inline(initial, condition, body)
    if once is not None:
        return once
    n.scope.model.inside += 1
    made = _built(n, initial, fixed, condition, body)
    n.scope.model.inside -= 1
    return made


def _inline(initial: Sequence[Thing], condition: Condition, body: Body) -> list[Thing] | None:
    """The results of a loop that runs once or never; None where it may run more often."""
    go = _known(condition(initial, None))
    if go is None or UNKNOWN in initial:
        return None
    if not go:  # what a list would hold, only its body shows
        blank = any(isinstance(t, Rows) and t.value is None for t in initial)
        return None if blank else list(initial)
    once = body(initial, None)
    return once if UNKNOWN in once or _known(condition(once, None)) is False else None


def _known(flag: Thing) -> bool | None:
    """A condition that is constant."""
    held = flag.data if isinstance(flag, Value) else None
    return None if held is None or held.size != 1 else bool(held.reshape(-1)[0])


def _built(
    n: TfNode, initial: Sequence[Thing], fixed: set[int], condition: Condition, body: Body
) -> list[Thing]:
    if UNKNOWN in initial:
        return [UNKNOWN] * len(initial)
    start = list(initial)
    fixed = fixed | {i for i, t in enumerate(start) if not isinstance(t, Value | Rows)}
    for _ in range(TRIALS):
        capture = Capture()
        given = [capture.take(t) if i in fixed else _variable(t, i) for i, t in enumerate(start)]
        after = body(given, capture)
        if UNKNOWN in after:
            return [UNKNOWN] * len(initial)
        steady = True
        for i in range(len(start)):
            if i not in fixed:
                start[i], same = _fitting(n, i, start[i], given[i], after[i])
                steady = steady and same
        if steady:
            break
    else:
        n.unsupported("what it carries changes its shape from one iteration to the next")
    carried = [i for i in range(len(start)) if i not in fixed]
    now = condition(given, capture)
    trips = _count(now, carried, start, given, after)
    first, again = condition(start, None), condition(after, capture)
    if UNKNOWN in (first, again):
        return [UNKNOWN] * len(initial)
    if not isinstance(first, Value) or not isinstance(again, Value):
        raise BadInput("its condition is no tensor")
    if trips is not None:
        again = constant(True)
    made = _loop(n, carried, start, given, after, capture, trips, first, again)
    return [
        _wrapped(start[i], made[carried.index(i)]) if i in carried else start[i]
        for i in range(len(start))
    ]


def _loop(
    n: TfNode,
    carried: list[int],
    start: list[Thing],
    given: list[Thing],
    after: list[Thing],
    capture: Capture,
    trips: int | None,
    first: Value,
    again: Value,
) -> list[Value]:
    inside = [_held(given[i]) for i in carried]
    leaving = [_held(after[i]) for i in carried]
    number, go = Value(Type("i64", ()), "iteration"), Value(Type("bool", ()), "again")
    inner = Graph(
        [number, go, *inside, *capture.inside.values()],
        [again, *leaving],
        ["again", *(v.name or f"carried_{i}" for i, v in enumerate(inside))],
        n.origin,
    )
    inner.tidy()
    trip = None if trips is None else constant(trips, dtype="i64")
    made = ops.loop(
        trip,
        None if trips is not None else ops.reshape(first, shape=()),
        *(_held(start[i]) for i in carried),
        *capture.inside,
        body=inner,
        carried=len(carried),
        bound=UNBOUNDED if trips is None else trips,
    )
    return made if isinstance(made, list) else [made]


def _held(thing: Thing) -> Value:
    v = thing.value if isinstance(thing, Rows) else thing
    if not isinstance(v, Value):
        raise BadInput("a loop carries what is no tensor, or a list that nobody fills")
    return v


def _wrapped(like: Thing, v: Value) -> Thing:
    return Rows(v, like.count, like.dtype, like.element) if isinstance(like, Rows) else v


def _variable(thing: Thing, i: int) -> Thing:
    """What the body sees of a carried thing."""
    if isinstance(thing, Rows) and thing.value is None:
        return thing
    held = _held(thing)
    return _wrapped(thing, Value(held.type.but(dynamic=()), held.name or f"carried_{i}"))


def _fitting(n: TfNode, i: int, start: Thing, given: Thing, after: Thing) -> tuple[Thing, bool]:
    """The value to begin with, and whether the body keeps its type."""
    if isinstance(start, Rows) and isinstance(after, Rows):
        if start.value is None and after.value is not None:
            zeros = np.zeros(after.value.shape, dtypes.numpy_of(after.value.dtype))
            held = constant(zeros)
            return Rows(held, after.count, after.value.dtype, after.value.shape[1:]), False
        if after.value is None:
            return start, True
    a, b = _held(given), _held(after)
    if a.type.dynamic or b.type.dynamic or a.type != b.type:
        n.unsupported(
            f"carried value {i} comes as {a.type} and leaves as {b.type}; what is "
            "carried has to keep its shape; cut the graph around it"
        )
    return start, True


# ---- how often -----------------------------------------------------------------------------------
def _count(
    now: Thing, carried: list[int], start: list[Thing], given: list[Thing], after: list[Thing]
) -> int | None:
    """How often the loop runs, where only counters decide it that begin with constants."""
    if not isinstance(now, Value):
        return None
    place = {id(given[i]): i for i in carried if isinstance(given[i], Value)}
    needed: dict[int, None] = {}
    todo: list[Value] = [now]
    while todo:
        v = todo.pop()
        for leaf in _leaves(v):
            if id(leaf) not in place:
                return None
            i = place[id(leaf)]
            first, then = start[i], after[i]
            if not isinstance(first, Value) or first.data is None or first.type.size > SMALL:
                return None
            if i not in needed:
                needed[i] = None
                todo.append(_held(then))
    inputs: list[Any] = [given[i] for i in needed]
    steps = Graph(inputs, [now, *(_held(after[i]) for i in needed)], ["go", *map(str, needed)])
    held: list[Array] = [_held(start[i]).data for i in needed]  # type: ignore[misc]
    for count in range(COUNTED):
        go, *held = evaluate(steps, held)
        if not go.reshape(-1)[0]:
            return count
    return None


def _leaves(v: Value) -> list[Value]:
    """The values without data that `v` is computed from."""
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
    graphs: Sequence[tuple[list[Thing], Capture]], origin: str
) -> tuple[list[Graph], list[Value]]:
    """Branches as graphs that take the same inputs: what any of them reads from outside."""
    outer: dict[Value, None] = {}
    for _, capture in graphs:
        outer.update(dict.fromkeys(capture.inside))
    made = []
    for results, capture in graphs:
        inputs = [capture.inside.get(v) or Value(v.type, v.name) for v in outer]
        values = [folded(_held(r), origin, {}) for r in results]
        graph = Graph(inputs, values, [f"result_{i}" for i in range(len(values))], origin)
        graph.tidy()
        made.append(graph)
    return made, list(outer)
