"""f16 as a storage type on every CPU: weights and activations take half the bytes.

Kernels widen to f32 while loading, so arithmetic, sums and biases are f32. f16 has 11 significant
bits, so rounding needs no special care, but values are limited to 65504. With the instruction sets
neon-fp16 and rvv-fp16, up to 64 products are summed in f16 before the sum is widened.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.ops import cast
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.half_precision import CAST_RULES, in_16_bits

x, w, bias, residual, slope = P["x w! bias? residual? slope?"]
MAX_F16 = float(np.finfo(np.float16).max)


def _rounded(w: Value) -> Value | No:
    """Constant weights in f16; a refusal if one exceeds its range."""
    data: Array | None = w.data
    assert data is not None
    if np.abs(data, where=~np.isnan(data), out=np.zeros_like(data)).max(initial=0.0) > MAX_F16:
        return no("a weight exceeds the range of f16")
    return constant(data.astype(np.float16))


@rule(P.op(("cpu.gemm", "cpu.conv", "cpu.conv_transpose"), x, w, bias, residual, slope))
def product_in_f16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """Let a gemm or convolution with constant weights read and make f16, with f32 sums."""
    if x.dtype != "f32":
        return None
    deep = x.shape[-1] // node.attrs.get("groups", 1)
    if deep % 2:
        return no(f"an even number of channels per group is needed; there are {deep}")
    weights = _rounded(w)
    if isinstance(weights, No):
        return weights
    return in_16_bits(node, "f16", cast(x, dtype="f16"), weights, residual)


@rule(P.op("cpu.depthwise", x, w, bias, residual, slope))
def depthwise_in_f16(x: Value, w: Value, residual: Value | None, node: Node) -> Any:
    """Let a depthwise convolution read and make f16; its weights stay f32."""
    if x.dtype != "f32":
        return None
    return in_16_bits(node, "f16", cast(x, dtype="f16"), w, residual)


@rule(P.op(("cpu.lstm_steps", "cpu.gru_steps"), x, P["r!"][0], *P["h? last?"]))
def recurrent_weights_in_f16(
    node: Node, x: Value, r: Value, h: Value | None, last: Value | None
) -> Any:
    """Store recurrent weights in f16."""
    if r.dtype != "f32":
        return None
    weights = _rounded(r)
    if isinstance(weights, No):
        return weights
    return REGISTRY[node.op].node(x, weights, h, last, **node.attrs).outputs


@rule(P.op("gather", w, P["places"][0]))
def embedding_in_f16(node: Node, w: Value, places: Value) -> Any:
    """Store a gathered table, such as word embeddings, in f16."""
    if w.dtype != "f32" or w.type.size <= node.outputs[0].type.size:
        return None
    table = _rounded(w)
    if isinstance(table, No):
        return table
    return cast(REGISTRY[node.op](table, places, **node.attrs), dtype="f32")


F16: tuple[Rule, ...] = (
    product_in_f16,
    depthwise_in_f16,
    recurrent_weights_in_f16,
    embedding_in_f16,
    *CAST_RULES,
)
