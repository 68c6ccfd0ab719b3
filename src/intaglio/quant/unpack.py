"""Weights that a file keeps in integers, for layers that it computes in floats: floats again.

TFLite's hybrid models and weight-only ones are such. As floats they are quantised like all others,
to the very same integers where their scales are of the usual kind.
"""

from __future__ import annotations

from intaglio.ir import Graph, Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.quant.place import PRODUCTS, keeps_scale


def unpack_weights(graph: Graph) -> None:
    """Make constants of what is dequantised for products of real numbers, in place."""
    for node in list(graph.nodes()):
        data = [None if v is None else v.data for v in node.inputs]
        if node.op != "dequantize_linear" or any(
            v is not None and d is None for v, d in zip(node.inputs, data, strict=True)
        ):
            continue
        made = node.outputs[0]
        if made.dtype == "f32" and made.uses and all(_is_weight(node, u) for u in made.uses):
            real = REGISTRY[node.op].body(*data, **node.attrs)
            name = made.name or (node.inputs[0].name if node.inputs[0] else "")
            graph.replace(made, constant(real, name))


def already(graph: Graph) -> str:
    """What to say of a model without a layer to quantise that computes in integers by itself."""
    integer = ("quantize", "dequantize", "qlinear", "dynamic_", "matmul_integer", "conv_integer")
    if not any(n.op.startswith(integer) for n in graph.nodes()):
        return ""
    return "; it computes in integers already, and `intaglio compile` keeps its own scales"


def _is_weight(node: Node, reader: Node) -> bool:
    """Does a product of floats that are not dequantised read it as its weights or bias?"""
    if reader.op not in PRODUCTS or reader.inputs[0] is node.outputs[0]:
        return False
    return not _is_dequantized(reader.inputs[0])


def _is_dequantized(x: Value | None) -> bool:
    """Does it come out of integers, perhaps by way of moves (TFLite's tensors are transposed)?"""
    while x is not None and x.producer is not None and keeps_scale(x.producer):
        x = x.producer.inputs[0]
    return x is not None and x.producer is not None and x.producer.op == "dequantize_linear"
