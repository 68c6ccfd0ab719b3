"""Integer weights in a model file, of layers that it computes in floats: convert them to floats.

TFLite's hybrid models and weight-only models have such weights. As floats they are quantised like
all others; with per-channel symmetric scales the same integers result.
"""

from __future__ import annotations

from intaglio import dtypes
from intaglio.ir import Graph, Node, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.quant.placement.place import PRODUCTS, Placement, keeps_scale
from intaglio.quant.placement.scheme import TensorScheme


def unpack_weights(graph: Graph) -> None:
    """Replace dequantised constant weights of float products by float constants, in place.

    Inputs of such products are no longer rounded at run time either.
    """
    for node in list(graph.nodes()):
        if node.op == "dynamic_fake_quantize" and node.inputs[0] is not None:
            graph.replace(node.outputs[0], node.inputs[0])
            continue
        data = [None if v is None else v.data for v in node.inputs]
        if node.op != "dequantize_linear" or any(
            v is not None and d is None for v, d in zip(node.inputs, data, strict=True)
        ):
            continue
        result = node.outputs[0]
        if result.dtype == "f32" and result.uses and all(_is_weight(node, u) for u in result.uses):
            real = REGISTRY[node.op].body(*data, **node.attrs)
            name = result.name or (node.inputs[0].name if node.inputs[0] else "")
            graph.replace(result, constant(real, name))


def scales_in_file(placement: Placement, precision: str) -> dict[str, TensorScheme]:
    """Schemes of tensors that the file stores as integers: keeping them adds no error."""
    taken = placement.chip.in_precision(precision).tensors
    results = {}
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
            results[v.name] = TensorScheme(stored.dtype, (step,), (middle,), lo=first, hi=last)
    return results


def already_quantized(graph: Graph) -> str:
    """A hint for the error message if the model file computes in integers already."""
    integer = ("quantize", "dequantize", "qlinear", "dynamic_", "matmul_integer", "conv_integer")
    if not any(n.op.startswith(integer) for n in graph.nodes()):
        return ""
    return "; the model is quantised already, and `intaglio compile` keeps its scales"


def _is_weight(node: Node, reader: Node) -> bool:
    """Does a float product read it as weights or bias?"""
    if reader.op not in PRODUCTS or reader.inputs[0] is node.outputs[0]:
        return False
    return not _is_dequantized(reader.inputs[0])


def _is_dequantized(x: Value | None) -> bool:
    """Is it dequantised, directly or before ops that only move values (TFLite transposes)?"""
    result = None if x is None else _source(x).producer
    return result is not None and result.op == "dequantize_linear"


def _source(v: Value) -> Value:
    """The tensor that its values come from, before ops that only move values."""
    while v.producer is not None and keeps_scale(v.producer) and v.producer.inputs[0] is not None:
        v = v.producer.inputs[0]
    return v
