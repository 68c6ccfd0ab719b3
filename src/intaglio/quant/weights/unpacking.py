"""Weights that a file keeps in integers, for layers that it computes in floats: floats again.

TFLite's hybrid models and weight-only ones are such. As floats they are quantised like all others,
to the very same integers where their scales are of the usual kind.
"""

from __future__ import annotations

from intaglio import dtypes
from intaglio.ir import Graph, Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.quant.placement.place import PRODUCTS, Placement, keeps_scale
from intaglio.quant.placement.scheme import TensorScheme


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


def own_scales(placement: Placement, precision: str) -> dict[str, TensorScheme]:
    """Schemes of tensors that are integers in the file already: rounding these again is free."""
    taken = placement.chip.in_precision(precision).tensors
    made = {}
    for v in placement.tensors:
        node = _source(v).producer
        if node is None or node.op != "dequantize_linear" or node.attrs["block_size"]:
            continue
        stored, scale, zero = [*node.inputs, None][:3]
        if stored is None or scale is None or scale.data is None or scale.type.size != 1:
            continue
        if zero is not None and zero.data is None:
            continue
        step, middle = float(scale.data.item()), 0 if zero is None else int(zero.data.item())  # type: ignore[union-attr]
        if step > 0 and not taken.why_not(stored.dtype, bool(middle), "tensor"):
            first, last = (step * (end - middle) for end in dtypes.limits(stored.dtype))
            made[v.name] = TensorScheme(stored.dtype, (step,), (middle,), lo=first, hi=last)
    return made


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
    made = None if x is None else _source(x).producer
    return made is not None and made.op == "dequantize_linear"


def _source(v: Value) -> Value:
    """Where its numbers come from, moved at most."""
    while v.producer is not None and keeps_scale(v.producer) and v.producer.inputs[0] is not None:
        v = v.producer.inputs[0]
    return v
