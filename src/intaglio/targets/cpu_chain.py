"""Elementwise f32 ops that follow each other, as one op that goes over memory once.

A chain is a short program. Its values are numbered: first the inputs, then the results of the
instructions, and the last of those is what it makes. Instruction i is `ops[i]`, an elementwise op
by the name that epilogues use, of the values `args[2 * i]` and `args[2 * i + 1]` (0 if it has one
operand), with the float attributes `params[2 * i]` and `params[2 * i + 1]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import native
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import REGISTRY, broadcast, op
from intaglio.rewrite import ANY, Rule, no, rule
from intaglio.targets.cpu_ops import FUSABLE, Floats, Ints, activate, activation_of

OPS, INPUTS = 16, 8  # what the kernel takes; a test compares its limits
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
            raise BadInput(f"cpu.chain: instruction {i} reads a value that is not there yet")
    return broadcast(*xs)


@op(_chain_type, name="cpu.chain", elementwise=True)
def chain(*xs: Array, ops: tuple[str, ...], args: Ints, params: Floats = ()) -> Array:
    """The last result of a program of elementwise ops; every op is its own body."""
    values = list(xs)
    for i, name in enumerate(ops):
        a, b = (values[k] for k in args[2 * i : 2 * i + 2])
        if name in PAIRS:
            values.append(REGISTRY[name].body(a, b))
        else:
            values.append(activate(a, name, params[2 * i : 2 * i + 2]))
    return np.array(np.broadcast_to(values[-1], np.broadcast_shapes(*(x.shape for x in xs))))


# ---- which nodes become one ----------------------------------------------------------------------
def instruction_of(node: Node) -> tuple[str, Floats] | None:
    """A node's name and parameters in a chain; None if it has no place there."""
    if len(node.outputs) != 1 or node.outputs[0].dtype != "f32":
        return None
    return (node.op, ()) if node.op in PAIRS else activation_of(node)


def _inputs(group: list[Node]) -> list[Value]:
    """What the group reads from outside, each once."""
    made = {n.outputs[0] for n in group}
    return list(dict.fromkeys(v for n in group for v in n.inputs if v is not None and v not in made))


@rule(ANY)
def elementwise_chain(node: Node) -> Any:
    """Elementwise ops that only each other read, up to the last of them, are computed in one go."""
    if node.op == "cpu.chain" or instruction_of(node) is None:
        return None
    group, refusal = [node], None
    grows = True
    while grows:
        grows = False
        for v in _inputs(group):
            p = v.producer
            if p is None or instruction_of(p) is None:
                continue
            if v.type != node.outputs[0].type:
                refusal = no(f"it reads {v.type} for each element of {node.outputs[0].type}")
            elif not all(reader in group for reader in v.uses):
                refusal = no(f"the {p.op} before it has other readers")
            elif len(group) == OPS or len(_inputs([*group, p])) > INPUTS:
                refusal = no(f"a chain takes {OPS} ops of {INPUTS} operands")
            else:
                group.append(p)
                grows = True
    return _chained(group) if len(group) > 1 else refusal


def _chained(group: list[Node]) -> Value:
    """The nodes of `group`, of which the first is the last to compute, as one."""
    inputs = _inputs(group)
    number = {v: i for i, v in enumerate(inputs)}
    names: list[str] = []
    args: list[int] = []
    params: list[float] = []
    for node in _producers_first(group):
        found = instruction_of(node)
        assert found is not None
        operands = [number[v] for v in node.inputs if v is not None]
        number[node.outputs[0]] = len(inputs) + len(names)
        names.append(found[0])
        args += (operands + [0])[:2]
        params += (list(found[1]) + [0.0, 0.0])[:2]
    made: Value = chain(*inputs, ops=tuple(names), args=tuple(args),
                        params=tuple(params) if any(params) else ())  # fmt: skip
    return made


def _producers_first(group: list[Node]) -> list[Node]:
    done: dict[Node, None] = {}

    def visit(node: Node) -> None:
        for v in node.inputs:
            if v is not None and v.producer in group and v.producer not in done:
                visit(v.producer)
        done[node] = None

    visit(group[0])
    return list(done)


CHAIN: list[Rule] = [elementwise_chain]
