"""ONNX Attention and RotaryEmbedding. Cache, masks and head layouts become separate ops."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.normalize import as_dtype
from intaglio.frontends.onnx.shape import END
from intaglio.ir import Value, constant
from intaglio.ops.shape import count_up, part
from intaglio.symint import is_symbolic


def split_heads(x: Value, heads: int) -> Value:
    """[batch, length, heads * size] to [batch, heads, length, size]."""
    b, length, width = x.shape
    return ops.transpose(
        ops.reshape(x, shape=(b, length, heads, width // heads)), perm=(0, 2, 1, 3)
    )


def join_heads(x: Value) -> Value:
    """[batch, heads, length, size] to [batch, length, heads * size]."""
    b, heads, length, size = x.shape
    return ops.reshape(ops.transpose(x, perm=(0, 2, 1, 3)), shape=(b, length, heads * size))


def and_(a: Value | None, b: Value | None) -> Value | None:
    """The conjunction of two bool masks, either of which may be None."""
    return a if b is None else b if a is None else ops.logical_and(a, b)


@importer("Attention")
def attention(n: OnnxNode) -> list[Value | None]:
    q, k, v, mask = n.required(0), n.required(1), n.required(2), n.input(3)
    flat = q.type.rank == 3
    if flat:
        heads, kv_heads = n.attr("q_num_heads"), n.attr("kv_num_heads")
        if not heads or not kv_heads:
            n.unsupported(
                "3-D operands are given without q_num_heads and kv_num_heads, which they need"
            )
        q, k, v = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    past = 0
    past_key, past_value = n.input(4), n.input(5)
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = ops.concat(past_key, k, axis=2), ops.concat(past_value, v, axis=2)
    allowed = _visible(n, q.shape[2], k.shape[2], past)
    scale = n.attr("scale") or 1 / math.sqrt(q.shape[3])
    whole = _combine(n, mask, allowed, q, k.shape[2])
    softcap = n.attr("softcap", 0.0)
    value = as_dtype(v, q.dtype)
    if n.wants(3):
        stages = ops.attend(q, k, value, whole, scale=scale, softcap=softcap)
        y = stages.result
        modes = (stages.scores, stages.capped, stages.masked, stages.weights)
        seen = modes[n.attr("qk_matmul_output_mode", 0)]
    else:
        y, seen = ops.attention(q, k, value, whole, scale=scale, softcap=softcap), None
    return [join_heads(y) if flat else y, k, v, seen]


def _visible(n: OnnxNode, rows: int, columns: int, past: int) -> Value | None:
    """A bool mask of causality, window and padding; None if every query sees every key."""
    lengths = n.input(6)
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    right = 0 if n.attr("is_causal", 0) else right
    if is_symbolic((rows, columns, past)):
        return _visible_at_run_time(n, rows, columns, past, (left, right))
    query, key = np.arange(rows)[:, np.newaxis], np.arange(columns)
    if lengths is None:
        seen = np.ones((rows, columns), bool)
        if right >= 0:
            seen &= key <= query + past + right
        if left >= 0:
            seen &= key >= query + past - left
        return None if seen.all() else constant(seen)
    ends = ops.reshape(lengths, shape=(lengths.shape[0], 1, 1, 1))
    place = ops.add(ops.sub(ends, constant(np.int64(rows))), constant(query))
    visible = ops.less(constant(key), ends)
    if right >= 0:
        limit = ops.add(place, constant(np.int64(right)))
        visible = and_(visible, ops.less_equal(constant(key), limit))
    if left >= 0:
        limit = ops.sub(place, constant(np.int64(left)))
        visible = and_(visible, ops.greater_equal(constant(key), limit))
    return visible


def _visible_at_run_time(
    n: OnnxNode, rows: int, columns: int, past: int, window: tuple[int, int]
) -> Value | None:
    """`_visible` for extents that are known only at run time."""
    lengths, (left, right) = n.input(6), window
    if lengths is not None:
        n.unsupported("lengths of keys need extents that are known")
    if left < 0 and right < 0:
        return None
    query = ops.reshape(count_up(rows), shape=(rows, 1))
    if is_symbolic(past) or past:  # the first query follows the past keys
        query = ops.reshape(part(count_up(past + rows), past, END, axis=0), shape=(rows, 1))
    key, visible = count_up(columns), None
    if right >= 0:
        visible = ops.less_equal(key, ops.add(query, constant(np.int64(right))))
    if left >= 0:
        seen = ops.greater_equal(key, ops.sub(query, constant(np.int64(left))))
        visible = seen if visible is None else and_(visible, seen)
    return visible


def _combine(
    n: OnnxNode, mask: Value | None, allowed: Value | None, q: Value, columns: int
) -> Value | None:
    """The model's mask combined with `_visible`; keys beyond the end of a short mask are hidden."""
    if mask is None:
        return allowed
    if mask.shape[-1] < columns:
        missing = np.zeros((*mask.shape[:-1], columns - mask.shape[-1]))
        if mask.dtype != "bool":
            missing = missing - np.inf
        rest = constant(missing.astype(dtypes.numpy_of(mask.dtype)))
        mask = ops.concat(mask, rest, axis=-1)
    if mask.dtype == "bool":
        return and_(mask, allowed)
    mask = as_dtype(mask, q.dtype)
    return mask if allowed is None else ops.add(mask, additive(allowed, q.dtype))


def additive(mask: Value, dtype: str) -> Value:
    """A bool mask as a float mask: 0 where true, -inf where false."""
    zero, hidden = (constant(np.array(x).astype(dtypes.numpy_of(dtype))) for x in (0, -np.inf))
    return ops.where(zero, hidden, mask)


@importer("RotaryEmbedding")
def rotary_embedding(n: OnnxNode) -> Value:
    x, cos, sin, positions = n.required(0), n.required(1), n.required(2), n.input(3)
    if positions is not None:
        cos, sin = ops.gather(cos, positions, axis=0), ops.gather(sin, positions, axis=0)
    return rotate(n, x, cos, sin, n.attr("num_heads", 0))


def rotate(n: OnnxNode, x: Value, cos: Value, sin: Value, heads: int) -> Value:
    """Rotary embedding of [batch, heads, length, size] or [batch, length, heads * size]."""
    if x.type.rank == 3 and not heads:
        n.unsupported("3-D operands are given without num_heads, which they need")
    angles = cos.shape[-1]
    wanted = n.attr("rotary_embedding_dim", 0)
    if wanted and wanted != 2 * angles:
        n.unsupported(f"rotary_embedding_dim is {wanted}, the caches hold {angles} angles")
    b, length = cos.shape[:2]
    middle = (b, 1, length, angles) if x.type.rank == 4 else (b, length, 1, angles)
    cos, sin = (ops.reshape(as_dtype(c, x.dtype), shape=middle) for c in (cos, sin))
    inner = x
    if x.type.rank == 3:
        inner = ops.reshape(x, shape=(*x.shape[:2], heads, x.shape[2] // heads))
    y = ops.rotary_embedding(inner, cos, sin, interleaved=bool(n.attr("interleaved", 0)))
    return ops.reshape(y, shape=x.shape) if x.type.rank == 3 else y
