"""Convolutions, linear layers, matrix products and pools of floats as layers of the chip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.chips.bm1684x import float_ops
from intaglio.npu.chips.bm1684x.float_types import FloatTypes, as_type
from intaglio.npu.chips.bm1684x.float_windows import float_pool
from intaglio.npu.chips.bm1684x.views import as_map
from intaglio.npu.lowering.builder import Refused, two_axes
from intaglio.npu.lowering.conv_groups import Convolution
from intaglio.npu.lowering.conv_operands import operand_views, viewed_operands
from intaglio.npu.lowering.convolutions import LINEAR_WINDOW

UNPADDED = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
MOST_TAPS = 255  # rows of a window


def _convolve(
    types: FloatTypes, node: Node, x: Value, weights: Array, bias: Array, window: dict[str, Any]
) -> Value:
    """A convolution with the first view of its operands that the chip can compute."""
    make, out = types.make, node.outputs[0]
    refusals: list[Refused] = []
    for view in operand_views(x, constant(weights), window):
        try:
            attrs = dict(window)
            groups, w = attrs.pop("groups"), weights
            if x.type.rank == 3:
                w, attrs = w[..., None], two_axes(attrs)
            seen, w = viewed_operands(make, x, w, attrs, view)
            ones = np.ones(len(w), np.float32)
            attrs |= {"x_zero": 0, "dtype": x.dtype}
            made = Convolution(seen, w, ones, bias, None, groups, attrs)(make, types.chip)
            if view == "column":
                return make.from_column(made, out.shape)
            return make.reshaped(made, out.shape)
        except Refused as e:
            refusals.append(e)
    raise refusals[0]


def _bias(b: Value | None, outputs: int) -> Array:
    if b is None:
        return np.zeros(outputs, np.float32)
    fits = b.type.size in (1, outputs) and (b.type.size == 1 or b.shape[-1] == outputs)
    if b.data is None or not fits:
        raise Refused(f"its bias is {b.type}; a constant for each of {outputs} channels is needed")
    wide = b.data.astype(np.float32).reshape(-1)
    return np.ascontiguousarray(np.broadcast_to(wide, (outputs,)))


def _weights(w: Value | None, dtype: str) -> Array:
    if w is None or w.data is None:
        raise Refused("its weights are no constant")
    found: Array = as_type(w, dtype)
    return found


def conv(node: Node, types: FloatTypes) -> Value:
    x, w, b = (*node.inputs, None)[:3]
    dtype = types.of_product(node, x, w)
    weights = _weights(w, dtype)
    image = types.typed(x, dtype)
    if image.type.rank not in (3, 4):
        raise Refused(f"{image.type} has rank {image.type.rank}; 3 or 4 is possible")
    return _convolve(types, node, image, weights, _bias(b, len(weights)), node.attrs)


def gemm(node: Node, types: FloatTypes) -> Value:
    x, w, b = (*node.inputs, None)[:3]
    a = node.attrs
    if a["trans_a"] or a["alpha"] != 1 or (b is not None and a["beta"] != 1):
        raise Refused("its first operand is transposed, or alpha or beta is not 1")
    return _linear(node, types, x, w, b, a["trans_b"])


def _linear(
    node: Node,
    types: FloatTypes,
    x: Value | None,
    w: Value | None,
    b: Value | None = None,
    turned: bool = False,
) -> Value:
    """Rows times constant weights: a 1x1 convolution."""
    dtype = types.of_product(node, x, w)
    small = _weights(w, dtype)
    rows = np.ascontiguousarray(small if turned else small.T)[..., None]
    given = types.typed(x, dtype)
    depth = rows.shape[1]
    flat = types.make.reshaped(given, (given.type.size // depth, depth, 1))
    return _convolve(types, node, flat, rows, _bias(b, len(rows)), LINEAR_WINDOW)


def matmul(node: Node, types: FloatTypes) -> Value:
    a, b = node.inputs
    assert a is not None
    assert b is not None
    if b.data is not None and b.type.rank == 2 and a.type.rank >= 2:
        return _linear(node, types, a, b)
    if a.type.rank < 2 or a.shape[:-2] != b.shape[:-2]:
        raise Refused(f"{a.type} times {b.type} broadcasts matrices")
    dtype = types.of_product(node, a, b)
    (m, k), c, batch = a.shape[-2:], b.shape[-1], math.prod(a.shape[:-2])
    left, right = types.typed(a, dtype), types.typed(b, dtype)
    made = float_ops.float_matmul(
        as_map(right, (batch, k, c), (0, 1, 2), (batch, k, c, 1)),
        as_map(left, (batch, m, k), (0, 1, 2), (batch, m, k, 1)),
        block=types.make.block(dtype),
    )
    return types.make.reshaped(made, node.outputs[0].shape)


def pool(node: Node, types: FloatTypes) -> Value:
    """max_pool and avg_pool."""
    x = types.typed(node.inputs[0], types.of(node))
    a = node.attrs
    if a.get("with_indices") or len(node.outputs) > 1:
        raise Refused("its indices are read, too; the chip returns the largest numbers only")
    window = {k: a[k] for k in ("kernel", "stride", "pad", "dilation")}
    if x.type.rank == 3:
        window = two_axes(window)
    kind = "max" if node.op == "max_pool" else "avg"
    count = bool(a.get("count_include_pad"))
    image = types.make.as_feature_map(x)
    made = types.make(float_pool, image, kind=kind, count_include_pad=count, **window)
    return types.make.reshaped(made, node.outputs[0].shape)


def reduction(node: Node, types: FloatTypes) -> Value:
    """reduce_mean and reduce_max over axes that follow each other."""
    x = types.typed(node.inputs[0], types.of(node))
    rank, kind = x.type.rank, "max" if node.op == "reduce_max" else "avg"
    axes = sorted(i % rank for i in node.attrs.get("axes") or range(rank))
    if axes != list(range(axes[0], axes[-1] + 1)):
        raise Refused(f"it reduces axes {axes} of {x.type}; axes side by side are possible")
    shape = x.shape
    if rank == 4 and axes == [2, 3] and max(shape[2:]) <= MOST_TAPS:
        made = types.make(float_pool, x, kind=kind, kernel=shape[2:], **UNPADDED)
        return types.make.reshaped(made, node.outputs[0].shape)
    before, after = math.prod(shape[: axes[0]]), math.prod(shape[axes[-1] + 1 :])
    many = math.prod(shape[axes[0] : axes[-1] + 1])
    high = next(d for d in range(min(many, MOST_TAPS), 0, -1) if many % d == 0)
    if many // high > MOST_TAPS or (after > 1 and high != many):
        raise Refused(f"it reduces {many} numbers; {MOST_TAPS} are possible")
    flat = before, many, after
    wide = (1, before, high, many // high) if after == 1 else (1, before, many, after)
    kernel = wide[2:] if after == 1 else (many, 1)
    made = types.make(
        float_pool, as_map(x, flat, (0, 1, 2), wide), kind=kind, kernel=kernel, **UNPADDED
    )
    return types.make.reshaped(made, node.outputs[0].shape)


PRODUCTS = {
    "conv": conv,
    "gemm": gemm,
    "matmul": matmul,
    "max_pool": pool,
    "avg_pool": pool,
    "reduce_mean": reduction,
    "reduce_max": reduction,
}
