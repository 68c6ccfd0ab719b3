"""Each f32 op that runs on the chip as layers of the chip, on feature maps in DDR.

Tokens are rows of a feature map and their features channels, as linear layers have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.chips.bm1684x import float_ops
from intaglio.npu.chips.bm1684x.views import Step, as_map, on_tpu, rank4, root_of
from intaglio.npu.lowering.builder import Refused, integer, scale_of
from intaglio.npu.ops.relayout import cut, join, repeat

MOST_SCORES = 300_000  # of an image of attention: with their softmax they take 2.4 MB


def _floats(*values: Value | None) -> None:
    for v in values:
        if v is not None and (v.dtype != "f32" or v.type.dynamic):
            raise Refused(f"it works on {v.type}; f32 of fixed extents is needed")


def _fixed(v: Value) -> None:
    if v.dtype not in ("f32", "i8", "u8") or v.type.dynamic:
        raise Refused(f"it moves {v.type}; bytes or f32 of fixed extents are possible")


def _columns(v: Value) -> Value:
    """The last axis as channels, all others as rows."""
    rows, last = math.prod(v.shape[:-1]), v.shape[-1]
    return as_map(v, (rows, last), (1, 0), (1, last, rows, 1))


def _from_columns(made: Value, shape: tuple[int, ...]) -> Value:
    _, c, h, _ = made.shape
    turned = ops.transpose(ops.reshape(made, shape=(c, h)), perm=(1, 0))
    return ops.reshape(turned, shape=shape)  # type: ignore[no-any-return]


def _layer_norm(node: Node) -> Value:
    x, gamma, beta = (*node.inputs, None, None)[:3]
    assert x is not None
    _floats(x)
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


def _attention(node: Node) -> Value:
    q, k, v, mask = (*node.inputs, None)[:4]
    assert q is not None
    assert k is not None
    assert v is not None
    _floats(q, k, v)
    if node.attrs["softcap"] or q.shape[1] != k.shape[1]:
        raise Refused("it has a soft cap or shared heads; equal heads without a cap are possible")
    (b, h, t, d), s, e = q.shape, k.shape[2], v.shape[3]
    n = b * h
    parts = _query_parts(t, s)
    keys = as_map(k, (n, s, d), (0, 2, 1), (n, d, s, 1))
    values = as_map(v, (n, s, e), (0, 1, 2), (n, s, e, 1))
    if parts > 1:  # of queries, each an image of its own
        keys, values = (repeat(x, count=parts) for x in (keys, values))
    queries = as_map(q, (n, t, d), (0, 1, 2), (n * parts, t // parts, d, 1))
    scores = float_ops.float_matmul(keys, queries)
    added = [] if mask is None else [_row_mask(mask, (b, h, t, s), parts)]
    weights = float_ops.softmax(scores, *added, scale=float(node.attrs["scale"]))
    made = float_ops.float_matmul(values, weights)
    return ops.reshape(made, shape=node.outputs[0].shape)  # type: ignore[no-any-return]


def _query_parts(queries: int, keys: int) -> int:
    """The least number of equal parts of queries whose scores fit in local memory."""
    return next(
        p
        for p in range(1, queries + 1)
        if queries % p == 0 and (queries // p * keys <= MOST_SCORES or p == queries)
    )


def _row_mask(mask: Value, scores: tuple[int, int, int, int], parts: int) -> Value:
    """A mask that is the same for all queries, as a feature map of one channel."""
    b, h, _, s = scores
    shape = (1,) * (4 - mask.type.rank) + mask.shape
    if mask.dtype != "f32" or mask.type.rank > 4 or shape[2] != 1 or on_tpu(mask):
        raise Refused(f"its mask is {mask.type}; f32 that is equal for all queries is possible")
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


def _softmax(node: Node) -> Value:
    x: Any = node.inputs[0]
    _floats(x)
    if node.attrs["axis"] % x.type.rank != x.type.rank - 1:
        raise Refused(f"it is over axis {node.attrs['axis']} of {x.type}; the last one is possible")
    rows, last = math.prod(x.shape[:-1]), x.shape[-1]
    made = float_ops.softmax(as_map(x, (rows, last), (0, 1), (1, rows, last, 1)), scale=1.0)
    return ops.reshape(made, shape=x.shape)  # type: ignore[no-any-return]


def _qlinear_softmax(node: Node) -> Value:
    """Bytes to f32, softmax, and back; the table of exp tells the scale of the bytes."""
    x, table, y_scale, y_zero = node.inputs
    assert x is not None
    assert table is not None
    assert y_scale is not None
    if table.data is None or node.attrs["axis"] % x.type.rank != x.type.rank - 1:
        raise Refused(f"it is over axis {node.attrs['axis']} of {x.type}; the last one is possible")
    _fixed(x)
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


def _matmul(node: Node) -> Value:
    a, b = node.inputs
    assert a is not None
    assert b is not None
    _floats(a, b)
    batch = math.prod(a.shape[:-2])
    if b.data is not None and b.type.rank == 2:
        rows, (k, c) = math.prod(a.shape[:-1]), b.shape
        made = float_ops.float_matmul(
            as_map(a, (rows, k), (1, 0), (1, k, rows, 1)), as_map(b, (k, c), (1, 0), (1, c, k, 1))
        )
        return _from_columns(made, node.outputs[0].shape)
    if a.type.rank < 2 or a.shape[:-2] != b.shape[:-2]:
        raise Refused(f"{a.type} times {b.type} broadcasts matrices")
    (m, k), c = a.shape[-2:], b.shape[-1]
    made = float_ops.float_matmul(
        as_map(b, (batch, k, c), (0, 1, 2), (batch, k, c, 1)),
        as_map(a, (batch, m, k), (0, 1, 2), (batch, m, k, 1)),
    )
    return ops.reshape(made, shape=node.outputs[0].shape)  # type: ignore[no-any-return]


def _elementwise(node: Node, operands: list[Value], make: Callable[..., Value]) -> Value:
    """A layer that works element by element, in the layout of its first operand on the chip."""
    shape = node.outputs[0].shape
    lead = next(v for v in operands if on_tpu(v) and v.shape == shape)
    root, steps = root_of(lead)
    if any(v.shape != shape for v in operands):
        raise Refused("its operands have different shapes")
    axes = _inverse(root.shape, steps)
    if axes is None:
        out = rank4(lead.shape)
        flat = (math.prod(shape),)
        maps = [as_map(v, flat, (0,), out) for v in operands]
        return ops.reshape(make(*maps), shape=shape)  # type: ignore[no-any-return]
    maps = [root if v is lead else as_map(v, *axes, root.shape) for v in operands]
    made = make(*maps)
    for kind, given in steps:
        made = (
            ops.reshape(made, shape=given) if kind == "reshape" else ops.transpose(made, perm=given)
        )
    return made


def _inverse(
    shape: tuple[int, ...], steps: list[Step]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and order of axes that undo steps of at most one transpose; None: there are more."""
    turns = [k for k, (kind, _) in enumerate(steps) if kind == "transpose"]
    if len(turns) > 1:
        return None
    if not turns:
        return (math.prod(shape),), (0,)
    before = steps[turns[0] - 1][1] if turns[0] else shape
    perm = steps[turns[0]][1]
    undo = tuple(perm.index(k) for k in range(len(perm)))
    return tuple(before[p] for p in perm), undo


