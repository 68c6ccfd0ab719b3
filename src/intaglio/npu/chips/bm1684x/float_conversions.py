"""Each op of floats that runs on the chip as layers of the chip, on feature maps in DDR.

Tokens are rows of a feature map and their features channels, as linear layers have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.chips.bm1684x import float_ops
from intaglio.npu.chips.bm1684x.float_elementwise import ELEMENTWISE, elementwise, with_constant
from intaglio.npu.chips.bm1684x.float_products import PRODUCTS
from intaglio.npu.chips.bm1684x.float_types import FloatTypes
from intaglio.npu.chips.bm1684x.views import as_map, on_tpu, root_of
from intaglio.npu.lowering.builder import Builder, Refused, integer, scale_of
from intaglio.npu.lowering.data_movement import (
    depth_to_space_map,
    gather_map,
    resize_map,
    shuffle_map,
    slice_map,
    space_to_depth_map,
)
from intaglio.npu.lowering.elementwise import ordered
from intaglio.npu.ops import concat, lut
from intaglio.npu.ops.relayout import cut, join, repeat
from intaglio.ops.quantized import BITS8

MOST_SCORES = 300_000  # of an image of attention: with their softmax they take 2.4 MB
TABLES = 3  # of bytes, whose sum has the precision of f32
LARGE = 1e30  # instead of infinity in masks: differences of two stay finite


def _moves(v: Value | None, types: FloatTypes, dtype: str) -> Value:
    """An operand that is moved: bytes as they are, floats in the type of the op."""
    assert v is not None
    if v.dtype in ("i8", "u8") and not v.type.dynamic:
        return v
    if v.dtype not in float_ops.FLOATS or v.type.dynamic:
        raise Refused(f"it moves {v.type}; bytes or floats of fixed extents are possible")
    return types.typed(v, dtype)


def _type_of(node: Node, types: FloatTypes) -> str:
    own = node.outputs[0].dtype
    return types.of(node) if own in float_ops.FLOATS else own


def _columns(v: Value) -> Value:
    """The last axis as channels, all others as rows."""
    rows, last = math.prod(v.shape[:-1]), v.shape[-1]
    return as_map(v, (rows, last), (1, 0), (1, last, rows, 1))


def _from_columns(made: Value, shape: tuple[int, ...]) -> Value:
    _, c, h, _ = made.shape
    turned = ops.transpose(ops.reshape(made, shape=(c, h)), perm=(1, 0))
    return ops.reshape(turned, shape=shape)  # type: ignore[no-any-return]


def _layer_norm(node: Node, types: FloatTypes) -> Value:
    given, gamma, beta = (*node.inputs, None, None)[:3]
    x = types.typed(given, "f32")
    size = x.shape[-1]
    if node.attrs["axis"] % x.type.rank != x.type.rank - 1:
        raise Refused(f"it normalises axes from {node.attrs['axis']} of {x.type}; the last is one")
    each = []
    for v, default in ((gamma, 1.0), (beta, 0.0)):
        if v is not None and v.data is None:
            raise Refused("its scale or bias is no constant")
        data = np.full(size, default) if v is None else v.data
        each.append(constant(np.broadcast_to(data, size).astype(np.float32)))  # type: ignore[arg-type]
    made = float_ops.layer_norm(_columns(x), *each, epsilon=float(node.attrs["epsilon"]))
    return _from_columns(made, x.shape)


def _attention(node: Node, types: FloatTypes) -> Value:
    q, k, v = (types.typed(given, "f32") for given in node.inputs[:3])
    mask = (*node.inputs, None)[3]
    if node.attrs["softcap"]:
        raise Refused("it has a soft cap of its scores; scores without a cap are possible")
    (b, h, t, d), s, e = q.shape, k.shape[2], v.shape[3]
    mask = None if mask is not None and _hides_nothing(mask) else mask
    n, heads = b * h, b * k.shape[1]
    parts = _query_parts(t, s)
    keys = as_map(k, (heads, s, d), (0, 2, 1), (heads, d, s, 1))
    values = as_map(v, (heads, s, e), (0, 1, 2), (heads, s, e, 1))
    if n * parts > heads:  # heads of queries that share one of keys; parts of queries
        keys, values = (repeat(x, count=n * parts // heads) for x in (keys, values))
    queries = as_map(q, (n, t, d), (0, 1, 2), (n * parts, t // parts, d, 1))
    scores = float_ops.float_matmul(keys, queries)
    scale, added = float(node.attrs["scale"]), []
    if mask is not None and _by_query(mask, t):
        if scale != 1:
            scores, scale = with_constant(scores, np.array(scale, np.float32), "mul"), 1.0
        each = _query_mask(mask, (b, h, t, s), parts)
        scores = float_ops.arithmetic(scores, each, kind="add")
    elif mask is not None:
        added = [_row_mask(mask, (b, h, t, s), parts)]
    weights = float_ops.softmax(scores, *added, scale=scale)
    made = float_ops.float_matmul(values, weights)
    return ops.reshape(made, shape=node.outputs[0].shape)  # type: ignore[no-any-return]


def _hides_nothing(mask: Value) -> bool:
    """Whether a mask is a constant that changes no score, such as that of the last token alone."""
    return mask.data is not None and bool(np.all(mask.data == (mask.dtype == "bool")))


def _query_parts(queries: int, keys: int) -> int:
    """The least number of equal parts of queries whose scores fit in local memory."""
    return next(
        p
        for p in range(1, queries + 1)
        if queries % p == 0 and (queries // p * keys <= MOST_SCORES or p == queries)
    )


def _by_query(mask: Value, queries: int) -> bool:
    """Whether a mask may differ from query to query, as a causal one does."""
    single = mask.data is not None and queries == 1
    return mask.type.rank >= 2 and (mask.shape[-2] != 1 or single)


def _query_mask(mask: Value, scores: tuple[int, int, int, int], parts: int) -> Value:
    """A mask of every query and key, as a feature map with the queries as channels."""
    b, h, t, s = scores
    shape = (1,) * (4 - mask.type.rank) + mask.shape
    split = (b * h * parts, t // parts, s, 1)
    fits = all(n in (1, most) for n, most in zip(shape[:2], (b, h), strict=True))
    if mask.type.rank > 4 or not fits or shape[2:] != (t, s):
        raise Refused(f"its mask is {mask.type}; {t}x{s} for all heads or each is possible")
    if mask.data is not None:
        data = mask.data if mask.dtype != "bool" else np.where(mask.data, 0, -LARGE)
        data = np.clip(data.astype(np.float32), -LARGE, LARGE).reshape(shape)
        whole = constant(np.broadcast_to(data, scores).reshape(split).copy())
        return as_map(whole, split, (0, 1, 2, 3), split)
    if mask.dtype != "f32" or shape[0] != b:
        raise Refused(f"its mask is {mask.type}, computed; f32 of each sample is possible")
    images = as_map(mask, shape, (0, 1, 2, 3), (shape[0] * shape[1], t, s, 1))
    if shape[1] != h:
        images = repeat(images, count=h)
    return images if parts == 1 else as_map(images, images.shape, (0, 1, 2, 3), split)


def _row_mask(mask: Value, scores: tuple[int, int, int, int], parts: int) -> Value:
    """A mask that is the same for all queries, as a feature map of one channel."""
    b, h, _, s = scores
    shape = (1,) * (4 - mask.type.rank) + mask.shape
    if mask.dtype != "f32" or mask.type.rank > 4 or shape[2] != 1 or on_tpu(mask):
        raise Refused(f"its mask is {mask.type}; f32 for all queries or each of them is possible")
    if shape[3] != s or shape[1] not in (1, h) or shape[0] != b:
        raise Refused(f"its mask is {mask.type}; one for all heads or each of them is possible")
    images = as_map(mask, shape, (0, 1, 2, 3), (shape[0] * shape[1], 1, s, 1))
    count = parts if shape[1] == h else h * parts
    if count == 1:
        return images
    known = (
        u.outputs[0] for u in images.uses if u.op == "npu.repeat" and u.attrs["count"] == count
    )
    return next(known, None) or repeat(images, count=count)


def _softmax(node: Node, types: FloatTypes) -> Value:
    x = types.typed(node.inputs[0], "f32")
    rank, axis = x.type.rank, node.attrs["axis"] % x.type.rank
    perm = (*(k for k in range(rank) if k != axis), axis)
    turned = tuple(x.shape[k] for k in perm)
    rows, last = math.prod(turned[:-1]), turned[-1]
    made = float_ops.softmax(as_map(x, x.shape, perm, (1, rows, last, 1)), scale=1.0)
    back = tuple(perm.index(k) for k in range(rank))
    return ops.transpose(ops.reshape(made, shape=turned), perm=back)  # type: ignore[no-any-return]


def _qlinear_softmax(node: Node, types: FloatTypes) -> Value:
    """Bytes to f32, softmax, and back; the table of exp tells the scale of the bytes."""
    x, table, y_scale, y_zero = node.inputs
    assert x is not None
    assert table is not None
    assert y_scale is not None
    if table.data is None or node.attrs["axis"] % x.type.rank != x.type.rank - 1:
        raise Refused(f"it is over axis {node.attrs['axis']} of {x.type}; the last one is possible")
    if x.dtype not in ("i8", "u8") or x.type.dynamic:
        raise Refused(f"it works on {x.type}; bytes of fixed extents are needed")
    rows, last = math.prod(x.shape[:-1]), x.shape[-1]
    given = as_map(x, (rows, last), (0, 1), (1, rows, last, 1))
    scale = _scale_of_table(table.data.astype(np.float64))
    made = float_ops.softmax(float_ops.dequantize(given, scale=1.0, x_zero=0), scale=scale)
    attrs: dict[str, Any] = {"scale": float(scale_of(y_scale)), "y_zero": integer(y_zero)}
    made = float_ops.quantize(made, dtype=node.outputs[0].dtype, **attrs)
    return ops.reshape(made, shape=x.shape)  # type: ignore[no-any-return]


def _scale_of_table(table: Array) -> float:
    """The scale s of a table of round(c * exp(-s * k)), from the entry that tells it best."""
    steps = np.arange(1, len(table))
    k = int(steps[np.argmax(table[1:] * steps)])
    if table[k] < 1:
        raise Refused("its table of exp is zero but for the first entry")
    return float(np.float32(np.log(table[0] / table[k]) / k))


def _line(entries: Array, base: int) -> tuple[float, float] | None:
    """Factor and start of a table that is a line but for the rounding of f32, such as of pixels."""
    k = np.arange(base, base + len(entries), dtype=np.float64)
    slope, start = np.polyfit(k, entries, 1)
    factor = float(np.float32(slope))
    start = float(np.float32(entries[0] - factor * k[0]))
    error = np.abs(factor * k + start - entries).max()
    return (factor, start) if error <= 2.0**-22 * np.abs(entries).max() else None


def _lookup(node: Node, types: FloatTypes) -> Value:
    """A table of floats as a sum of tables of bytes, each with the rest of the one before it."""
    x, table = node.inputs
    assert x is not None
    if x.dtype not in BITS8 or table is None or table.data is None or x.type.dynamic:
        raise Refused(f"it looks up {x.type}; bytes of fixed extents and a constant are possible")
    entries, base = ordered(table.data.astype(np.float64), x.dtype)
    if not np.isfinite(entries).all():
        raise Refused("its table has numbers that are not finite")

    if (line := _line(entries, base)) is not None:
        factor, start = line
        real = elementwise(x.shape, [x], lambda m: float_ops.dequantize(m, scale=factor, x_zero=0))
        return with_constant(real, np.array(start, np.float32), "add") if start else real

    def looked_up(m: Value) -> Value:
        made: Value | None = None
        rest = entries
        for _ in range(TABLES):
            scale = float(np.float32(np.abs(rest).max() / 127)) or 1.0
            bytes_ = np.clip(np.rint(rest / scale), -127, 127).astype(np.int8)
            one = types.make(lut, m, constant(bytes_), base=base)
            term = float_ops.dequantize(one, scale=scale, x_zero=0)
            made = term if made is None else float_ops.arithmetic(made, term, kind="add")
            rest = rest - bytes_.astype(np.float32) * np.float32(scale)
            if not rest.any():
                break
        assert made is not None
        return made

    return elementwise(x.shape, [x], looked_up)


def _concat(node: Node, types: FloatTypes) -> Value:
    out, dtype = node.outputs[0], _type_of(node, types)
    given = [_moves(v, types, dtype) for v in node.inputs]
    axis = node.attrs["axis"] % out.type.rank
    if out.type.rank == 4 and axis == 1 and all(not root_of(v)[1] for v in given):
        return types.make(concat, *(v for v in given if v.data is None or v.type.size))
    before, after = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
    parts = []
    for v in given:
        shape = before, v.shape[axis], after
        parts.append(as_map(v, shape, (0, 1, 2), (1, *shape)))
    return ops.reshape(join(*parts), shape=out.shape)  # type: ignore[no-any-return]


def _slice(node: Node, types: FloatTypes) -> Value:
    x = _moves(node.inputs[0], types, _type_of(node, types))
    a = node.attrs
    each = zip(x.shape, a["start"], a["stop"], a["step"], strict=True)
    ranges = [range(*slice(*part).indices(extent)) for extent, *part in each]
    axes = [k for k, r in enumerate(ranges) if r != range(x.shape[k])]
    if x.type.rank == 4 and not root_of(x)[1] and (axes == [1] or min(axes, default=0) > 1):
        with suppress(Refused):
            return slice_map(types.make, x, node)
    if any(ranges[k].step != 1 for k in axes):
        raise Refused("it skips elements")
    made: Value = x
    shape = list(x.shape)
    for k in axes:
        split = math.prod(shape[:k]), shape[k], math.prod(shape[k + 1 :])
        whole = as_map(made, split, (0, 1, 2), (1, *split))
        part = cut(whole, first=ranges[k].start, count=len(ranges[k]))
        shape[k] = len(ranges[k])
        made = ops.reshape(part, shape=tuple(shape))
    return made


def _moved(node: Node, types: FloatTypes) -> Value:
    """Ops that move pixels and channels of a feature map."""
    x = _moves(node.inputs[0], types, _type_of(node, types))
    if node.op == "gather":
        index = node.inputs[1]
        if index is None or index.data is None:
            raise Refused("its indices are no constant")
        return gather_map(types.make, x, index, node)
    return MOVES[node.op](types.make, x, node)


MOVES: dict[str, Callable[[Builder, Value, Node], Value]] = {
    "resize": resize_map,
    "depth_to_space": depth_to_space_map,
    "channel_shuffle": shuffle_map,
    "space_to_depth": space_to_depth_map,
}
CONVERSIONS: dict[str, Callable[[Node, FloatTypes], Value]] = {
    **ELEMENTWISE,
    **PRODUCTS,
    "layer_norm": _layer_norm,
    "attention": _attention,
    "softmax": _softmax,
    "qlinear_softmax": _qlinear_softmax,
    "concat": _concat,
    "slice": _slice,
    "lookup": _lookup,
    "resize": _moved,
    "depth_to_space": _moved,
    "channel_shuffle": _moved,
    "gather": _moved,
    "space_to_depth": _moved,
}
