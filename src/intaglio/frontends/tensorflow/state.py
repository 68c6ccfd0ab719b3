"""State: variables that the model assigns, which outlive a call."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.tensorflow.file import Body, File, Function, Node
from intaglio.frontends.tensorflow.node import EdgeValue, Variable
from intaglio.frontends.tensorflow.scope import Model, Scope
from intaglio.ir import Array, Value

Seen = tuple[str, frozenset[tuple[str, str]]]  # function and its variable arguments
ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


def written_in(
    file: File, body: Body, args: Mapping[str, EdgeValue], seen: set[Seen] | None = None
) -> set[str]:
    """The variables that a function or its callees assign, among its arguments."""
    found: set[str] = set()
    seen = set() if seen is None else seen
    given = frozenset((a, t.name) for a, t in args.items() if isinstance(t, Variable))
    if not given or (body.name, given) in seen:
        return found
    seen.add((body.name, given))
    for node in body.nodes.values():
        held = args.get(node.inputs[0].split(":")[0]) if node.inputs else None
        if node.op in ASSIGNS and isinstance(held, Variable):
            found.add(held.name)
        if not any(k in node.raw for k in ("f", "body", "then_branch", "else_branch", "branches")):
            continue
        for name in _called(node):
            inner = file.functions.get(name)
            if inner is None:
                continue
            first = 1 if "then_branch" in node.raw or "branches" in node.raw else 0
            handed = [args.get(r.split(":")[0]) for r in node.inputs[first:]]
            pairs = zip(inner.args, handed, strict=False)
            known = {a: t for a, t in pairs if isinstance(t, Variable)}
            found |= written_in(file, inner, known, seen)
    return found


def _called(node: Node) -> list[str]:
    held = [v for v in node.attrs.values() if isinstance(v, Function)]
    listed = node.attrs.get("branches")
    held += [v for v in listed if isinstance(v, Function)] if isinstance(listed, list) else []
    return [f.name for f in held]


def assigned_before(scope: Scope, node: Node, variable: Variable) -> Node | None:
    """The assignment of `variable` that precedes a read; None if there is none."""
    stack, seen = list(node.controls), set()
    while stack:
        name = stack.pop()
        now = scope.nodes.get(name)
        if now is None or name in seen:
            continue
        seen.add(name)
        if now.op in ASSIGNS and now.inputs and scope.args.get(now.inputs[0]) == variable:
            return now
        stack += [*now.controls, *(r.split(":")[0] for r in now.inputs)]
    return None


def assigned_value(scope: Scope, node: Node, before: Value) -> Value:
    """The value of a variable after an assignment."""
    result = scope.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if not isinstance(result, Value):
        raise BadFile(f"tensorflow: {node.op} '{scope.prefix}{node.name}' does not assign a tensor")
    if node.op != "AssignVariableOp":
        result = (ops.add if node.op == "AssignAddVariableOp" else ops.sub)(before, result)
    return result


def collect_states(model: Model) -> tuple[list[Value], list[Value], dict[str, Array | None]]:
    """The state inputs of the graph, their values after a call, and their initial values."""
    befores, afters = [], []
    initial: dict[str, Array | None] = {}
    for name, before in model.states.items():
        places = model.assigned.get(name, [])
        if len(places) != 1:
            why = (
                "no output needs the call that assigns it"
                if not places
                else (f"it is assigned at {len(places)} places")
            )
            raise Unsupported(
                f"tensorflow: variable '{name}' is state between calls, but {why}; "
                "choose other outputs, or export the model without it"
            )
        new = assigned_value(*places[0], before)
        if new.type != before.type:
            kinds = f"{before.type} and becomes {new.type}"
            raise Unsupported(f"tensorflow: variable '{name}' is {kinds}; its type must not change")
        befores.append(before)
        afters.append(new)
        initial[before.name] = model.read[name].data
    return befores, afters, initial