def _pair(node: Node) -> Value:
    shape = node.outputs[0].shape
    operands = []
    for v in node.inputs:
        assert v is not None
        _floats(v)
        if v.shape != shape and v.data is not None:
            v = constant(np.broadcast_to(v.data, shape).copy())
        operands.append(v)
    return _elementwise(
        node, operands, lambda *maps: float_ops.arithmetic(*maps, kind=KIND_OF[node.op])
    )


def _quantize(node: Node) -> Value:
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None
    assert scale is not None
    _floats(x)
    dtype = node.outputs[0].dtype
    if dtype not in ("i8", "u8"):
        raise Refused(f"it rounds to {dtype}; bytes are possible")
    attrs: dict[str, Any] = {
        "scale": float(scale_of(scale)),
        "y_zero": integer(zero),
        "dtype": dtype,
    }
    return _elementwise(node, [x], lambda m: float_ops.quantize(m, **attrs))


def _dequantize(node: Node) -> Value:
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None
    assert scale is not None
    if x.dtype not in ("i8", "u8"):
        raise Refused(f"it reads {x.dtype}; bytes are possible")
    attrs: dict[str, Any] = {"scale": float(scale_of(scale)), "x_zero": integer(zero)}
    return _elementwise(node, [x], lambda m: float_ops.dequantize(m, **attrs))


def _concat(node: Node) -> Value:
    out = node.outputs[0]
    _fixed(out)
    axis = node.attrs["axis"] % out.type.rank
    before, after = math.prod(out.shape[:axis]), math.prod(out.shape[axis + 1 :])
    parts = []
    for v in node.inputs:
        assert v is not None
        shape = before, v.shape[axis], after
        parts.append(as_map(v, shape, (0, 1, 2), (1, *shape)))
    return ops.reshape(join(*parts), shape=out.shape)  # type: ignore[no-any-return]


def _slice(node: Node) -> Value:
    x: Any = node.inputs[0]
    _fixed(x)
    a = node.attrs
    each = zip(x.shape, a["start"], a["stop"], a["step"], strict=True)
    ranges = [range(*slice(*part).indices(extent)) for extent, *part in each]
    axes = [k for k, r in enumerate(ranges) if r != range(x.shape[k])]
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


KIND_OF = {"add": "add", "sub": "sub", "mul": "mul", "maximum": "max", "minimum": "min"}
CONVERSIONS: dict[str, Callable[[Node], Value]] = {
    "layer_norm": _layer_norm,
    "attention": _attention,
    "softmax": _softmax,
    "qlinear_softmax": _qlinear_softmax,
    "matmul": _matmul,
    "quantize_linear": _quantize,
    "dequantize_linear": _dequantize,
    "concat": _concat,
    "slice": _slice,
    **dict.fromkeys(KIND_OF, _pair),
}
