"""Models that hold integers already (TFLite int8, ONNX with QuantizeLinear): float ports."""

from __future__ import annotations

from intaglio import dtypes, ops
from intaglio.ir import Graph, Node, Value

MOVES = ("reshape", "transpose")


def is_quantised(graph: Graph) -> bool:
    """Whether the model file itself holds integers and scales."""
    return any(n.op == "dequantize_linear" for n in graph.nodes())


def float_ports(graph: Graph) -> None:
    """Let quantised inputs and outputs be floats, as tpu-mlir does."""
    for i, old in enumerate(list(graph.inputs)):
        reader = next((n for n in old.uses if n.op == "dequantize_linear"), None)
        if dtypes.is_float(old.dtype) or reader is None or old.name in graph.state:
            continue
        given = Value(old.type.but(dtype="f32", quant=None), old.name)
        stored: Value = ops.quantize_linear(given, *reader.inputs[1:3], dtype=old.dtype)
        graph.replace(old, stored)
        stored.name, given.name = f"{old.name}_stored", old.name
        graph.inputs[i] = given
    for i, v in enumerate(list(graph.outputs)):
        maker = _maker(v)
        if dtypes.is_float(v.dtype) or maker is None:
            continue
        real: Value = ops.dequantize_linear(v, *maker.inputs[1:3])
        real.name, v.name = graph.output_names[i], f"{graph.output_names[i]}_stored"
        graph.set_input(graph.result, i, real)


def _maker(v: Value) -> Node | None:
    """The node that rounds a tensor, maybe before ops that move its values."""
    node = v.producer
    while node is not None and node.op in MOVES and node.inputs[0] is not None:
        node = node.inputs[0].producer
    return node if node is not None and node.op == "quantize_linear" else None
