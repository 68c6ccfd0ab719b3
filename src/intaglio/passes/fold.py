"""Constant folding: evaluate nodes whose operands are all constant, with their numpy bodies."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import heap
from intaglio.errors import IntaglioError
from intaglio.ir import Array, Graph, Node, Value, constant, detach, symbolic
from intaglio.ops.registry import REGISTRY, evaluate_node
from intaglio.rewrite import ANY, P, no, rule

MAX_REPEATED_BYTES = 1 << 20  # of a folded constant that repeats its operand
MAX_GROWN_BYTES = 64 << 20  # of a folded constant that is larger than its operands
CASTS = ("cast", "dequantize_linear")  # element types grow from 1 to 8 bytes at most
REPEATS = ("expand", "expand_to", "tile", "range", "pad", "gather", "interpolate", "one_hot")

(x,) = P["x"]


@rule(ANY)
def fold_constants(node: Node) -> Any:
    """Evaluate a node whose operands are all constant."""
    return compute(node) if REGISTRY[node.op].foldable else None


@rule(P.dequantize_linear(x, *P["scale zero?"]))
def fold_weights(node: Node) -> Any:
    """Dequantise constant weights that the target computes with as floats."""
    return compute(node)


def compute(node: Node) -> Any:
    """The outputs of a node with constant operands, as constants."""
    if (
        node.bodies()
        or symbolic(node)
        or any(v is not None and v.data is None for v in node.inputs)
    ):
        return None
    result = sum(v.type.bytes for v in node.outputs)
    read = sum(v.type.bytes for v in node.inputs if v is not None)
    if result > max(MAX_GROWN_BYTES, (8 if node.op in CASTS else 1.5) * _distinct(node)):
        return no(f"the folded constant takes {result} bytes, far more than its operands")
    if node.op in REPEATS and result > max(MAX_REPEATED_BYTES, 2 * read):
        return no(f"the folded constant takes {result} bytes, its operands {read}")
    try:
        arrays = evaluate_node(node, [None if v is None else v.data for v in node.inputs])
    except IntaglioError as e:
        return no(str(e))  # the same error is raised at run time
    return [constant(_dense(a)) for a in arrays]


def _distinct(node: Node) -> int:
    """Bytes of the operands, each counted once."""
    return sum(v.type.bytes for v in set(node.inputs) if v is not None)


def _dense(a: Array) -> Array:
    if a.flags.c_contiguous:
        return a
    result = heap.empty(a.shape, a.dtype)
    result[...] = a
    return result


@rule(P.shape_of(x))
def constant_shape(x: Value) -> Any:
    """Fold the shape of a tensor without dynamic axes."""
    return None if x.type.dynamic else constant(np.array(x.shape, np.int64))


@rule(ANY)
def if_of_constant(node: Node) -> Any:
    """Inline the taken branch of an `if` whose condition is constant."""
    if node.op != "if" or (cond := node.inputs[0]) is None or cond.data is None:
        return None
    branch: Graph = node.attrs["then_graph" if cond.data.item() else "else_graph"]
    return inline(branch, node.inputs[1:])


def inline(body: Graph, arguments: list[Value | None]) -> list[Value]:
    """The outputs of a copy of `body` that reads `arguments`."""
    copied = body.copy()
    for inner, outer in zip(copied.inputs, arguments, strict=True):
        if outer is not None:
            copied.replace(inner, outer)
    outputs = list(copied.outputs)
    detach(copied.result)
    return outputs


@rule(ANY)
def constants_into_bodies(node: Node) -> Any:
    """Move constant captures of control flow into its bodies, where they fold."""
    first = captures(node)
    if first is None:
        return None
    const = [
        i for i, v in enumerate(node.inputs) if i >= first and v is not None and v.data is not None
    ]
    if not const:
        return None
    attrs: dict[str, Any] = {}
    for name, body in node.attrs.items():
        if not isinstance(body, Graph):
            attrs[name] = body
            continue
        copied = body.copy()
        shift = len(node.inputs) - len(copied.inputs)  # captures are the last inputs of both
        for i in const:
            copied.replace(copied.inputs[i - shift], _rebuilt(node.inputs[i]))
        copied.inputs = [v for j, v in enumerate(copied.inputs) if j + shift not in const]
        attrs[name] = copied
    kept = [v for i, v in enumerate(node.inputs) if i not in const]
    return REGISTRY[node.op].node(*kept, origin=node.origin, **attrs).outputs


def captures(node: Node) -> int | None:
    """The index of the first input that a control-flow node passes to its bodies unchanged."""
    if node.op == "if":
        return 1
    if node.op == "loop":
        return 2 + int(node.attrs["carried"])
    if node.op == "scan":
        return int(node.attrs["states"]) + int(node.attrs["scans"])
    return None


def _rebuilt(v: Value | None) -> Value:
    assert v is not None
    return Value(v.type, v.name, v.data)


WEIGHTS = [fold_weights]
FOLD = [fold_constants, constant_shape, if_of_constant, constants_into_bodies]
