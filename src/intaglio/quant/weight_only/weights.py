"""Integer weights alone, and products that quantise their left side as it comes: without data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

import intaglio
from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.ops import (
    add,
    cast,
    dequantize_linear,
    dynamic_gru,
    dynamic_lstm,
    dynamic_matmul,
    gather,
    matmul,
    maximum,
    reshape,
)
from intaglio.ops.dynamic_matmul import MAX_DEPTH
from intaglio.quant.ranges.affine import CLIPS
from intaglio.quant.samples.synthetic_text import not_padding
from intaglio.quant.weights.rounding import fit_groups
from intaglio.quant.weights.second_moments import grams

TYPES = ("i8", "u8", "i4", "u4")
GROUPS = (16, 1024)  # along k; below, scales outweigh what they save
ROWS = 16  # times as many rows as inputs, to fit weights and scales to
SEEN = 8  # samples on which layers are compared
_AT_ONCE = 1 << 20  # weights


def quantize_matrix(
    w: Array, dtype: str = "i8", group: int = 0, symmetric: bool = True, gram: Array | None = None
) -> tuple[Array, Array, Array | None]:
    """A matrix [k, n] as integers with the scales (and zeros) that lose the least.

    There is one scale per column, or, with a `group`, one for every `group` rows of it. Of the
    shares of the range in `CLIPS`, each takes the one with the smallest mean square error. With
    `gram` [k, k], the mean of x xᵀ over the rows x that meet the matrix, integers are those with
    which the product errs least.
    """
    if dtype not in TYPES:
        raise BadInput(f"weights of type '{dtype}'; known are {', '.join(TYPES)}")
    if group and not GROUPS[0] <= group <= GROUPS[1]:
        raise BadInput(f"a group of {group} weights; {GROUPS[0]} to {GROUPS[1]}, or 0 for columns")
    k, n = w.shape
    deep = min(group, k) if group else k
    blocks = -(-k // deep)
    room = np.zeros((blocks * deep, n), np.float32)
    room[:k] = w
    if not np.isfinite(room).all():
        raise BadInput("weights that are not finite cannot be quantised")
    tall = room.reshape(blocks, deep, n)
    q, scale = np.empty(tall.shape, np.int16), np.empty((blocks, n), np.float32)
    zero = np.zeros((blocks, n), np.int16)
    step = max(1, _AT_ONCE // (deep * blocks))
    power = np.zeros(blocks * deep, np.float32)  # of the rows that an error meets
    power[:k] = 1 if gram is None else np.diagonal(gram)
    weigh = power.reshape(blocks, deep, 1)
    for c in range(0, n, step):
        at = slice(c, c + step)
        q[..., at], scale[:, at], zero[:, at] = _best(tall[..., at], weigh, dtype, symmetric)
    stored = dtypes.numpy_of(dtype)
    flat = q.reshape(blocks * deep, n)[:k]
    if gram is not None:
        fitted, found = fit_groups(
            w.T.astype(np.float64), scale.T, zero.T, *dtypes.limits(dtype), gram, deep
        )
        flat, scale = fitted.T, np.ascontiguousarray(found.T.astype(np.float32))
    flat = np.ascontiguousarray(flat).astype(np.int16).astype(stored)
    if not group:
        scale, zero = scale[0], zero[0]
    plain = symmetric and dtypes.TABLE[dtype].kind == "i"
    return flat, scale, None if plain else zero.astype(stored)


def _best(w: Array, power: Array, dtype: str, symmetric: bool) -> tuple[Array, Array, Array]:
    """Integers, scales and zeros of blocks [blocks, deep, n], each clipped where that helps.

    Errors count by the `power` [blocks, deep, 1] of what they meet.
    """
    low, high = dtypes.limits(dtype)
    if symmetric:
        middle = 0 if dtypes.TABLE[dtype].kind == "i" else (high + 1) // 2
        reach = np.abs(w).max(axis=1)
        bottom, top, steps = -reach, reach, 2 * (high - middle)
    else:
        middle, steps = 0, high - low
        bottom, top = np.minimum(w.min(axis=1), 0), np.maximum(w.max(axis=1), 0)
    best = scale = zero = None
    for share in CLIPS[dtypes.TABLE[dtype].bits]:
        s = (top - bottom) * share / np.float32(steps)
        s = np.where(s > 0, s, np.float32(1))
        z = np.full(s.shape, middle) if symmetric else np.rint(low - bottom * share / s)
        z = np.clip(z, low, high)
        back = np.clip(np.rint(w / s[:, None]) + z[:, None], low, high) - z[:, None]
        error = (np.square(back * s[:, None] - w) * power).sum(axis=1, dtype=np.float64)
        if best is None or scale is None or zero is None:
            best, scale, zero = error, s, z
            continue
        less = error < best
        best, scale, zero = (
            np.minimum(error, best),
            np.where(less, s, scale),
            np.where(less, z, zero),
        )
    assert scale is not None
    assert zero is not None
    q = np.clip(np.rint(w / scale[:, None]) + zero[:, None], low, high)
    return q.astype(np.int16), scale.astype(np.float32), zero.astype(np.int16)


# ---- graphs --------------------------------------------------------------------------------------
def weight_only(
    graph: Graph,
    dtype: str = "i8",
    group: int = 0,
    symmetric: bool = True,
    keep: Collection[str] = (),
    samples: Sequence[Mapping[str, Array]] = (),
    wide: float = 0.0,
) -> Graph:
    """The graph with the matrices of its products as integers; it still computes in f32.

    `group` rows of a column share a scale (0: whole columns). Tables that are looked up become i8
    with a scale per row. `keep` names layers, by origin or output, that stay as they are. With
    `samples` of the inputs, by name, weights are rounded so that the products err least: 4 bits
    gain most. Up to a share `wide` of all weights become i8 per column instead, those of the layers
    that the outputs miss most, for their size, on these samples.
    """
    if wide and not len(samples):
        raise BadInput("which layers need more bits is measured: give samples")
    if wide:
        worst = _worst(graph, dtype, group, symmetric, keep, samples, wide)
        graph = weight_only(graph, dtype, group, symmetric, {*keep, *worst}, samples)
        return weight_only(graph, keep=keep)
    made = graph.copy()
    _quantize_tables(made, keep)
    todo = [n for n in made.nodes() if not _kept(n, keep) and _matrix(n) is not None]
    places = not_padding(graph, samples)
    while todo:  # those that read one tensor together, by what it is once all before are rounded
        nodes = [n for n in todo if n.inputs[0] is todo[0].inputs[0]]
        todo = [n for n in todo if n not in nodes]
        seen = [n for n in nodes if _seen(n, len(samples))]
        found = grams(made, seen[:1], samples, places=places, rows=ROWS)
        moments = {n: gram[0] for n, gram in found}
        for node in nodes:
            gram = moments.get(seen[0]) if node in seen else None
            _replace(made, node, dtype, group, symmetric, gram)
    return made


def _replace(
    made: Graph, node: Node, dtype: str, group: int, symmetric: bool, gram: Array | None
) -> None:
    """A product with integer weights in the place of `node`."""
    w = _matrix(node)
    assert w is not None
    q, scale, zero = quantize_matrix(w, dtype, group, symmetric, gram)
    real = dequantize_linear(
        constant(q),
        constant(scale),
        None if zero is None else constant(zero),
        axis=0 if group else 1,
        block_size=min(group, w.shape[0]),
    )
    y: Value = matmul(node.inputs[0], real, origin=node.origin)
    c = _addend(node)
    made.replace(node.outputs[0], y if c is None else add(y, c, origin=node.origin))


def _seen(node: Node, samples: int) -> bool:
    """Whether a product sees twice as many rows as it has inputs: fewer would mislead."""
    x = node.inputs[0]
    assert x is not None
    return samples * x.type.size >= 2 * x.shape[-1] ** 2


def _worst(
    graph: Graph,
    dtype: str,
    group: int,
    symmetric: bool,
    keep: Collection[str],
    samples: Sequence[Mapping[str, Array]],
    share: float,
) -> list[str]:
    """The layers that hurt the outputs most per weight, up to a share of all weights."""
    sizes = {
        n.origin or n.outputs[0].name: w.size
        for n in graph.nodes()
        if not _kept(n, keep) and (w := _matrix(n)) is not None
    }
    some = samples[:: max(1, len(samples) // SEEN)]

    def outputs(g: Graph) -> list[Array]:
        with intaglio.open(intaglio.compile(g)) as session:
            return [y for s in some for y in session.run(dict(s)).values()]

    want = outputs(graph)
    hurt = {}
    for name, size in sizes.items():
        others = {*keep, *(n for n in sizes if n != name), *_tables(graph)}
        got = outputs(weight_only(graph, dtype, group, symmetric, others))
        hurt[name] = (
            sum(
                float(np.square(g.astype(np.float64) - w).sum() / max(np.square(w).sum(), 1e-30))
                for g, w in zip(got, want, strict=True)
                if dtypes.is_float(dtypes.name_of(w.dtype))
            )
            / size
        )
    room, found = share * sum(sizes.values()), []
    for name in sorted(hurt, key=lambda n: (-hurt[n], n)):
        if sizes[name] <= room:
            room -= sizes[name]
            found.append(name)
    return found


def _tables(graph: Graph) -> list[str]:
    return [n.origin or n.outputs[0].name for n in graph.nodes() if _table(n) is not None]


def dynamic(graph: Graph, keep: Collection[str] = (), attention: str = "bf16") -> Graph:
    """The graph with products of bytes: weights i8 per column, rows quantised as they come.

    LSTMs and GRUs with the usual activations compute so too, their states row by row; tables that
    are looked up become i8. Attention rounds queries, keys and values to the type that it is given,
    f32 or bf16, whose products are faster. `keep` is that of `weight_only`.
    """
    made = round_attention(graph, attention, keep)
    for node in list(made.nodes()):
        if not _kept(node, keep) and has_bytes_form(node):
            for old, new in zip(node.outputs, in_bytes(node), strict=True):
                made.replace(old, new)
            continue
        w = None if _kept(node, keep) else _matrix(node)
        if w is None or w.shape[0] > MAX_DEPTH:
            continue
        q, scale, _ = quantize_matrix(w)
        n, c = q.shape[1], _addend(node)
        bias = reshape(c, shape=(n,)) if c is not None and c.type.size == n == c.shape[-1] else None
        y: Value = dynamic_matmul(
            node.inputs[0], constant(q), constant(scale), bias, origin=node.origin
        )
        if c is not None and bias is None:
            y = add(y, c, origin=node.origin)
        made.replace(node.outputs[0], y)
    _quantize_tables(made, keep)
    return made


def round_attention(graph: Graph, dtype: str = "bf16", keep: Collection[str] = ()) -> Graph:
    """The graph with queries, keys and values of every attention rounded to bf16 (or f32: not)."""
    if dtype not in ("f32", "bf16"):
        raise BadInput(f"attention in '{dtype}'; f32 or bf16 is needed")
    made = graph.copy()
    for node in list(made.nodes()):
        if node.op != "attention" or dtype == "f32" or _kept(node, keep):
            continue
        q, k, v, mask = node.inputs
        if node.outputs[0].dtype != "f32":
            continue
        small = [cast(x, dtype=dtype) for x in (q, k, v)]
        if mask is not None and mask.dtype != "bool":
            # The lowest f32, a usual mask, would become -inf.
            mask = cast(maximum(mask, constant(-1e30, dtype="f32")), dtype=dtype)
        y = ops.attention(*small, mask, origin=node.origin, **node.attrs)
        made.replace(node.outputs[0], cast(y, dtype="f32"))
    return made


def _quantize_tables(graph: Graph, keep: Collection[str]) -> None:
    for node in list(graph.nodes()):
        table = None if _kept(node, keep) else _table(node)
        if table is None:
            continue
        q, scale, _ = quantize_matrix(np.ascontiguousarray(table.T))
        real = dequantize_linear(constant(np.ascontiguousarray(q.T)), constant(scale), axis=0)
        made = gather(real, node.inputs[1], axis=0, origin=node.origin)
        graph.replace(node.outputs[0], made)


USUAL = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh")}


def has_bytes_form(node: Node) -> bool:
    """An LSTM or GRU that has a form with weights of bytes."""
    if node.op not in USUAL:
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
        or a["activations"] != USUAL[node.op] * count
        or any(v.data is None or v.dtype != "f32" for v in constants)
        or max(v.shape[-1] for v in constants[:2]) > MAX_DEPTH
    )


def in_bytes(node: Node) -> list[Value]:
    """The same layer with weights of bytes, a scale per row of each direction."""
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
    made: list[Value] = build(x, *quantized, b, *states, origin=node.origin, **shape)
    return made


def _kept(node: Node, keep: Collection[str]) -> bool:
    return any(name in keep for name in (node.origin, node.outputs[0].name) if name)


def _matrix(node: Node) -> Array | None:
    """The constant matrix [k, n] of a product."""
    if node.op not in ("matmul", "gemm"):
        return None
    w, x, a = node.inputs[1], node.inputs[0], node.attrs
    if w is None or x is None or w.data is None or w.dtype != "f32" or w.type.rank != 2:
        return None
    if x.data is not None or not w.type.size:
        return None
    if node.op == "gemm" and (a["trans_a"] or a["alpha"] != 1 or a["beta"] != 1):
        return None
    return w.data.T if node.op == "gemm" and a["trans_b"] else w.data


def _addend(node: Node) -> Value | None:
    return node.inputs[2] if node.op == "gemm" else None


def _table(node: Node) -> Array | None:
    """A constant matrix whose rows are looked up."""
    if node.op != "gather" or node.attrs["axis"] != 0:
        return None
    w, at = node.inputs[0], node.inputs[1]
    if w is None or at is None or w.data is None or at.data is not None or w.dtype != "f32":
        return None
    return w.data if w.type.rank == 2 and w.type.size else None
