"""Loops of TensorFlow 1: Enter, Merge, Switch, NextIteration and Exit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intaglio.errors import BadFile
from intaglio.frontends.tensorflow.file import Node
from intaglio.frontends.tensorflow.loops import build_loop
from intaglio.frontends.tensorflow.node import EdgeValue, TfNode, importer
from intaglio.frontends.tensorflow.scope import Capture, Scope


@dataclass
class Loop:
    """One loop variable: its Enter, Merge, Switch and NextIteration nodes."""

    switch: Node
    merge: Node
    enter: Node
    back: Node


def _frame(scope: Scope, leave: Node) -> tuple[str, list[Loop]]:
    """The LoopCond node and the variables of the loop of an Exit node."""
    switch = scope.source(leave.inputs[0]) if leave.inputs else None
    if switch is None or len(switch.inputs) != 2 or not switch.op.endswith("Switch"):
        raise BadFile(f"tensorflow: '{leave.name}' is an Exit without a loop")
    condition = scope.resolve(switch.inputs[1])[0]
    if scope.exits is None:  # Switch nodes of every loop, by its LoopCond
        scope.exits = {}
        for node in scope.nodes.values():
            if node.op in ("Switch", "RefSwitch") and len(node.inputs) == 2:
                of = scope.resolve(node.inputs[1])[0]
                scope.exits.setdefault(of, []).append(node.name)
    if condition not in scope.nodes or scope.nodes[condition].op != "LoopCond":
        raise BadFile(f"tensorflow: '{leave.name}' is an Exit without a loop")
    return condition, [_variable(scope, scope.nodes[s]) for s in scope.exits[condition]]


def _variable(scope: Scope, switch: Node) -> Loop:
    merge = scope.source(switch.inputs[0])
    if merge is None or merge.op not in ("Merge", "RefMerge"):
        raise BadFile(f"tensorflow: '{switch.name}' is a Switch without a Merge")
    ends = [scope.source(r) for r in merge.inputs]
    enter = next((e for e in ends if e is not None and e.op in ("Enter", "RefEnter")), None)
    back = next((e for e in ends if e is not None and e.op.endswith("NextIteration")), None)
    if enter is None or back is None or not enter.inputs or not back.inputs:
        raise BadFile(f"tensorflow: '{merge.name}' has no Enter or no NextIteration")
    return Loop(switch, merge, enter, back)


def entries(scope: Scope, leave: Node) -> list[Node]:
    """The Enter nodes of the loop of an Exit node."""
    return [v.enter for v in _frame(scope, leave)[1]]


def _is_invariant(scope: Scope, v: Loop) -> bool:
    """Whether the loop never changes the variable."""
    ref = v.back.inputs[0]
    while True:
        node = scope.source(ref)
        if node is None or node.op != "Identity" or not node.inputs:
            return scope.resolve(ref) == (v.switch.name, 1)
        ref = node.inputs[0]


@importer("Exit", "RefExit")
def exit_(n: TfNode) -> EdgeValue:
    scope = n.scope
    condition, variables = _frame(scope, n.node)
    if condition not in scope.frames:
        initial = [scope.get(v.enter.inputs[0]) for v in variables]

        def inside(edges: Sequence[EdgeValue], capture: Capture | None) -> Scope:
            body = Scope(scope.model, scope.nodes, f"{scope.prefix}", scope, capture)
            body.args, body.bound = scope.args, dict(scope.bound)
            for v, edge in zip(variables, edges, strict=True):
                body.bound |= {(v.merge.name, 0): edge, (v.switch.name, 1): edge}
            return body

        result = build_loop(
            n,
            initial,
            {i for i, v in enumerate(variables) if _is_invariant(scope, v)},
            lambda edges, capture: inside(edges, capture).get(scope.nodes[condition].inputs[0]),
            lambda edges, capture: _next(inside(edges, capture), variables),
        )
        scope.frames[condition] = {v.switch.name: t for v, t in zip(variables, result, strict=True)}
    return scope.frames[condition][scope.resolve(n.node.inputs[0])[0]]


def _next(body: Scope, variables: Sequence[Loop]) -> list[EdgeValue]:
    return [body.get(v.back.inputs[0]) for v in variables]


@importer("Enter", "RefEnter")
def enter(n: TfNode) -> EdgeValue:
    """An outer value that a loop reads."""
    scope = n.scope
    outside = scope.outer if scope.outer is not None else scope
    edge = outside.get(n.node.inputs[0])
    return edge if scope.capture is None else scope.capture.take(edge)
