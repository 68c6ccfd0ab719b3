"""Scales and zero points of integer outputs, which compilation would lose.

Passes turn quantise-dequantise pairs into integer arithmetic, after which the scale of an output is
an operand of some kernel. A package keeps it with the type of the output, so that its user can turn
integers into real numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intaglio import dtypes
from intaglio.ir import Graph, Node, Quant, Value
from intaglio.ops.registry import REGISTRY
from intaglio.plan import Plan

# Ops whose results have the scale of their first operand, if it has one for all elements.
KEEP_SCALE = {"reshape", "transpose", "slice", "clip", "relu", "max_pool", "gather", "expand"}
NEAR_ONE = 1e-5  # difference from 1 of the scale of integers that stand for themselves


def output_scales(graph: Graph) -> list[Quant | None]:
    """The scale and zero point of each integer output; None if it has none, or is a state, whose
    type is that of an input.
    """
    named = zip(graph.output_names, graph.outputs, strict=True)
    return [None if name in graph.state else _scale_of(v) for name, v in named]


def set_output_scales(plan: Plan, scales: Sequence[Quant | None]) -> None:
    """Add scales to the types of the outputs of a plan."""
    for t, q in zip(plan.outputs, scales, strict=True):
        if q is not None and t.type.quant is None:
            t.type = t.type.but(quant=q)


def inner_scales(graph: Graph) -> list[list[Any]]:
    """[node, tensor, type, scale, zero point] of every rounding with one scale.

    `node` is the name of the node that rounds, and `tensor` that of the real numbers for which the
    integers stand.
    """
    found: list[list[Any]] = []
    for n in graph.nodes():
        if n.op != "quantize_linear" or n.inputs[0] is None or n.inputs[0].data is not None:
            continue
        stored = n.outputs[0]
        readers = [u for u in stored.uses if u.op == "dequantize_linear" and u.inputs[0] is stored]
        own, theirs = _one_scale(n), _one_scale(readers[0]) if readers else None
        if own and abs(own[0] - 1) < NEAR_ONE and own[1] == 0:
            own = theirs  # arithmetic on the integers themselves
        if own and n.origin:
            real = next((u.outputs[0].name for u in readers if u.outputs[0].name), "")
            found.append([n.origin, real, stored.dtype, *own])
    return found


def _one_scale(node: Node) -> tuple[float, int] | None:
    """Scale and zero point of quantize_linear or dequantize_linear, if each is one constant."""
    scale, zero = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if scale is None or scale.data is None or scale.data.size != 1:
        return None
    if zero is not None and (zero.data is None or zero.data.size != 1):
        return None
    whole = 0 if zero is None or zero.data is None else int(zero.data.ravel()[0])
    return float(scale.data.ravel()[0]), whole


def _scale_of(v: Value) -> Quant | None:
    first = v
    while not v.type.quant and v.producer is not None and v.producer.op in KEEP_SCALE:
        if (before := v.producer.inputs[0]) is None or before.dtype != v.dtype:
            return None
        v = before
    if not dtypes.is_integer(v.dtype):
        return None
    found = v.type.quant or (_of_result(v.producer) if v.producer is not None else None)
    return found if found is None or found.axis is None or v is first else None


def _of_result(node: Node) -> Quant | None:
    """The scale that a node quantises its result with, if that is constant."""
    scale, zero, axis = _operands(node)
    if scale is None or scale.data is None or (zero is not None and zero.data is None):
        return None
    scales = tuple(map(float, scale.data.reshape(-1)))
    zeros = (0,) * len(scales)
    if zero is not None and zero.data is not None:
        zeros = tuple(map(int, zero.data.reshape(-1)))
    if len(zeros) != len(scales) or (len(scales) > 1 and axis is None):
        return None
    return Quant(scales, zeros, None if len(scales) == 1 else axis)


def _operands(node: Node) -> tuple[Value | None, Value | None, int | None]:
    """The scale and zero point of a node's result, and the axis of the scales if known."""
    if node.op == "quantize_linear":
        scale, zero = node.inputs[1:3]
        blocks, axis = node.attrs["block_size"], node.attrs["axis"]
        return (None if blocks else scale), zero, axis % max(node.outputs[0].type.rank, 1)
    names = list(REGISTRY[node.op].signature.parameters)
    if "y_scale" not in names or "y_zero" not in names:
        return None, None, None
    scale, zero = (node.inputs[names.index(k)] for k in ("y_scale", "y_zero"))
    return scale, zero, None
