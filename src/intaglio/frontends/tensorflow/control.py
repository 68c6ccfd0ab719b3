"""Importers of function calls, If, Case, While, Switch, Merge and variables."""

from __future__ import annotations

from intaglio import ops
from intaglio.errors import BadFile, BadInput
from intaglio.frontends.tensorflow.dynamic_shapes import constant_condition
from intaglio.frontends.tensorflow.file import Body, Function, Node
from intaglio.frontends.tensorflow.loops import bodies, build_loop
from intaglio.frontends.tensorflow.node import (
    DEAD,
    UNKNOWN,
    EdgeValue,
    Text,
    TfNode,
    Variable,
    importer,
)
from intaglio.frontends.tensorflow.scope import Capture, Scope
from intaglio.frontends.tensorflow.state import assigned_before, assigned_value
from intaglio.frontends.tensorflow.tensor import Tensor, read_strings, read_tensor
from intaglio.ir import Value, constant


@importer("Const")
def const(n: TfNode) -> EdgeValue:
    held = n.attr("value")
    if not isinstance(held, Tensor):
        raise BadFile("its value is missing")
    if n.attr("dtype", "f32") == "string":
        return Text(tuple(read_strings(held, f"'{n.origin}'")))
    return constant(read_tensor(held, f"constant '{n.origin}'"))


@importer(
    "Identity",
    "StopGradient",
    "PreventGradient",
    "CheckNumerics",
    "Snapshot",
    "LoopCond",
    "NextIteration",
    "RefNextIteration",
    "RefIdentity",
    "PlaceholderWithDefault",
    "Print",
    "PrintV2",
    "DebugIdentity",
    "EnsureShape",
    "OptimizationBarrier",
)
def identity(n: TfNode) -> EdgeValue:
    return n.operand(0)


@importer("IdentityN")
def identity_n(n: TfNode) -> list[EdgeValue]:
    return list(n.inputs)


@importer("NoOp", "Assert")
def no_op(n: TfNode) -> EdgeValue:
    return DEAD


# ---- variables -----------------------------------------------------------------------------------
@importer("VarHandleOp")
def var_handle(n: TfNode) -> EdgeValue:
    return Variable(n.node.name)


@importer("VariableV2", "Variable")
def variable(n: TfNode) -> Value:
    return variable_value(n, Variable(n.node.name))


@importer("ReadVariableOp")
def read_variable(n: TfNode) -> Value:
    held = n.operand(0)
    if not isinstance(held, Variable):
        raise BadInput("its operand is not a variable")
    return variable_value(n, held)


@importer("VariableShape")
def variable_shape(n: TfNode) -> Value:
    return constant(list(read_variable(n).shape), dtype=n.dtype("out_type", "i32"))


def variable_value(n: TfNode, variable: Variable) -> Value:
    """The value of a variable: from the checkpoint, or its state."""
    model, name = n.scope.model, variable.name
    if name in model.written:
        return _state_value(n, variable)
    return _from_checkpoint(n, name)


def _state_value(n: TfNode, variable: Variable) -> Value:
    """The value of a variable that the model assigns: a state input, or the last assigned value."""
    model, name = n.scope.model, variable.name
    if model.inside:
        n.unsupported(
            f"variable '{name}' is assigned by the model and read inside of a "
            "loop or a branch; state is supported outside of them only"
        )
    if name not in model.states:
        held = _from_checkpoint(n, name)
        node = model.file.nodes.get(name)
        label = node.attrs.get("shared_name") if node is not None else None
        taken = {v.name for v in model.states.values()}
        wanted = f"state.{label}" if label and f"state.{label}" not in taken else f"state.{name}"
        model.states[name] = Value(held.type, wanted)
    place = assigned_before(n.scope, n.node, variable)
    return (
        model.states[name] if place is None else assigned_value(n.scope, place, model.states[name])
    )


def _from_checkpoint(n: TfNode, name: str) -> Value:
    model = n.scope.model
    if name in model.read:  # every graph has its own constant
        held = model.read[name]
        return Value(held.type, held.name, held.data)
    if model.variables is None:
        n.unsupported(
            f"variable '{name}' has no value in this file; freeze the graph, or give the "
            "folder of a SavedModel"
        )
    shared = model.file.nodes[name].attrs.get("shared_name") if name in model.file.nodes else None
    for key in (model.keys.get(name), name, shared):
        if isinstance(key, str) and key in model.variables:
            model.read[name] = constant(model.variables.read(key), name)
            return model.read[name]
    raise BadFile(f"variable '{name}' is not in the checkpoint '{model.variables.prefix.name}'")


# ---- functions -----------------------------------------------------------------------------------
def _function(n: TfNode, name: str) -> str:
    found = n.attr(name)
    if not isinstance(found, Function):
        raise BadFile(f"attribute '{name}' does not name a function")
    return found.name


@importer("PartitionedCall", "StatefulPartitionedCall")
def partitioned_call(n: TfNode) -> list[EdgeValue]:
    return n.scope.call(_function(n, "f"), n.inputs, n.origin)


@importer("If", "StatelessIf")
def if_(n: TfNode) -> list[EdgeValue]:
    then, other = _function(n, "then_branch"), _function(n, "else_branch")
    if n.is_const(0):
        held = n.const(0).reshape(-1)
        return n.scope.call(then if len(held) and held[0] else other, n.inputs[1:], n.origin)
    branches = []
    n.scope.model.inside += 1
    for name in (then, other):
        capture = Capture()
        given = [capture.take(t) for t in n.inputs[1:]]
        branches.append((n.scope.call(name, given, n.origin), capture))
    n.scope.model.inside -= 1
    if any(UNKNOWN in results for results, _ in branches):
        return [UNKNOWN] * len(branches[0][0])
    return _either(n, n.value(0), branches)


