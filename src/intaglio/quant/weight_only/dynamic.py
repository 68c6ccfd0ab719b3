"""Dynamic int8: weights are bytes, and activations are quantised row by row at run time."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Node, Value, constant
from intaglio.ops import add, cast, dynamic_gru, dynamic_lstm, dynamic_matmul, maximum, reshape
from intaglio.ops.dynamic_matmul import MAX_DEPTH
from intaglio.quant.weight_only.matrix import quantize_matrix
from intaglio.quant.weight_only.weights import addend, constant_matrix, is_kept, quantize_tables

# The activations of LSTMs and GRUs that have a dynamic int8 form, for each direction.
CELL_ACTIVATIONS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh")}


def dynamic(graph: Graph, keep: Collection[str] = (), attention: str = "bf16") -> Graph:
    """The graph in dynamic int8: i8 weights per column, rows of activations quantised at run time.

    LSTMs and GRUs with standard activations also compute in dynamic int8, their states row by row;
    embedding tables become i8. `attention` is the type of queries, keys and values: f32, or bf16,
    which is faster. `keep` is that of `weight_only`.
    """
    result = round_attention(graph, attention, keep)
    for node in list(result.nodes()):
        if not is_kept(node, keep) and has_dynamic_form(node):
            for old, new in zip(node.outputs, dynamic_cell(node), strict=True):
                result.replace(old, new)
            continue
        w = None if is_kept(node, keep) else constant_matrix(node)
        if w is None or w.shape[0] > MAX_DEPTH:
            continue
        q, scale, _ = quantize_matrix(w)
        n, c = q.shape[1], addend(node)
        bias = reshape(c, shape=(n,)) if c is not None and c.type.size == n == c.shape[-1] else None
        y: Value = dynamic_matmul(
            node.inputs[0], constant(q), constant(scale), bias, origin=node.origin
        )
        if c is not None and bias is None:
            y = add(y, c, origin=node.origin)
        result.replace(node.outputs[0], y)
    quantize_tables(result, keep)
    return result


def round_attention(graph: Graph, dtype: str = "bf16", keep: Collection[str] = ()) -> Graph:
    """The graph with queries, keys and values of every attention in `dtype`: bf16 or f32."""
    if dtype not in ("f32", "bf16"):
        raise BadInput(f"attention is '{dtype}'; give f32 or bf16")
    result = graph.copy()
    for node in list(result.nodes()):
        if node.op != "attention" or dtype == "f32" or is_kept(node, keep):
            continue
        q, k, v, mask = node.inputs
        if node.outputs[0].dtype != "f32":
            continue
        small = [cast(x, dtype=dtype) for x in (q, k, v)]
        if mask is not None and mask.dtype != "bool":
            # The lowest f32, a usual mask, would become -inf.
            mask = cast(maximum(mask, constant(-1e30, dtype="f32")), dtype=dtype)
        y = ops.attention(*small, mask, origin=node.origin, **node.attrs)
        result.replace(node.outputs[0], cast(y, dtype="f32"))
    return result


def has_dynamic_form(node: Node) -> bool:
    """Is it an LSTM or GRU that can compute in dynamic int8?"""
    if node.op not in CELL_ACTIVATIONS:
        return False
    a, ins = node.attrs, node.inputs
    count = 2 if a["direction"] == "bidirectional" else 1
    constants = [v for v in ins[1:4] if v is not None]
    odd = (
        ins[7] is not None or a["input_forget"]
        if node.op == "lstm"
        else not a["linear_before_reset"]
    )
    return not odd and not (
        ins[4] is not None
        or a["layout"]
        or a["clip"]
        or a["activations"] != CELL_ACTIVATIONS[node.op] * count
        or any(v.data is None or v.dtype != "f32" for v in constants)
        or max(v.shape[-1] for v in constants[:2]) > MAX_DEPTH
    )


def dynamic_cell(node: Node) -> list[Value]:
    """The outputs of the same LSTM or GRU in dynamic int8, one weight scale per row."""
    x, w, r, b, _, *states = node.inputs
    quantized = []
    for v in (w, r):
        assert v is not None
        assert v.data is not None
        pairs = [quantize_matrix(np.ascontiguousarray(one.T))[:2] for one in v.data]
        quantized += [
            constant(np.stack([np.ascontiguousarray(q.T) for q, _ in pairs])),
            constant(np.stack([s for _, s in pairs])),
        ]
    build = dynamic_lstm if node.op == "lstm" else dynamic_gru
    shape = {k: node.attrs[k] for k in ("hidden_size", "direction")}
    states = states[:2] if node.op == "lstm" else states[:1]
    results: list[Value] = build(x, *quantized, b, *states, origin=node.origin, **shape)
    return results
