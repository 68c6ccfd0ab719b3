"""Importers of IF, WHILE, CALL, CALL_ONCE and variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intaglio import dtypes, ops
from intaglio.frontends.tflite.node import TfliteNode, folded, importer
from intaglio.frontends.tflite.scope import State, Variable
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.control import UNBOUNDED


def _new_inputs(values: Sequence[Value]) -> list[Value]:
    """New graph inputs with the types of these values."""
    return [Value(Type(v.dtype, v.shape), f"operand_{i}") for i, v in enumerate(values)]


def _condition(n: TfliteNode, v: Value) -> Value:
    if v.dtype != "bool" or v.type.size != 1:
        n.unsupported(f"its condition is {v.type}; one bool is needed")
    result: Value = v if v.type.rank == 0 else ops.reshape(v, shape=())
    return result


@importer("IF", stored=True)
def if_(n: TfliteNode) -> list[Value]:
    cond, given = folded(_condition(n, n.required(0))), n.operands()[1:]
    sides = [n.option("ThenSubgraphIndex", 0), n.option("ElseSubgraphIndex", 0)]
    if cond.data is not None:  # constant condition
        return n.scope.call(sides[0 if cond.data.item() else 1], given)
    bodies = []
    for side in sides:
        inputs = _new_inputs(given)
        bodies.append(Graph(inputs, n.scope.body(side, inputs)).copy())
    return _all(ops.if_.node(cond, *given, then_graph=bodies[0], else_graph=bodies[1]))


@importer("WHILE", stored=True)
def while_(n: TfliteNode) -> list[Value]:
    """The condition is evaluated before the first iteration and after each."""
    given = n.operands()
    test, body = n.option("CondSubgraphIndex", 0), n.option("BodySubgraphIndex", 0)
    first = _condition(n, n.scope.call(test, given)[0])
    round_, go = Value(Type("i64", ()), "round"), Value(Type("bool", ()), "go")
    states = _new_inputs(given)
    after = n.scope.body(body, states)
    if len(after) != len(states):
        n.unsupported(
            f"its body has {len(states)} inputs and {len(after)} outputs; their number must be "
            "equal"
        )
    again = _condition(n, n.scope.body(test, after)[0])
    inside = Graph(
        [round_, go, *states],
        [again, *after],
        ["again", *(f"result_{i}" for i in range(len(after)))],
    )
    return _all(
        ops.loop.node(None, first, *given, body=inside.copy(), carried=len(given), bound=UNBOUNDED)
    )


def _all(node: Any) -> list[Value]:
    return list(node.outputs)


@importer("CALL", stored=True)
def call(n: TfliteNode) -> list[Value]:
    return n.scope.call(n.option("Subgraph", 0), n.operands())


@importer("CALL_ONCE", stored=True)
def call_once(n: TfliteNode) -> list[Value]:
    """Initialisation before the first call: sets the initial values of variables."""
    model = n.scope.model
    before, model.setting_up = model.setting_up, True
    try:
        n.scope.call(n.option("InitSubgraphIndex", 0), n.operands())
    finally:
        model.setting_up = before
    return []


def _variable(n: TfliteNode) -> Variable:
    index = n.op.inputs[0] if n.op.inputs else -1
    if index not in n.scope.handles:
        n.unsupported("its variable is passed as a value; only a direct VAR_HANDLE is supported")
    return n.scope.handles[index]


@importer("READ_VARIABLE", stored=True)
def read_variable(n: TfliteNode) -> Value:
    v, t = _variable(n), n.out()
    if v.value is not None and (v.value.data is not None or not n.scope.inner):
        return v.value
    if v.initial is not None and not v.assigned:  # initialised and never changed: a constant
        v.value = constant(v.initial, v.name)
        return v.value
    if n.scope.inner:
        n.unsupported(
            f"variable '{v.name}' is read inside of a branch or a loop; state is supported "
            "outside of them only"
        )
    shape = t.shape if v.initial is None else v.initial.shape
    dtype = t.dtype if v.initial is None else dtypes.name_of(v.initial.dtype)
    if min(shape, default=1) < 1:
        n.unsupported(f"variable '{v.name}' has the open shape {shape} and no initial value")
    given = Value(Type(dtype, shape, t.quant), f"state.{v.name}")
    v.state, v.value = State(given, given, v.initial), given
    return given


@importer("ASSIGN_VARIABLE", stored=True)
def assign_variable(n: TfliteNode) -> list[Value]:
    v, new = _variable(n), folded(n.required(1))
    if n.scope.model.setting_up:
        if new.data is None:
            n.unsupported(f"the initial value of variable '{v.name}' is not constant; it must be")
        v.initial = new.data
        return []
    if n.scope.inner:
        n.unsupported(
            f"variable '{v.name}' is assigned inside of a branch or a loop; state is supported "
            "outside of them only"
        )
    if v.state is not None:
        if new.type.but(quant=None) != v.state.input.type.but(quant=None):
            n.unsupported(
                f"variable '{v.name}' changes its type from {v.state.input.type} to {new.type}; "
                "it must not change"
            )
        v.state.value = new
    v.value = new
    return []
