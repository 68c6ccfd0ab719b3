"""Contrib attention ops of onnxruntime; all operand layouts become [batch, heads, length, size]."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.onnx.attention import additive, and_, join_heads, rotate, split_heads
from intaglio.frontends.onnx.contrib import DOMAIN
from intaglio.frontends.onnx.importer import OnnxNode, importer, scalar
from intaglio.ir import Value, constant


def _number(x: float, dtype: str) -> Value:
    return constant(np.array(x).astype(dtypes.numpy_of(dtype)))


def _padding(n: OnnxNode, mask: Value, rows: int, columns: int, batch: int) -> Value:
    """An integer padding mask (lengths, ends and starts, or 0 and 1) as a bool mask."""
    key = constant(np.arange(columns, dtype=np.int32))
    if mask.shape == (batch,):
        return ops.less(key, ops.reshape(mask, shape=(batch, 1, 1, 1)))
    if mask.shape == (2 * batch,):
        ends = ops.reshape(ops.part(mask, 0, batch, axis=0), shape=(batch, 1, 1, 1))
        starts = ops.reshape(ops.part(mask, batch, 2 * batch, axis=0), shape=(batch, 1, 1, 1))
        return ops.logical_and(ops.less(key, ends), ops.greater_equal(key, starts))
    seen = ops.greater(mask, _number(0, mask.dtype))
    if mask.type.rank == 2 and mask.shape == (batch, columns):
        return ops.reshape(seen, shape=(batch, 1, 1, columns))
    if mask.type.rank == 3:
        return ops.reshape(seen, shape=(batch, 1, *mask.shape[1:]))
    if mask.type.rank == 4:
        below = ops.part(seen, columns - rows, columns, axis=2)
        return ops.part(below, 0, columns, axis=3)
    n.unsupported(f"a padding mask of shape {mask.shape} is not supported")


def _attend(
    n: OnnxNode, q: Value, k: Value, v: Value, padding: Value | None, bias: Value | None
) -> Value:
    """Attention where padded keys get `mask_filter_value` and future keys -inf."""
    batch, _, rows, size = q.shape
    columns = k.shape[2]
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(size)
    if padding is not None:
        hidden = _number(n.attr("mask_filter_value", -10000.0), q.dtype)
        seen = _padding(n, padding, rows, columns, batch)
        penalty = ops.where(_number(0, q.dtype), hidden, seen)
        bias = penalty if bias is None else ops.add(bias, penalty)
    if n.attr("unidirectional", 0):
        causal = np.arange(columns) <= np.arange(rows)[:, np.newaxis] + columns - rows
        causal_bias = additive(constant(causal), q.dtype)
        bias = causal_bias if bias is None else ops.add(bias, causal_bias)
    return ops.attention(q, k, v, bias, scale=scale)


@importer("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(n: OnnxNode) -> list[Value | None]:
    heads = n.attr("num_heads")
    q, k, v = _query_key_value(n, heads)
    past_key, past_value = n.input(6), n.input(7)
    if n.input(8) is not None or n.input(9) is not None:
        n.unsupported("a shared cache (past_sequence_length, cache_indirection) is not supported")
    if past_key is not None and past_value is not None:
        k, v = ops.concat(past_key, k, axis=2), ops.concat(past_value, v, axis=2)
    y = _attend(n, q, k, v, n.input(4), n.input(5))
    return [join_heads(y), k, v]


def _query_key_value(n: OnnxNode, heads: int) -> tuple[Value, Value, Value]:
    """Query, key and value as [batch, heads, length, size], from separate or packed operands."""
    query, key, value, bias = n.required(0), n.input(1), n.input(2), n.input(3)
    if query.type.rank == 5:
        flat = [_unpack(query, i) for i in range(3)]
    elif key is not None and key.type.rank == 5:
        flat = [query, _unpack(key, 0), _unpack(key, 1)]
    elif key is not None and value is not None:
        flat = [query, key, value]
    else:
        n.unsupported("key and value are absent, which needs a packed query")
    if bias is not None:
        sizes = [x.shape[-1] if x.type.rank == 3 else x.shape[1] * x.shape[3] for x in flat]
        stops = np.cumsum(sizes).tolist()
        ends = zip(sizes, stops, strict=True)
        parts = [ops.part(bias, stop - size, stop, axis=0) for size, stop in ends]
        flat = [ops.add(x, b) if x.type.rank == 3 else x for x, b in zip(flat, parts, strict=True)]
    q, k, v = (split_heads(x, heads) if x.type.rank == 3 else x for x in flat)
    return q, k, v


def _unpack(x: Value, i: int) -> Value:
    """Tensor `i` of [batch, length, heads, tensors, size], as [batch, length, heads * size]."""
    b, length, heads, _, size = x.shape
    return ops.reshape(ops.part(x, i, i + 1, axis=3), shape=(b, length, heads * size))


@importer("Attention", domain=DOMAIN)
def attention(n: OnnxNode) -> list[Value | None]:
    """Self-attention with its input projection."""
    x, weights, bias, past = n.required(0), n.required(1), n.input(2), n.input(4)
    heads = n.attr("num_heads")
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        n.unsupported("do_rotary and past_present_share_buffer are not supported")
    y = ops.matmul(x, weights)
    y = y if bias is None else ops.add(y, bias)
    third = weights.shape[1] // 3
    sizes = n.attr("qkv_hidden_sizes", ()) or (third, third, third)
    stops = np.cumsum(sizes).tolist()
    q, k, v = (
        split_heads(ops.part(y, stop - size, stop, axis=2), heads)
        for size, stop in zip(sizes, stops, strict=True)
    )
    if past is not None:
        halves = [ops.part(past, i, i + 1, axis=0) for i in (0, 1)]
        before = [ops.reshape(half, shape=past.shape[1:]) for half in halves]
        k, v = ops.concat(before[0], k, axis=2), ops.concat(before[1], v, axis=2)
    present = None
    if n.wants(1):
        both = [ops.reshape(t, shape=(1, *t.shape)) for t in (k, v)]
        present = ops.concat(*both, axis=0)
    return [join_heads(_attend(n, q, k, v, n.input(3), n.input(5))), present]


@importer("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(n: OnnxNode) -> Value:
    x, positions, cos, sin = (n.required(i) for i in range(4))
    if n.attr("is_packed_batching", 0):
        n.unsupported("is_packed_batching is not supported")
    length = x.shape[1] if x.type.rank == 3 else x.shape[2]
    if positions.type.size == 1 and length != 1:
        positions = ops.add(
            ops.reshape(positions, shape=(1, 1)), constant(np.arange(length).reshape(1, length))
        )
    elif positions.type.rank == 1:
        positions = ops.reshape(positions, shape=(1, positions.shape[0]))
    cos, sin = ops.gather(cos, positions, axis=0), ops.gather(sin, positions, axis=0)
    heads = n.attr("num_heads", 0)
    if x.type.rank == 3 and not heads:
        heads = x.shape[2] // (2 * cos.shape[-1])
    return rotate(n, x, cos, sin, heads)


@importer("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(n: OnnxNode) -> list[Value | None]:
    """Causal attention with a cache; `seqlens_k` is the number of keys per sequence minus one."""
    heads, kv_heads = n.attr("num_heads"), n.attr("kv_num_heads")
    if n.attr("smooth_softmax", -1) > 0 or any(n.input(i) is not None for i in range(11, 16)):
        n.unsupported(
            "smooth softmax, head sinks, and scales or norms of keys and queries are not supported"
        )
    q, k, v = _grouped(n, heads, kv_heads)
    batch, _, rows, size = q.shape
    past_key, past_value, seqlens = n.input(3), n.input(4), n.required(5)
    past_length = past_key.shape[2] if past_key is not None else 0
    columns = _present_length(n, past_length, rows)
    counts = ops.reshape(ops.cast(seqlens, dtype="i64"), shape=(batch, 1, 1, 1))
    # position of the first new key: 0 in a prompt, else the number of cached keys
    begin = constant(np.zeros((1, 1, 1, 1), np.int64))
    if past_length:
        begin = ops.add(counts, constant(np.int64(1 - rows)))
    place = ops.add(begin, constant(np.arange(rows)[:, np.newaxis]))
    if n.attr("do_rotary", 0):
        given = n.input(9)
        positions = given if given is not None else ops.reshape(place, shape=(place.shape[0], rows))
        q, k = (_rotate(n, x, positions) for x in (q, k))
    if past_key is not None and past_value is not None and past_length:
        k = _joined(past_key, k, begin, columns)
        v = _joined(past_value, v, begin, columns)
    key = constant(np.arange(columns))
    seen: Value | None = None
    if n.attr("causal", 1):
        seen = ops.less_equal(key, place)
    window = n.attr("local_window_size", -1)
    if window >= 0:
        seen = and_(seen, ops.greater(key, ops.sub(place, constant(np.int64(window)))))
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(size)
    bias = n.input(10)
    if bias is not None and seen is not None:
        mask: Value | None = ops.add(bias, additive(seen, q.dtype))
    else:
        mask = seen if bias is None else bias
    y = ops.attention(q, k, v, mask, scale=scale, softcap=n.attr("softcap", 0.0))
    return [join_heads(y), k, v]


def _grouped(n: OnnxNode, heads: int, kv_heads: int) -> tuple[Value, Value, Value]:
    query, key, value = n.required(0), n.input(1), n.input(2)
    if key is None or value is None:  # packed query, key and value
        size = query.shape[2] // (heads + 2 * kv_heads)
        stops = [heads * size, (heads + kv_heads) * size, (heads + 2 * kv_heads) * size]
        key = ops.part(query, stops[0], stops[1], axis=2)
        value = ops.part(query, stops[1], stops[2], axis=2)
        query = ops.part(query, 0, stops[0], axis=2)
    return split_heads(query, heads), split_heads(key, kv_heads), split_heads(value, kv_heads)


def _present_length(n: OnnxNode, past_length: int, rows: int) -> int:
    """Length of the cache after this call; a preallocated cache keeps its length."""
    if n.is_const(6):
        return max(past_length, int(scalar(n.const(6))))
    declared = n.declared(1)
    return declared.shape[2] if declared is not None else past_length + rows


def _rotate(n: OnnxNode, x: Value, positions: Value) -> Value:
    cos, sin = (ops.gather(n.required(i), positions, axis=0) for i in (7, 8))
    shape = (positions.shape[0], 1, *cos.shape[1:])
    cos, sin = ops.reshape(cos, shape=shape), ops.reshape(sin, shape=shape)
    return ops.rotary_embedding(x, cos, sin, interleaved=bool(n.attr("rotary_interleaved", 0)))


def _joined(past: Value, new: Value, begin: Value, columns: int) -> Value:
    """The cache with the new entries written at each sequence's position."""
    batch, _, past_length, _ = past.shape
    if batch == 1 and columns == past_length + new.shape[2]:
        return ops.concat(past, new, axis=2)
    if columns > past_length:
        past = ops.pad(past, before=(0, 0, 0, 0), after=(0, 0, columns - past_length, 0))
    return ops.tensor_scatter(past, new, ops.reshape(begin, shape=(batch,)), axis=2)
