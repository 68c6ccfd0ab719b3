"""Importers of scaled_dot_product_attention, MultiheadAttention and TransformerEncoderLayer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import Unsupported
from intaglio.frontends.torch.importer import as_dtype, importer, reshaped
from intaglio.frontends.torch.linear import linear
from intaglio.ir import Value, constant


@importer("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """All axes before the last two are batches and heads."""
    if dropout_p:
        raise Unsupported(
            "attention with dropout is in training mode; call model.eval() before saving"
        )
    by = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    mask = attn_mask
    if is_causal:
        rows, columns = query.shape[-2], key.shape[-2]
        mask = constant(np.tril(np.ones((rows, columns), np.bool_)))
    if mask is not None and mask.dtype != "bool":
        mask = as_dtype(mask, query.dtype)
    rank = query.type.rank
    q, k, v = (_as_rank_4(x) for x in (query, key, value))
    if mask is not None and rank > 4:
        mask = _as_rank_4(ops.expand(mask, shape=(*query.shape[:-1], key.shape[-2])))
    if mask is not None and rank == 3 and mask.type.rank == 3:
        mask = reshaped(mask, (1, *mask.shape))
    y: Value = ops.attention(q, k, v, mask, scale=by)
    return reshaped(y, (*query.shape[:-1], value.shape[-1]))


def _as_rank_4(x: Value) -> Value:
    """x reshaped to [batch, heads, length, size]."""
    lead = x.shape[:-2]
    if len(lead) == 2:
        return x
    first = lead[0] if len(lead) > 1 else 1
    return reshaped(x, (first, math.prod(lead) // max(first, 1), *x.shape[-2:]))


@importer("_scaled_dot_product_flash_attention_for_cpu")
def flash(
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> Any:
    result = scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return result, None


@importer("_native_multi_head_attention")
def native_multi_head_attention(
    query: Value,
    key: Value,
    value: Value,
    embed_dim: int,
    num_head: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    mask: Value | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """The fast path of nn.MultiheadAttention in inference."""
    if mask is not None or need_weights:
        raise Unsupported(
            "masks and attention weights of nn.MultiheadAttention's fast path are "
            "not supported; export with torch.export instead"
        )
    size, heads = int(embed_dim), int(num_head)
    parts = []
    for i, x in enumerate((query, key, value)):
        w = ops.part(qkv_weight, i * size, (i + 1) * size, axis=0)
        b = ops.part(qkv_bias, i * size, (i + 1) * size, axis=0)
        y = reshaped(linear(x, w, b), (*x.shape[:2], heads, size // heads))
        parts.append(ops.transpose(y, perm=(0, 2, 1, 3)))
    y = ops.transpose(scaled_dot_product_attention(*parts), perm=(0, 2, 1, 3))
    y = reshaped(y, (*query.shape[:2], size))
    return linear(y, proj_weight, proj_bias), None


@importer("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Value,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    mask: Value | None = None,
    mask_type: int | None = None,
) -> Value:
    """The fast path of nn.TransformerEncoderLayer in inference."""

    def norm(x: Value, w: Value, b: Value) -> Value:
        result: Value = ops.layer_norm(x, w, b, axis=-1, epsilon=float(eps))
        return result

    def attend(x: Value) -> Value:
        result: Value = native_multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False
        )[0]
        return result

    def forward(x: Value) -> Value:
        inner = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(ops.gelu(inner) if use_gelu else ops.relu(inner), ffn_weight_2, ffn_bias_2)

    x = src
    if norm_first:
        x = ops.add(x, attend(norm(x, norm_weight_1, norm_bias_1)))
        result: Value = ops.add(x, forward(norm(x, norm_weight_2, norm_bias_2)))
        return result
    x = norm(ops.add(x, attend(x)), norm_weight_1, norm_bias_1)
    return norm(ops.add(x, forward(x)), norm_weight_2, norm_bias_2)
