"""Scaled dot-product attention and rotary position embedding (RoPE)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes, symint
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops.cast import cast
from intaglio.ops.compare import equal, where
from intaglio.ops.elementwise import add, div, floats, mul, sub, tanh
from intaglio.ops.linear import matmul
from intaglio.ops.normalize import softmax
from intaglio.ops.precision import widen
from intaglio.ops.reduce import reduce_max
from intaglio.ops.registry import op
from intaglio.ops.shape import concat, part, reshape, transpose


def _attention(
    q: Value, k: Value, v: Value, mask: Value | None = None, *, scale: float, softcap: float
) -> Type:
    floats(q)
    shapes = f"query {q.shape}, key {k.shape}, value {v.shape}"
    if not q.type.rank == k.type.rank == v.type.rank == 4:
        raise BadInput(
            f"attention: {shapes}; query, key and value must be [batch, heads, length, size]"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise BadInput(
            f"attention: element types {q.dtype}, {k.dtype}, {v.dtype} differ; insert a cast"
        )
    fits = k.shape[:3] == v.shape[:3] and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3]
    if not fits or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise BadInput(
            f"attention: {shapes} do not fit; batches, sizes of query and key, heads and lengths "
            "of key and value must be equal, and the query's heads a multiple of the key's"
        )
    scores = (*q.shape[:3], k.shape[2])
    if mask is not None:
        if mask.dtype not in ("bool", q.dtype):
            raise BadInput(f"attention: the mask is {mask.dtype}; bool or {q.dtype} is needed")
        if symint.broadcast(mask.shape, scores) != scores:
            raise BadInput(f"attention: mask {mask.shape} does not broadcast to {scores}")
    return Type(q.dtype, (*q.shape[:3], v.shape[3]))


def _macs(node: Node) -> int:
    q, k, v = node.inputs[:3]
    assert q is not None
    assert k is not None
    assert v is not None
    return q.type.size // q.shape[3] * k.shape[2] * (q.shape[3] + v.shape[3])


@op(_attention, macs=_macs)
@widen
def attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: float, softcap: float = 0.0
) -> Array:
    """softmax(scale * q @ k^T + mask) @ v for every head; several heads of q may share one of k, v.

    A bool mask is True where a query attends to a key; a float mask is added to the scores.
    `softcap` c first maps the scores to c * tanh(scores / c). A fully masked row gives zeros.
    """
    group = q.shape[1] // k.shape[1]
    scores = np.matmul(q * q.dtype.type(scale), np.repeat(k, group, 1).swapaxes(2, 3))
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    empty: Array | bool = False
    if mask is not None:
        bias = np.where(mask, 0, -np.inf).astype(q.dtype) if mask.dtype == np.bool_ else mask
        scores = scores + bias
        empty = np.isneginf(bias.max(-1, keepdims=True, initial=-np.inf))
    weights = np.where(empty, q.dtype.type(0), softmax.body(scores, axis=-1))
    return np.matmul(weights, np.repeat(v, group, 1))


@dataclass(frozen=True, slots=True)
class Attended:
    """The stages of attention: scaled, soft-capped and masked scores, weights, result."""

    scores: Value
    capped: Value
    masked: Value
    weights: Value
    result: Value


def attend(
    q: Value, k: Value, v: Value, mask: Value | None = None, *, scale: float, softcap: float = 0.0
) -> Attended:
    """Attention built of matmul and softmax; the arguments are those of the op."""
    if q.dtype not in ("f32", "f64"):  # f32 has enough range and fast kernels
        wide_q, wide_k, wide_v = (cast(x, dtype="f32") for x in (q, k, v))
        if mask is not None and mask.dtype != "bool":
            mask = cast(mask, dtype="f32")
        made = attend(wide_q, wide_k, wide_v, mask, scale=scale, softcap=softcap)
        stages = (made.scores, made.capped, made.masked, made.weights, made.result)
        return Attended(*(cast(x, dtype=q.dtype) for x in stages))
    b, heads, rows, size = q.shape
    stacked = (
        b,
        k.shape[1],
        heads // k.shape[1] * rows,
    )  # query heads that share a key head use one matmul

    def number(value: float) -> Value:
        return constant(np.array(value).astype(dtypes.numpy_of(q.dtype)))

    grouped = reshape(mul(q, number(scale)), shape=(*stacked, size))
    scores = matmul(grouped, transpose(k, perm=(0, 1, 3, 2)))
    scores = capped = reshape(scores, shape=(b, heads, rows, k.shape[2]))
    if softcap:
        capped = mul(tanh(div(scores, number(softcap))), number(softcap))
    masked = capped
    if mask is not None:
        bias = where(number(0), number(-np.inf), mask) if mask.dtype == "bool" else mask
        masked = add(capped, bias)
    weights = softmax(masked, axis=3)
    y = matmul(reshape(weights, shape=(*stacked, k.shape[2])), v)
    y = reshape(y, shape=(b, heads, rows, v.shape[3]))
    if not _never_empty(mask):  # the softmax of a fully masked row is NaN
        empty = equal(reduce_max(bias, axes=(bias.type.rank - 1,)), number(-np.inf))
        weights, y = where(number(0), weights, empty), where(number(0), y, empty)
    return Attended(scores, capped, masked, weights, y)


def _never_empty(mask: Value | None) -> bool:
    """Whether the mask is known at compile time to leave every row at least one key."""
    if mask is None or mask.data is None:
        return mask is None
    open_ = mask.data if mask.dtype == "bool" else mask.data.astype(np.float32) > -np.inf
    return bool(np.all(open_.any(-1)))


@attention.lowers
def _(
    q: Value, k: Value, v: Value, mask: Value | None = None, *, scale: float, softcap: float = 0.0
) -> Value:
    return attend(q, k, v, mask, scale=scale, softcap=softcap).result


# ---- rotary embedding --------------------------------------------------------------------------
def _rotary(x: Value, cos: Value, sin: Value, *, interleaved: bool) -> Type:
    floats(x, x)
    width = 2 * cos.shape[-1]
    half = (*x.shape[:-1], cos.shape[-1])
    if cos.shape != sin.shape or not {cos.dtype, sin.dtype} == {x.dtype} or width > x.shape[-1]:
        raise BadInput(
            f"rotary embedding of {x.type} by cos {cos.type} and sin {sin.type}: types do not fit"
        )
    if symint.broadcast(cos.shape, half) != half:
        raise BadInput(f"rotary embedding: angles {cos.shape} do not broadcast to {half}")
    return floats(x)


@op(_rotary)
@widen
def rotary_embedding(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Rotate pairs of elements of the last axis by angles; elements beyond the angles are copied.

    A pair is element i of the first and of the second half, or two neighbours if `interleaved`.
    """
    n = cos.shape[-1]
    first = np.s_[..., 0 : 2 * n : 2] if interleaved else np.s_[..., :n]
    second = np.s_[..., 1 : 2 * n : 2] if interleaved else np.s_[..., n : 2 * n]
    y = x.copy()
    y[first] = cos * x[first] - sin * x[second]
    y[second] = sin * x[first] + cos * x[second]
    return y


@rotary_embedding.lowers
def _(x: Value, cos: Value, sin: Value, *, interleaved: bool = False) -> Value:
    n, size = cos.shape[-1], x.shape[-1]
    if interleaved:
        a, b = (part(x, i, 2 * n, axis=-1, step=2) for i in (0, 1))
    else:
        a, b = part(x, 0, n, axis=-1), part(x, n, 2 * n, axis=-1)
    real = sub(mul(cos, a), mul(sin, b))
    imaginary = add(mul(sin, a), mul(cos, b))
    if interleaved:
        pair = (*x.shape[:-1], n, 1)
        both = concat(reshape(real, shape=pair), reshape(imaginary, shape=pair), axis=x.type.rank)
        turned = [reshape(both, shape=(*x.shape[:-1], 2 * n))]
    else:
        turned = [real, imaginary]
    rest = [part(x, 2 * n, size, axis=-1)] if 2 * n < size else []
    return turned[0] if len(turned + rest) == 1 else concat(*turned, *rest, axis=-1)
