"""Cases: attention, gated linear units and rotary embeddings in the spellings of exporters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.passes.cases.build import case, f32, num, scalar

from intaglio import ops
from intaglio.ir import Type, Value, constant
from intaglio.targets.cpu.attention import attention_bf16

HEADS = f32(2, 4, 5, 8)
QKV = (HEADS, HEADS, HEADS)
LOWEST = float(np.finfo(np.float32).min)
CAUSAL = np.tri(5, dtype=bool)
SCALE = math.sqrt(8)


def swap(x: Value) -> Value:
    rank = x.type.rank
    made: Value = ops.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))
    return made


def weighted(scores: Value, v: Value) -> Value:
    made: Value = ops.matmul(ops.softmax(scores, axis=-1), v)
    return made


def scores(q: Value, k: Value) -> Value:
    made: Value = ops.div(ops.matmul(q, swap(k)), scalar(SCALE))
    return made


def sdpa(q: Value, k: Value, v: Value, mask: Any = None) -> Value:
    """As torch decomposes it: the root of the scale on either side."""
    root = scalar(8**-0.25)
    s = ops.matmul(ops.mul(q, root), ops.mul(swap(k), root))
    w = ops.softmax(s if mask is None else ops.add(s, mask), axis=-1)
    made: Value = ops.matmul(ops.where(scalar(0), w, ops.is_nan(w)), v)
    return made


def repeated(x: Value, times: int) -> Value:
    b, heads, length, size = x.shape
    wide = ops.reshape(x, shape=(b, heads, 1, length, size))
    wide = ops.expand(wide, shape=(b, heads, times, length, size))
    made: Value = ops.reshape(wide, shape=(b, heads * times, length, size))
    return made


def flat_bmm(q: Value, k: Value, v: Value, mask: Value) -> Value:
    """nn.MultiheadAttention: [length, batch * heads, size], heads in front for the products."""
    q, k, v = (ops.transpose(x, perm=(1, 0, 2)) for x in (q, k, v))
    s = ops.add(ops.matmul(ops.mul(q, scalar(0.5)), swap(k)), mask)
    made: Value = ops.transpose(weighted(s, v), perm=(1, 0, 2))
    return made


def windowed(q: Value, k: Value, v: Value) -> Value:
    """Swin: one more axis for the windows while the mask is added."""
    s = ops.add(scores(q, k), num(1, 4, 5, 5))
    s = ops.reshape(
        ops.add(ops.reshape(s, shape=(1, 2, 4, 5, 5)), num(1, 2, 1, 5, 5)), shape=(2, 4, 5, 5)
    )
    return weighted(s, v)


def folded_keys(q: Value, k: Value, v: Value) -> Value:
    """The newer torch exporter: keys are swapped with batch and heads folded into one axis."""
    turned = swap(ops.reshape(k, shape=(8, 5, 8)))
    s = ops.matmul(q, ops.mul(ops.reshape(turned, shape=(2, 4, 8, 5)), scalar(0.3)))
    return weighted(s, v)


def capped(q: Value, k: Value, v: Value) -> Value:
    s = ops.mul(ops.tanh(ops.div(scores(q, k), scalar(2))), scalar(2))
    return weighted(ops.where(s, scalar(-math.inf), constant(CAUSAL)), v)


def below(x: Value) -> Value:
    made: Value = ops.less(x, scalar(1))
    return made


SEEN = constant(CAUSAL)
FLOAT = constant(np.where(CAUSAL, 0, LOWEST).astype(np.float32))
MASK = f32(2, 1, 1, 5)
GROUPED = (HEADS, f32(2, 2, 5, 8), f32(2, 2, 5, 6))

case("attention", lambda q, k, v: weighted(scores(q, k), v), *QKV)
case("attention", lambda q, k, v, m: weighted(ops.add(m, scores(q, k)), v), *QKV, MASK)
case("attention", lambda q, k, v: weighted(ops.add(scores(q, k), FLOAT), v), *QKV)
case("attention", lambda q, k, v: weighted(ops.where(scores(q, k), scalar(LOWEST), SEEN), v), *QKV)
case(
    "attention",
    lambda q, k, v, m: weighted(ops.where(scores(q, k), scalar(-1e9), below(m)), v),
    *QKV,
    MASK,
)
case(
    "attention",
    lambda q, k, v, m: weighted(ops.where(scalar(LOWEST), scores(q, k), below(m)), v),
    *QKV,
    MASK,
)
case(
    "attention",
    lambda q, k, v, m: weighted(ops.mul(ops.sub(ops.matmul(q, swap(k)), m), scalar(0.4)), v),
    *QKV,
    MASK,
)
case(
    "attention",
    lambda q, k, v, m: weighted(ops.where(ops.add(scores(q, k), m), scalar(LOWEST), SEEN), v),
    *QKV,
    MASK,
)
case("attention", sdpa, *QKV)
case(
    "attention",
    lambda q, k, v, m: sdpa(q, k, v, ops.where(scalar(0), scalar(-math.inf), below(m))),
    *QKV,
    f32(2, 1, 5, 5),
)
case("attention", lambda q, k, v: weighted(scores(q, repeated(k, 2)), repeated(v, 2)), *GROUPED)
case(
    "attention", lambda q, k, v: weighted(scores(q, k), v), HEADS, f32(2, 1, 7, 8), f32(2, 1, 7, 3)
)
case(
    "attention",
    lambda q, k, v: weighted(
        scores(q, ops.gather(k, constant(np.array([0, 0, 1, 1])), axis=1)),
        ops.gather(v, constant(np.array([0, 0, 1, 1])), axis=1),
    ),
    *GROUPED,
)
case("attention", flat_bmm, f32(5, 6, 8), f32(7, 6, 8), f32(7, 6, 4), f32(6, 1, 7))
case("attention", windowed, *QKV)
case("attention", folded_keys, *QKV)
case("attention", capped, *QKV)
case("attention", lambda q, k, v: weighted(scores(q, k), v), f32(5, 8), f32(6, 8), f32(6, 8))


def packed(x: Value) -> Value:
    """Queries, keys and values of one product, as vision transformers have them."""
    five = ops.transpose(ops.reshape(x, shape=(2, 5, 3, 4, 8)), perm=(2, 0, 3, 1, 4))
    three = [ops.reshape(ops.part(five, i, i + 1, axis=0), shape=(2, 4, 5, 8)) for i in range(3)]
    y = ops.attention(*three, None, scale=0.3)
    made: Value = ops.reshape(ops.transpose(y, perm=(0, 2, 1, 3)), shape=(2, 5, 32))
    return made


def keys_last(q: Value, k: Value, v: Value) -> Value:
    made: Value = ops.attention(q, swap(k), v, SEEN, scale=0.3, softcap=2.0)
    return made


F16 = Type("f16", (2, 4, 5, 8))
case("attention_in_f32", lambda q: ops.attention(q, q, q, SEEN, scale=0.3), F16)
case(
    "attention_in_f32", lambda q, m: ops.attention(q, q, q, m, scale=0.3), F16, Type("f16", (5, 5))
)
case("attention_in_place", packed, f32(2, 5, 96))
case("attention_in_place", lambda q, k, v: ops.attention(q, k, v, None, scale=0.3), *GROUPED)
case("attention_in_place", keys_last, HEADS, f32(2, 4, 8, 5), HEADS)
case(
    "attention_in_place",
    lambda q, k: ops.attention(
        q, ops.expand(k, shape=(2, 4, 6, 8)), repeated(k, 4), None, scale=0.3
    ),
    HEADS,
    f32(2, 1, 6, 8),
)


# ---- gates and rotary embedding ------------------------------------------------------------------
def halves(x: Value, axis: int = -1) -> list[Value]:
    n = x.shape[axis]
    return [ops.part(x, 0, n // 2, axis=axis), ops.part(x, n // 2, n, axis=axis)]


def gated(x: Value, act: Any, axis: int = -1, first: bool = False) -> Value:
    a, b = halves(x, axis)
    made: Value = ops.mul(act(a), b) if first else ops.mul(a, act(b))
    return made


def turned(x: Value, cos: Value, sin: Value) -> Value:
    """As in Llama: x * cos + rotate_half(x) * sin."""
    a, b = halves(x)
    made: Value = ops.add(ops.mul(x, cos), ops.mul(ops.concat(ops.neg(b), a, axis=-1), sin))
    return made


def angles(t: Value, wave: Any) -> Value:
    twice = ops.concat(t, t, axis=-1)
    made: Value = ops.reshape(wave(twice), shape=(2, 1, 5, 8))
    return made


def parts(a: Value, b: Value, cos: Value, sin: Value) -> list[Value]:
    return [ops.sub(ops.mul(a, cos), ops.mul(b, sin)), ops.add(ops.mul(b, cos), ops.mul(a, sin))]


def neighbours(x: Value, cos: Value, sin: Value) -> Value:
    """As in GPT-J and Llama's own code: pairs of neighbours as complex numbers."""
    pairs = ops.reshape(x, shape=(2, 4, 5, 4, 2))
    a, b = (ops.reshape(ops.part(pairs, i, i + 1, axis=4), shape=(2, 4, 5, 4)) for i in (0, 1))
    both = [ops.reshape(v, shape=(2, 4, 5, 4, 1)) for v in parts(a, b, cos, sin)]
    made: Value = ops.reshape(ops.concat(*both, axis=-1), shape=(2, 4, 5, 8))
    return made


