"""Loops of TensorFlow 1: Enter, Merge, Switch, NextIteration and Exit around a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intaglio.errors import BadFile
from intaglio.frontends.tensorflow.file import Node
from intaglio.frontends.tensorflow.loops import build_loop
from intaglio.frontends.tensorflow.node import TfNode, Thing, importer
from intaglio.frontends.tensorflow.scope import Capture, Scope


@dataclass
class Loop:
    """One variable of a loop: where it enters, is decided on, and comes round again."""

    switch: Node
    merge: Node
    enter: Node
    back: Node


def _frame(scope: Scope, leave: Node) -> tuple[str, list[Loop]]:
    """The condition's node and the variables of the loop that an Exit leaves."""
    switch = scope.source(leave.inputs[0]) if leave.inputs else None
    if switch is None or len(switch.inputs) != 2 or not switch.op.endswith("Switch"):
        raise BadFile(f"tensorflow: '{leave.name}' leaves no loop")
    condition = scope.resolve(switch.inputs[1])[0]
    if scope.exits is None:  # the switches of every loop, by its condition
        scope.exits = {}
        for node in scope.nodes.values():
            if node.op in ("Switch", "RefSwitch") and len(node.inputs) == 2:
                of = scope.resolve(node.inputs[1])[0]
                scope.exits.setdefault(of, []).append(node.name)
    if condition not in scope.nodes or scope.nodes[condition].op != "LoopCond":
        raise BadFile(f"tensorflow: '{leave.name}' leaves no loop")
    return condition, [_variable(scope, scope.nodes[s]) for s in scope.exits[condition]]


def _variable(scope: Scope, switch: Node) -> Loop:
    merge = scope.source(switch.inputs[0])
    if merge is None or merge.op not in ("Merge", "RefMerge"):
        raise BadFile(f"tensorflow: '{switch.name}' carries nothing round a loop")
    ends = [scope.source(r) for r in merge.inputs]
    enter = next((e for e in ends if e is not None and e.op in ("Enter", "RefEnter")), None)
    back = next((e for e in ends if e is not None and e.op.endswith("NextIteration")), None)
    if enter is None or back is None or not enter.inputs or not back.inputs:
        raise BadFile(f"tensorflow: '{merge.name}' neither enters a loop nor comes round")
    return Loop(switch, merge, enter, back)


def entries(scope: Scope, leave: Node) -> list[Node]:
    """The nodes by which variables enter the loop that an Exit leaves."""
    return [v.enter for v in _frame(scope, leave)[1]]


def _stays(scope: Scope, v: Loop) -> bool:
    """Does the variable come round as it went?"""
    ref = v.back.inputs[0]
    while True:
        node = scope.source(ref)
        if node is None or node.op != "Identity" or not node.inputs:
            return scope.resolve(ref) == (v.switch.name, 1)
        ref = node.inputs[0]


@importer("Exit", "RefExit")
def leave(n: TfNode) -> Thing:
    scope = n.scope
    condition, variables = _frame(scope, n.node)
    if condition not in scope.frames:
        initial = [scope.get(v.enter.inputs[0]) for v in variables]

        def inside(things: Sequence[Thing], capture: Capture | None) -> Scope:
            body = Scope(scope.model, scope.nodes, f"{scope.prefix}", scope, capture)
            body.args, body.bound = scope.args, dict(scope.bound)
            for v, thing in zip(variables, things, strict=True):
                body.bound |= {(v.merge.name, 0): thing, (v.switch.name, 1): thing}
            return body

        made = build_loop(
            n,
            initial,
            {i for i, v in enumerate(variables) if _stays(scope, v)},
            lambda things, capture: inside(things, capture).get(scope.nodes[condition].inputs[0]),
            lambda things, capture: _next(inside(things, capture), variables),
        )
        scope.frames[condition] = {v.switch.name: t for v, t in zip(variables, made, strict=True)}
    return scope.frames[condition][scope.resolve(n.node.inputs[0])[0]]


def _next(body: Scope, variables: Sequence[Loop]) -> list[Thing]:
    return [body.get(v.back.inputs[0]) for v in variables]


@importer("Enter", "RefEnter")
def enter(n: TfNode) -> Thing:
    """What a loop reads from outside."""
    scope = n.scope
    outside = scope.outer if scope.outer is not None else scope
    thing = outside.get(n.node.inputs[0])
    return thing if scope.capture is None else scope.capture.take(thing)
