"""f16 as storage, on every CPU: weights and what lies between products take half the bytes.

Numbers become f32 on their way to the registers, so arithmetic is that of f32, and sums and biases
are f32. With eleven bits, rounding needs no special care, but values end at 65504.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.ops import cast
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.half_precision import MOVING, in_16_bits

x, w, bias, residual, slope = P["x w! bias? residual? slope?"]
LARGEST = float(np.finfo(np.float16).max)


def _rounded(w: Value) -> Value | No:
    """Constant weights in f16."""
    data: Array | None = w.data
    assert data is not None
    if np.abs(data, where=~np.isnan(data), out=np.zeros_like(data)).max(initial=0.0) > LARGEST:
        return no("a weight is larger than f16 can hold")
    return constant(data.astype(np.float16))


@rule(P.op(("cpu.gemm", "cpu.conv", "cpu.conv_transpose"), x, w, bias, residual, slope))
def product_in_f16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a product of f32 with constant weights reads and makes f16; it sums up in f32"""
    if x.dtype != "f32":
        return None
    deep = x.shape[-1] // node.attrs.get("groups", 1)
    if deep % 2:
        return no(f"pairs of channels are counted, a group has {deep}")
    weights = _rounded(w)
    if isinstance(weights, No):
        return weights
    return in_16_bits(node, "f16", cast(x, dtype="f16"), weights, residual)


@rule(P.op("cpu.depthwise", x, w, bias, residual, slope))
def depthwise_in_f16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """a depthwise convolution reads and makes f16; its few weights stay f32"""
    if x.dtype != "f32":
        return None
    return in_16_bits(node, "f16", cast(x, dtype="f16"), w, residual)


@rule(P.op(("cpu.lstm_steps", "cpu.gru_steps"), x, P["r!"][0], *P["h? last?"]))
def steps_in_f16(node: Node, x: Value, r: Value, h: Value | None, last: Value | None) -> Any:
    """recurrent weights are f16; all else stays f32"""
    if r.dtype != "f32":
        return None
    weights = _rounded(r)
    if isinstance(weights, No):
        return weights
    return REGISTRY[node.op].node(x, weights, h, last, **node.attrs).outputs


@rule(P.op("gather", w, P["places"][0]))
def table_in_f16(node: Node, w: Value, places: Value) -> Any:
    """a table of which little is picked, as of word vectors, is f16"""
    if w.dtype != "f32" or w.type.size <= node.outputs[0].type.size:
        return None
    table = _rounded(w)
    if isinstance(table, No):
        return table
    return cast(REGISTRY[node.op](table, places, **node.attrs), dtype="f32")


F16: tuple[Rule, ...] = (product_in_f16, depthwise_in_f16, steps_in_f16, table_in_f16, *MOVING)
