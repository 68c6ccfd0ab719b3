"""Insert quantize and dequantize nodes (QDQ) around the layers that compute in integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.quant.placement.depthwise_scales import folded
from intaglio.quant.placement.place import PRODUCTS, Placement, activations, layer
from intaglio.quant.placement.scheme import TensorScheme


def insert(
    graph: Graph,
    placement: Placement,
    tensors: Mapping[str, TensorScheme],
    weights: Mapping[Node, tuple[Array, TensorScheme]],
) -> None:
    """Change `graph` in place. The output of `dequantize` takes over the tensor's name."""
    weights = dict(weights)
    schemes = {v: tensors[v.name] for v in placement.tensors}
    for v, between in placement.depthwise_inputs.items():
        if v in schemes and len(schemes[v].scale) > 1:
            schemes[v] = folded(v, between, schemes[v], weights)
    for node in placement.nodes:
        if node.op in PRODUCTS:
            integers, scheme = weights[node]
            w = node.inputs[1]
            assert w is not None
            result = _real(constant(integers, f"{w.name}_stored"), scheme)
            result.name = w.name
            graph.set_input(node, 1, result)
    for v, scheme in schemes.items():
        readers = list(v.uses)
        if v.producer not in placement.nodes:
            readers = [n for n in readers if n in placement.nodes and v in activations(n)]
        stored = _stored(v, scheme)
        result = _real(stored, scheme)
        if v in graph.inputs:
            result.name = f"{v.name}_dequantized"
        else:
            result.name, v.name = v.name, f"{v.name}_exact"
        stored.name = f"{result.name}_stored"
        for n in readers:
            Graph.replace_input(n, v, result)


def round_half_layers(placement: Placement) -> None:
    """Round inputs and weights of products in f16 or bf16 to that type, in place."""
    for node, dtype in placement.half_layers.items():
        x, w = node.inputs[:2]
        assert x is not None
        assert w is not None
        assert w.data is not None
        with np.errstate(over="ignore"):
            stored = w.data.astype(dtypes.numpy_of(dtype))
        if not np.isfinite(stored.astype(np.float32)).all():
            most = np.abs(w.data).max()
            raise BadInput(
                f"layer '{layer(node)}' is to compute in {dtype}: its weights "
                f"'{w.name}' reach {most:g}; use f32 for it"
            )
        for old, small in (
            (x, ops.cast(x, dtype=dtype)),
            (w, constant(stored, f"{w.name}_stored")),
        ):
            Graph.replace_input(node, old, ops.cast(small, dtype="f32"))


def _parameters(scheme: TensorScheme) -> tuple[Value, Value]:
    scale, zero = np.array(scheme.scale, np.float32), np.array(scheme.zero)
    if scheme.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    return constant(scale), constant(zero.astype(dtypes.numpy_of(scheme.dtype)))


def _grain(scheme: TensorScheme) -> dict[str, Any]:
    return {"axis": scheme.axis or 0, "block_size": scheme.block}


def _stored(v: Value, scheme: TensorScheme) -> Value:
    of = (v.producer.origin or v.name) if v.producer else ""  # reports name the layer
    result: Value = ops.quantize_linear(
        v, *_parameters(scheme), dtype=scheme.dtype, origin=of, **_grain(scheme)
    )
    return result


def _real(v: Value, scheme: TensorScheme) -> Value:
    result: Value = ops.dequantize_linear(v, *_parameters(scheme), **_grain(scheme))
    return result
