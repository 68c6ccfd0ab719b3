"""The golden model of a comparison: the float model, or a quantised one without its rounding."""

from __future__ import annotations

from intaglio import dtypes
from intaglio.analysis.joining import rounding_of
from intaglio.ir import Graph, Node, Value
from intaglio.ops.activation import relu


def is_quantized(graph: Graph) -> bool:
    """Whether a computed tensor of the graph is rounded to integers."""
    return any(rounding_of(v) for n in graph.nodes() for v in n.outputs[:1])


def without_rounding(graph: Graph) -> Graph:
    """A copy that skips quantize and dequantize of computed tensors; weights stay as they are.

    A rounding to integers from 0 up also stands for Relu, which quantisers leave out before it.
    """
    result = graph.copy()
    for node in list(result.nodes()):
        real = node.outputs[0] if node.outputs else None
        pair = rounding_of(real) if real is not None else None
        if real is None or pair is None or not real.uses:
            continue
        exact = pair[0].inputs[0]
        assert exact is not None
        name, limits = real.name or pair[0].outputs[0].name, limits_of(real)
        if limits is not None and limits[0] == 0 and not _is_relu(exact.producer):
            before, exact = exact, relu(exact)
            exact.name = before.name or name
            before.name = f"{before.name}_before_relu" if before.producer else before.name
        elif exact.producer is not None:
            exact.name = name or exact.name
        result.replace(real, exact)
    return result


def _is_relu(node: Node | None) -> bool:
    return node is not None and node.op in ("relu", "clip", "sigmoid", "softmax")


def limits_of(v: Value) -> tuple[float, float] | None:
    """The real values that the integers of a rounded tensor reach; None if it is not rounded."""
    pair = rounding_of(v)
    real = v.producer
    if pair is None and real is not None and real.op == "dequantize_linear":
        given = real.inputs[0]  # an input that takes integers
        plain = given is not None and given.data is None and given.producer is None
        pair = (real, real) if plain else None
    if pair is None:
        return None
    scale, zero = (pair[0].inputs[i] if len(pair[0].inputs) > i else None for i in (1, 2))
    if scale is None or scale.data is None or (zero is not None and zero.data is None):
        return None
    stored = pair[1].inputs[0]
    assert stored is not None
    low, high = dtypes.limits(stored.dtype)
    shift = 0 if zero is None or zero.data is None else zero.data.astype("f8")
    s = scale.data.astype("f8")
    return float(((low - shift) * s).min()), float(((high - shift) * s).max())
