"""cpu.chain: consecutive elementwise f32 ops as one op that passes over memory once.

A chain is a short program. Its values are numbered: first the inputs, then the results of the
instructions; the last is the result. Instruction i is `ops[i]`, an elementwise op by its epilogue
name, of the values `args[2 * i]` and `args[2 * i + 1]` (0 for a unary op), with the float
attributes `params[2 * i]` and `params[2 * i + 1]`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import REGISTRY, broadcast, op
from intaglio.rewrite import ANY, Rule, no, rule
from intaglio.targets.cpu.epilogue import FUSABLE, Floats, activate, activation_of
from intaglio.targets.cpu.packing import Ints

MAX_OPS, MAX_INPUTS = 16, 8  # limits of the kernel; a test compares them
PAIRS = ("add", "sub", "mul", "div", "pow", "mod", "fmod", "minimum", "maximum", "prelu")


def _chain_type(*xs: Value, ops: tuple[str, ...], args: Ints, params: Floats) -> Type:
    if not xs or {x.dtype for x in xs} != {"f32"}:
        raise BadInput(f"cpu.chain takes f32, not {', '.join(str(x.type) for x in xs)}")
    if not ops or len(args) != 2 * len(ops) or len(params) not in (0, 2 * len(ops)):
        raise BadInput(f"cpu.chain: {len(ops)} ops, {len(args)} args, {len(params)} params")
    for i, name in enumerate(ops):
        if name not in PAIRS and name not in FUSABLE:
            raise BadInput(f"cpu.chain: {name!r} cannot be chained")
        if not all(0 <= a < len(xs) + i for a in args[2 * i : 2 * i + 2]):
            raise BadInput(f"cpu.chain: instruction {i} reads a value before it is computed")
    return broadcast(*xs)


@op(_chain_type, name="cpu.chain", elementwise=True)
def chain(*xs: Array, ops: tuple[str, ...], args: Ints, params: Floats = ()) -> Array:
    """Run a program of elementwise ops and return its last result."""
    values = list(xs)
    for i, name in enumerate(ops):
        a, b = (values[k] for k in args[2 * i : 2 * i + 2])
        if name in PAIRS:
            values.append(REGISTRY[name].body(a, b))
        else:
            values.append(activate(a, name, (*params[2 * i : 2 * i + 2], 0.0, 0.0)))
    return np.array(np.broadcast_to(values[-1], np.broadcast_shapes(*(x.shape for x in xs))))


# ---- fusing nodes to chains ----------------------------------------------------------------------
Instruction = tuple[Hashable, str, list[Any], Floats]  # result, op, operands, parameters


def _program(node: Node) -> list[Instruction]:
    """The instructions that compute a node; none if it cannot be chained."""
    out = node.outputs[0]
    if len(node.outputs) != 1 or out.dtype != "f32":
        return []
    if node.op == "cpu.chain":
        ops, args, params = (node.attrs[k] for k in ("ops", "args", "params"))
        params = params or (0.0,) * 2 * len(ops)
        values = [*node.inputs, *((node, i) for i in range(len(ops) - 1)), out]
        result = values[len(node.inputs) :]
        return [
            (
                result[i],
                name,
                [values[a] for a in args[2 * i : 2 * i + 1 + (name in PAIRS)]],
                params[2 * i : 2 * i + 2],
            )
            for i, name in enumerate(ops)
        ]
    found = (node.op, ()) if node.op in PAIRS else activation_of(node)
    return [] if found is None else [(out, found[0], node.inputs, found[1])]


def _inputs(group: list[Node]) -> list[Value]:
    """The values that the group reads from outside, each once."""
    result = {n.outputs[0] for n in group}
    every = (v for n in group for v in n.inputs if v is not None)
    return list(dict.fromkeys(v for v in every if v not in result))


@rule(ANY)
def elementwise_chain(node: Node) -> Any:
    """Fuse elementwise ops with no other readers into one cpu.chain."""
    size, out = len(_program(node)), node.outputs[0]
    if not size:
        return None
    group, refusal = [node], None
    todo = deque(_inputs(group))
    while todo:
        v = todo.popleft()
        p = v.producer
        more = len(_program(p)) if p is not None and p not in group else 0
        if p is None or not more:
            continue
        if v.type != out.type:
            refusal = no(f"its operand {v.type} broadcasts to {out.type}")
        elif not all(reader in group for reader in v.uses):
            refusal = no(f"the {p.op} before it has other readers")
        elif size + more > MAX_OPS or len(_inputs([*group, p])) > MAX_INPUTS:
            refusal = no(f"a chain has at most {MAX_OPS} ops and {MAX_INPUTS} operands")
        else:
            size += more
            group.append(p)
            todo.extend(_inputs(group))  # their readers may all be in the group now
    return _joined(group) if len(group) > 1 else refusal


def _joined(group: list[Node]) -> Value:
    """The nodes of `group` as one chain; group[0] is computed last."""
    inputs = _inputs(group)
    number: dict[Hashable, int] = {v: i for i, v in enumerate(inputs)}
    names: list[str] = []
    args: list[int] = []
    params: list[float] = []
    for result, name, operands, given in [i for n in _in_order(group) for i in _program(n)]:
        number[result] = len(inputs) + len(names)
        names.append(name)
        args += [*(number[v] for v in operands), 0][:2]
        params += [*given, 0.0, 0.0][:2]
    made: Value = chain(
        *inputs, ops=tuple(names), args=tuple(args), params=tuple(params) if any(params) else ()
    )
    return made


def _in_order(group: list[Node]) -> list[Node]:
    """Producers first."""
    done: dict[Node, None] = {}

    def visit(node: Node) -> None:
        for v in node.inputs:
            if v is not None and v.producer in group and v.producer not in done:
                visit(v.producer)
        done[node] = None

    visit(group[0])
    return list(done)


CHAIN: list[Rule] = [elementwise_chain]