def _either(
    n: TfNode, cond: Value, branches: list[tuple[list[EdgeValue], Capture]]
) -> list[EdgeValue]:
    (a, b), outer = bodies(branches, n.origin)
    if not a.outputs:
        return []
    flag = ops.reshape(_truth(cond), shape=())
    result = ops.if_(flag, *outer, then_graph=a, else_graph=b)
    return list(result) if isinstance(result, list) else [result]


def _truth(v: Value) -> Value:
    if v.dtype == "bool":
        return v
    result: Value = ops.logical_not(ops.equal(v, constant(0, dtype=v.dtype)))
    return result


@importer("Case", "StatelessCase")
def case(n: TfNode) -> list[EdgeValue]:
    """One branch if the index is constant; otherwise all are computed and one is selected."""
    names = [f.name for f in n.attr("branches", []) if isinstance(f, Function)]
    if not names:
        raise BadFile("attribute 'branches' does not name functions")
    last = len(names) - 1
    if n.is_const(0):
        at = n.whole(0)
        return n.scope.call(names[at if 0 <= at < last else last], n.inputs[1:], n.origin)
    every = [n.scope.call(name, n.inputs[1:], n.origin) for name in names]
    results = every[last]
    for i in range(last):
        flag = ops.equal(n.value(0), constant(i, dtype=n.value(0).dtype))
        results = [_selected(n, flag, a, b) for a, b in zip(every[i], results, strict=True)]
    return results


def _selected(n: TfNode, flag: Value, a: EdgeValue, b: EdgeValue) -> EdgeValue:
    if not isinstance(a, Value) or not isinstance(b, Value):
        return UNKNOWN
    if a.type != b.type:
        n.unsupported(f"its branches have results {a.type} and {b.type}; their types must be equal")
    result: Value = ops.where(a, b, flag)
    return result


@importer("While", "StatelessWhile")
def while_(n: TfNode) -> list[EdgeValue]:
    go, step = _function(n, "cond"), _function(n, "body")
    inner = n.scope.body(step)

    def condition(edges: object, capture: Capture | None) -> EdgeValue:
        result = n.scope.call(go, list(edges), n.origin)  # type: ignore[call-overload]
        if not result:
            raise BadFile(f"function '{go}' has no result; a condition is needed")
        if isinstance(result[0], Value):
            result[0] = _truth(result[0])
        return result[0]

    fixed = {i for i in range(len(n.inputs)) if _is_invariant(inner, i)}
    return build_loop(
        n, n.inputs, fixed, condition, lambda edges, _: n.scope.call(step, edges, n.origin)
    )


def _is_invariant(body: Body, i: int) -> bool:
    """Whether a function returns its argument `i` unchanged as result `i`."""
    if i >= min(len(body.results), len(body.args)):
        return False
    ref = body.returns.get(body.results[i], "")
    for _ in range(len(body.nodes) + 1):
        if ref.split(":")[0] == body.args[i]:
            return True
        node = body.nodes.get(ref.split(":")[0])
        if node is None or node.op != "Identity" or not node.inputs:
            return False
        ref = node.inputs[0]
    return False


# ---- branches of TensorFlow 1 --------------------------------------------------------------------
@importer("Switch", "RefSwitch")
def switch(n: TfNode) -> list[EdgeValue]:
    """If the predicate is constant, one output is dead; otherwise Merge selects."""
    x, p = n.operand(0), n.operand(1)
    if p is UNKNOWN:
        return [UNKNOWN, UNKNOWN]
    if n.is_const(1):
        held = n.const(1).reshape(-1)
        taken: bool | None = bool(len(held) and held[0])
    else:
        taken = constant_condition(n.value(1))
    if taken is None:
        return [x, x]
    return [DEAD, x] if taken else [x, DEAD]


@importer("Merge", "RefMerge")
def merge(n: TfNode) -> list[EdgeValue]:
    alive = [i for i, t in enumerate(n.inputs) if t is not DEAD]
    if not alive:
        return [DEAD, DEAD]
    if len(alive) == 1:
        return [n.inputs[alive[0]], constant(alive[0], dtype="i32")]
    if UNKNOWN in n.inputs:
        return [UNKNOWN, UNKNOWN]
    sides = [_switches(n.scope, r) for r in n.node.inputs]
    for predicate, side in sides[0].items():
        if len(sides) == 2 and sides[1].get(predicate) == 1 - side:
            flag = n.scope.get(predicate)
            if isinstance(flag, Value):
                if side:
                    flag = ops.logical_not(flag)
                index = ops.cast(flag, dtype="i32")
                return [_chosen(n, flag), index]
    n.unsupported("its inputs do not come from the two sides of one Switch")


def _chosen(n: TfNode, flag: Value) -> Value:
    a, b = n.value(0), n.value(1)
    if a.type != b.type:
        n.unsupported(
            f"its inputs are {a.type} and {b.type}; one is selected at run time, so their types "
            "must be equal"
        )
    result: Value = ops.where(b, a, flag)
    return result


def _switches(scope: Scope, ref: str) -> dict[str, int]:
    """The predicates of the switches above a tensor, and the side of each that it is on."""
    found: dict[str, int] = {}
    stack, seen = [ref], set()
    while stack:
        name, side = scope.resolve(stack.pop())
        node: Node | None = scope.nodes.get(name)
        if node is None or (name, side) in seen:
            continue
        seen.add((name, side))
        if node.op in ("Switch", "RefSwitch") and len(node.inputs) == 2:
            found.setdefault(node.inputs[1], side)
        else:
            stack += [*node.inputs, *node.controls]
    return found
