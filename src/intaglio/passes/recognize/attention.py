"""Recognise attention: softmax(scale * q @ k^T + mask) @ v, in its many spellings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.rewrite import No, P, no, rule

x, y = P["x y"]
Shape = tuple[int, ...]
MASKED_BELOW = -1e4  # an addend this low makes the softmax weight zero
MAX_DEPTH = 32  # nodes to look through between the two matmuls
REPLACED_BELOW = -1e8  # an addend this low hides the score itself


@dataclass
class Mask:
    """A mask on scores of the shape `met`; `build` makes it once everything else matches."""

    of: Value
    met: Shape
    build: Callable[[], Value]


@dataclass
class Scores:
    """The softmax operand: softcap * tanh(scale * product / softcap), with masks in between."""

    product: Node
    scale: float
    softcap: float = 0.0
    masks: list[Mask] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)


@rule(P.matmul(x, y))
def attention(x: Value, y: Value, node: Node) -> Any:
    """Replace softmax(scale * q @ k^T + mask) @ v by one op that does not store the scores."""
    logits = _before_softmax(x)
    found = None if logits is None else _scores(logits, 1.0)
    if found is None or isinstance(found, No):
        return found
    (q, by_q), (k, by_k) = (_unscaled(v) for v in found.product.inputs if v is not None)
    if any(v.type.dynamic or v.type.rank < 2 for v in (q, k, y)):
        return no("an operand is a vector or has dynamic axes")
    if k.data is not None or y.data is not None:
        return no("keys or values are constant: matmuls with packed weights are faster")
    lead = _lead([node.outputs[0].shape, *found.shapes, found.product.outputs[0].shape])
    if not all(_are_heads(v.shape[:-2], lead) for v in (q, k, y)):
        return no(f"operands {q.type}, {k.type}, {y.type} are not heads of one batch {lead}")
    for m in found.masks:
        if _mask_shape(m.of.shape, m.met, lead) is None:
            return no(f"the mask {m.of.type} does not broadcast to the scores of {lead}")
    kinds = {v.dtype for v in (q, k, y, *(m.of for m in found.masks)) if v.dtype != "bool"}
    if len(kinds) > 1:
        return no(f"operands and masks have the element types {', '.join(sorted(kinds))}")
    k, by_inner = _unscaled(_swapped(k))
    k, v = _ungrouped(_heads(k, lead), _heads(y, lead))
    mask = reduce(_both, (_built(m, lead) for m in found.masks)) if found.masks else None
    scale = found.scale * by_q * by_k * by_inner
    result = ops.attention(_heads(q, lead), k, v, mask, scale=scale, softcap=found.softcap)
    return _reshaped(result, node.outputs[0].shape)


# ---- from the softmax weights up to q @ k^T ------------------------------------------------------
def _before_softmax(v: Value, deep: int = MAX_DEPTH) -> Value | None:
    """The operand of the softmax that makes the weights `v`."""
    node = v.producer
    if node is None or len(v.uses) > 1 or not deep:
        return None
    if node.op == "where":  # torch: rows that are NaN become 0
        zero, w, nan = node.inputs
        assert w is not None
        assert nan is not None
        test = nan.producer
        if not _is_number(zero, 0) or test is None or test.op != "is_nan" or len(nan.uses) > 1:
            return None
        if test.inputs[0] is not w or set(w.uses) != {test, node} or w.producer is None:
            return None
        node, v = w.producer, w
    if node.op == "cast" or (node.op == "reshape" and _keeps_matrices(node)):
        inner = node.inputs[0]
        if inner is None or not dtypes.is_float(inner.dtype):
            return None
        return _before_softmax(inner, deep - 1)
    last = node.op == "softmax" and node.attrs["axis"] % v.type.rank == v.type.rank - 1
    return node.inputs[0] if last else None


def _scores(v: Value, factor: float, deep: int = MAX_DEPTH) -> Scores | No | None:
    """Walk up from `factor` * v to the matmul of queries and keys."""
    node = v.producer
    if node is None or len(v.uses) > 1 or not factor or not deep:
        return None
    if node.op == "matmul":
        return Scores(node, factor)
    a = node.inputs[0]
    if a is None or not dtypes.is_float(a.dtype):
        return None
    if (scaled := _scalar(node)) is not None:
        return _scores(scaled[0], factor * scaled[1], deep - 1)
    if node.op == "cast" or (node.op == "reshape" and _keeps_matrices(node)):
        found = _scores(a, factor, deep - 1)
        if isinstance(found, Scores):
            found.shapes.append(a.shape)
        return found
    if node.op == "tanh":
        found = _scores(a, 1.0, deep - 1)
        if isinstance(found, Scores):
            if found.masks or found.softcap or factor < 0:
                return no("the scores are masked or soft-capped before the tanh")
            found.scale, found.softcap = found.scale * factor, factor
        return found
    if node.op in ("add", "sub"):
        b = node.inputs[1]
        assert b is not None
        for scores, m in ((a, b), (b, a))[: 1 if node.op == "sub" else 2]:
            found = _scores(scores, factor, deep - 1) if scores.shape == v.shape else None
            if isinstance(found, Scores):
                by = -factor if node.op == "sub" else factor
                found.masks.append(Mask(m, v.shape, partial(_summand, m, by)))
            if found is not None:
                return found
    return _chosen(node, v, factor, deep) if node.op == "where" else None


def _scalar(node: Node) -> tuple[Value, float] | None:
    """(x, c) if a node computes x times the scalar c."""
    if node.op not in ("mul", "div"):
        return None
    a, c = node.inputs
    assert a is not None
    assert c is not None
    if node.op == "mul" and c.data is None:
        a, c = c, a
    if c.data is None or c.type.size != 1 or a.shape != node.outputs[0].shape:
        return None
    number = float(c.data.item())
    if node.op == "div":
        number = 1 / number if number else math.inf
    return (a, number) if math.isfinite(number) and number else None


def _chosen(node: Node, v: Value, factor: float, deep: int) -> Scores | No | None:
    """A `where` that keeps scores or replaces them by one very low number."""
    a, b, cond = node.inputs
    assert a is not None
    assert b is not None
    assert cond is not None
    kept, low, open_ = (a, b, True) if b.data is not None else (b, a, False)
    if low.data is None or low.type.size == 0 or kept.shape != v.shape:
        return None
    found = _scores(kept, factor, deep - 1)
    if not isinstance(found, Scores):
        return found
    number = float(low.data.max())
    if number > MASKED_BELOW or factor < 0:
        return no(f"masked scores become {number:g}, which is too high for a weight of 0")
    some_open = cond.data is not None and bool(np.all((cond.data == open_).any(-1)))
    if number != -math.inf and not some_open and (number > REPLACED_BELOW or low.type.size > 1):
        return no(f"a fully masked row would not be uniform: {number:g} is not low enough")

    def build() -> Value:
        seen: Value = cond if open_ else ops.logical_not(cond)
        if number == -math.inf or some_open:
            return seen
        nothing, closed = (np.array(n, low.data.dtype) for n in (0, number * factor))  # type: ignore[union-attr]
        result: Value = ops.where(constant(nothing), constant(closed), seen)
        return result

    found.masks.append(Mask(cond, v.shape, build))
    return found


# ---- masks ---------------------------------------------------------------------------------------
def _summand(m: Value, factor: float) -> Value:
    """The tensor `m`, added to the scores times `factor`, as a mask; bool if that is equivalent."""
    if m.data is not None:
        return _constant_mask(m.data * m.data.dtype.type(factor))
    node = m.producer
    if node is not None and node.op == "where" and factor > 0:
        a, b, cond = node.inputs
        if _is_number(a, 0) and _is_number(b, -math.inf) and cond is not None:
            return cond
    if factor == 1:
        return m
    result: Value = ops.mul(m, constant(np.array(factor, dtypes.numpy_of(m.dtype))))
    return result


def _constant_mask(data: Array) -> Value:
    """A constant additive mask without the axes along which it repeats."""
    for axis in range(data.ndim - 2):
        if data.shape[axis] > 1 and np.array_equal(
            data, np.broadcast_to(data.take([0], axis), data.shape), equal_nan=True
        ):
            data = data.take([0], axis)
    closed = data <= MASKED_BELOW
    if np.all(closed | (data == 0)) and data.ndim and not np.any(closed.all(-1)):
        data = ~closed
    return constant(np.ascontiguousarray(data))


def _both(a: Value, b: Value) -> Value:
    """The combination of two masks."""
    result: Value
    if a.dtype == b.dtype:
        result = ops.logical_and(a, b) if a.dtype == "bool" else ops.add(a, b)
        return result
    bits, summand = (a, b) if a.dtype == "bool" else (b, a)
    low = constant(np.array(-np.inf, dtypes.numpy_of(summand.dtype)))
    result = ops.where(summand, low, bits)
    return result


def _built(m: Mask, lead: Shape) -> Value:
    result = m.build()
    shape = _mask_shape(result.shape, m.met, lead)
    assert shape is not None
    return _reshaped(result, shape)


def _mask_shape(shape: Shape, met: Shape, lead: Shape) -> Shape | None:
    """The shape of a mask for scores [*lead, rows, columns], if it was made for scores `met`."""
    if met[:-2] == lead or len(shape) <= 2:
        return shape
    shape = (1,) * (len(met) - len(shape)) + shape
    batch, matrix = shape[:-2], shape[-2:]
    if all(n == 1 for n in batch):
        return (1, 1, *matrix)
    if batch == met[:-2]:
        return (*lead, *matrix)
    if met[-3] != lead[1]:
        return None
    if batch[:-1] == met[:-3]:
        return (lead[0], batch[-1], *matrix)
    return (1, batch[-1], *matrix) if all(n == 1 for n in batch[:-1]) else None


# ---- queries, keys and values --------------------------------------------------------------------
def _lead(shapes: list[Shape]) -> Shape:
    """Batch and heads: from a rank-4 shape, or from the leading axes."""
    pairs = [s[:-2] for s in shapes if len(s) == 4]
    if pairs:
        return pairs[0]
    longest = max((s[:-2] for s in shapes), key=len)
    return (math.prod(longest[:-1]), longest[-1]) if len(longest) > 1 else (math.prod(longest), 1)


def _are_heads(batch: Shape, lead: Shape) -> bool:
    return batch == (lead[0], 1) or math.prod(batch) == math.prod(lead)


def _heads(v: Value, lead: Shape) -> Value:
    """`v` as [batch, heads, length, size]; one head may serve all."""
    if v.shape[:-2] in (lead, (lead[0], 1)):
        return v
    turn = v.producer
    if v.type.rank == 3 and lead[1] == 1 and turn is not None and turn.op == "transpose":
        source, perm = turn.inputs[0], turn.attrs["perm"]
        assert source is not None
        at = perm[0] + 1  # insert the unit axis here, so that no reshape follows the transpose
        wide = _reshaped(source, (*source.shape[:at], 1, *source.shape[at:]))
        moved = [p + (p >= at) for p in perm]
        result: Value = ops.transpose(wide, perm=(moved[0], at, *moved[1:]))
        return result
    return _reshaped(v, (*lead, *v.shape[-2:]))


def _ungrouped(k: Value, v: Value) -> tuple[Value, Value]:
    """Keys and values before each head was repeated for a group of queries."""
    few = [_before_repeat(h) for h in (k, v)]
    if few[0] is None or few[1] is None or few[0].shape[1] != few[1].shape[1]:
        return k, v
    return few[0], few[1]


def _before_repeat(v: Value) -> Value | None:
    batch, heads, length, size = v.shape
    wide = _behind_reshapes(v)
    node = wide.producer
    source = node.inputs[0] if node is not None and node.inputs else None
    if node is None or source is None:
        return None
    if node.op == "gather" and wide.shape == v.shape and node.attrs["axis"] % 4 == 1:
        at, few = node.inputs[1], source.shape[1]
        if at is None or at.data is None or heads % few:
            return None
        each = np.repeat(np.arange(few), heads // few)
        return source if np.array_equal(at.data, each) else None
    if node.op not in ("expand", "tile") or wide.type.rank != 5 or source.type.rank != 5:
        return None
    few = wide.shape[1]
    fits = wide.shape == (batch, few, heads // max(few, 1), length, size)
    if not fits or source.shape != (batch, few, 1, length, size):
        return None
    return _reshaped(source, (batch, few, length, size))


def _unscaled(v: Value) -> tuple[Value, float]:
    """The value that `v` is a multiple of, and the factor."""
    factor = 1.0
    while v.producer is not None and (by := _scalar(v.producer)) is not None:
        v, factor = by[0], factor * by[1]
    return v, factor


def _swapped(v: Value) -> Value:
    """`v` with its last two axes swapped; cancels a transpose if there is one."""
    node, rank = v.producer, v.type.rank
    swap = (*range(rank - 2), rank - 1, rank - 2)
    result: Value
    if node is not None and node.op == "transpose" and node.inputs[0] is not None:
        perm = tuple(node.attrs["perm"][i] for i in swap)
        inner = node.inputs[0]
        if perm == tuple(range(rank)):
            return inner
        result = ops.transpose(inner, perm=perm)
        return result
    if node is not None and node.op == "reshape" and _keeps_matrices(node):
        assert node.inputs[0] is not None
        return _reshaped(_swapped(node.inputs[0]), (*v.shape[:-2], v.shape[-1], v.shape[-2]))
    result = ops.transpose(v, perm=swap)
    return result


# ---- reshapes and constants ----------------------------------------------------------------------
def _keeps_matrices(reshape: Node) -> bool:
    """Whether a reshape changes only the axes before the last two."""
    v = reshape.inputs[0]
    assert v is not None
    out = reshape.outputs[0]
    both = min(v.type.rank, out.type.rank) >= 2 and not v.type.dynamic
    return both and v.shape[-2:] == out.shape[-2:] and v.type.size > 0


def _behind_reshapes(v: Value) -> Value:
    while v.producer is not None and v.producer.op == "reshape" and not v.type.dynamic:
        inner = v.producer.inputs[0]
        assert inner is not None
        v = inner
    return v


def _reshaped(v: Value, shape: Shape) -> Value:
    if v.shape == shape:
        return v
    if v.data is not None:
        return constant(v.data.reshape(shape))
    v = _behind_reshapes(v)
    result: Value = v if v.shape == shape else ops.reshape(v, shape=shape)
    return result


def _is_number(v: Value | None, number: float) -> bool:
    return (
        v is not None and v.data is not None and v.type.size > 0 and bool(np.all(v.data == number))
    )


ATTENTION = [attention]