TABLE = np.tile(np.random.default_rng(1).uniform(-1, 1, (9, 4)).astype(np.float32), 2)
PLACES = constant(np.arange(5))
case("glu", lambda x: gated(x, ops.sigmoid), f32(2, 6))
case("glu", lambda x: gated(x, ops.swish, first=True), f32(2, 6))
case("glu", lambda x: gated(x, lambda v: ops.gelu(v, approximate="tanh"), 1), f32(2, 6, 3))
case(
    "rotary_of_rotate_half",
    lambda x, t: turned(x, angles(t, ops.cos), angles(t, ops.sin)),
    HEADS,
    f32(2, 5, 4),
)
case(
    "rotary_of_rotate_half",
    lambda x: turned(x, constant(TABLE[:5]), ops.gather(constant(TABLE), PLACES, axis=0)),
    HEADS,
)
case(
    "rotary_of_halves",
    lambda x, c, s: ops.concat(*parts(*halves(x), c, s), axis=-1),
    HEADS,
    f32(5, 4),
    f32(5, 4),
)
case("rotary_of_interleaved", neighbours, HEADS, f32(5, 4), f32(5, 4))
case(
    "partial_rotary",
    lambda x, c, s: ops.concat(
        ops.rotary_embedding(ops.part(x, 0, 6, axis=3), c, s), ops.part(x, 6, 8, axis=3), axis=3
    ),
    HEADS,
    f32(5, 3),
    f32(5, 3),
)
case(
    "rotary_before_transpose",
    lambda x, c, s: ops.rotary_embedding(ops.transpose(x, perm=(0, 2, 1, 3)), c, s),
    f32(2, 5, 4, 8),
    f32(2, 1, 5, 4),
    f32(2, 1, 5, 4),
)


def rounded(q: Value, k: Value, v: Value, mask: Value | None = None) -> Value:
    """Attention with bf16 in the place of f32."""
    small = [ops.cast(x, dtype="bf16") for x in (q, k, v)]
    given = None if mask is None else ops.cast(mask, dtype="bf16")
    made: Value = ops.attention(*small, given, scale=1 / SCALE)
    return made


def unrounded(q: Value, k: Value, v: Value) -> Value:
    views = {"q_view": (0, 160, 40, 8), "k_view": (0, 160, 40, 8), "v_view": (0, 160, 40, 8)}
    made = attention_bf16(
        q,
        k,
        v,
        batch=2,
        heads=4,
        kv_heads=4,
        rows=5,
        keys=5,
        size=8,
        value_size=8,
        scale=1 / SCALE,
        **views,
    )
    back: Value = ops.cast(
        ops.cast(ops.transpose(made, perm=(0, 2, 1, 3)), dtype="bf16"), dtype="f32"
    )
    return back


case("attention_stays_f32", unrounded, *QKV)
case("attention_with_bf16_products", rounded, *QKV)
case("attention_with_bf16_products", rounded, *QKV, f32(1, 1, 5, 5))
