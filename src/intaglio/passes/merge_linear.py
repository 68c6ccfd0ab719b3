"""Merge consecutive linear ops: matmuls, convolutions, scales and shifts.

They reorder floating-point operations, so results may differ in the last bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.ops.slice_ranges import ranges
from intaglio.passes.fuse import along, as_like, scaled, why_not_along, wide
from intaglio.rewrite import No, P, no, rule
from intaglio.symint import bound

x, y, W, V, S, c, d = P["x y W! V! S! c! d!"]
B, C = P["B? C?"]


def _whole(v: Value, of: Value) -> bool:
    return v.type == of.type and dtypes.is_float(v.dtype)


# ---- around a matmul -----------------------------------------------------------------------------
@rule(P.matmul(P.mul(x, S) @ "scale", W))
def scale_before_matmul(x: Value, S: Value, W: Value, scale: Node) -> Any:
    """Fold a factor per input feature into the rows of the matrix."""
    s = along(S, scale.outputs[0], -1) if _whole(x, scale.outputs[0]) else None
    if s is None or W.type.rank < 2:
        return no(why_not_along("scale", S, scale.outputs[0]))
    return ops.matmul(x, scaled(W, wide(s)[:, None]))


@rule(P.matmul(P.add(x, S) @ "shift", W))
def shift_before_matmul(x: Value, S: Value, W: Value, shift: Node) -> Any:
    """Replace an addend per input feature by one per output column."""
    s = along(S, shift.outputs[0], -1) if _whole(x, shift.outputs[0]) else None
    if s is None or W.type.rank != 2:
        return no(why_not_along("shift", S, shift.outputs[0]))
    return ops.add(ops.matmul(x, W), as_like(W, wide(s) @ wide(W.data)))  # type: ignore[arg-type]


@rule(P.mul(P.matmul(W, x) @ "product", S))
def scale_into_left_matrix(x: Value, W: Value, S: Value, product: Node) -> Any:
    """Fold a factor per row into a constant matrix on the left."""
    out = product.outputs[0]
    if product.inputs[0] is not W or W.type.rank < 2 or x.type.rank < 2:
        return None
    s = along(S, out, -2) if dtypes.is_float(W.dtype) else None
    if s is None:
        return no(why_not_along("scale", S, out))
    return ops.matmul(scaled(W, wide(s)[:, None]), x)


@rule(P.mul(P.matmul(x, y) @ "product", S))
def scale_to_smaller_operand(x: Value, y: Value, S: Value, product: Node) -> Any:
    """Apply a scalar factor to the smallest of the matmul's three tensors."""
    out = product.outputs[0]
    if S.type.size != 1 or x.data is not None or y.data is not None or out.type.dynamic:
        return None
    if S.type.rank > out.type.rank or not dtypes.is_float(x.dtype):
        return None
    small = min(x, y, key=lambda v: v.type.size)
    if 2 * small.type.size > out.type.size:
        return no(f"the matmul result {out.type} is not much larger than {small.type}")
    scaled = ops.mul(small, as_like(small, wide(S.data).reshape(())))  # type: ignore[arg-type]
    return ops.matmul(scaled, y) if small is x else ops.matmul(x, scaled)


# ---- two linear ops in a row ---------------------------------------------------------------------
@rule(P.matmul(P.matmul(x, W), V), weigh=True)
def matmul_of_matmul(x: Value, W: Value, V: Value, node: Node) -> Any:
    """Merge two constant matrices into one, if that is less work."""
    if W.type.rank != 2 or V.type.rank != 2 or not dtypes.is_float(W.dtype) or x.data is not None:
        return None
    first = node.inputs[0].producer  # type: ignore[union-attr]
    if first is None or (why := _more_work(first, node, W.shape[0])) is not None:
        return why
    return ops.matmul(x, as_like(W, wide(W.data) @ wide(V.data)))  # type: ignore[arg-type]


def _more_work(first: Node, then: Node, depth: int) -> No | None:
    """A refusal if one op with this inner dimension costs more than the two. Checked before weights
    are multiplied.
    """
    two = sum(REGISTRY[n.op].macs(n) for n in (first, then))
    one = bound(then.outputs[0].type.size) * depth
    return (
        no(f"{one / 1e6:.3g} million multiply-accumulates instead of {two / 1e6:.3g}")
        if one > two
        else None
    )


INNER = P.conv(x, W, B) @ "first"


def _is_pointwise(conv: Node, w: Value) -> bool:
    plain = all(n == 1 for n in w.shape[2:]) and not any(conv.attrs["pad"])
    return plain and conv.attrs["groups"] == 1


def _mixed(outer: Array, inner: Array) -> Array:
    """Weights m x o x 1.. applied behind weights o x c x k..: m x c x k.."""
    return np.tensordot(outer.reshape(outer.shape[:2]), inner, 1)


@rule(P.conv(INNER, V, C) @ "then", weigh=True)
def pointwise_after_conv(
    x: Value, W: Value, B: Value | None, V: Value, C: Value | None, first: Node, then: Node
) -> Any:
    """Merge a 1x1 convolution into the convolution before it, if that is less work."""
    if not _is_pointwise(then, V) or first.attrs["groups"] != 1:
        return no(
            "the second is not a 1x1 convolution without padding, or one of the two has groups"
        )
    if any(v is not None and v.data is None for v in (B, C)):
        return no("a bias is not constant")
    if (why := _more_work(first, then, math.prod(W.shape[1:]))) is not None:
        return why
    w = _mixed(wide(V.data), wide(W.data))  # type: ignore[arg-type]
    stride = tuple(a * b for a, b in zip(first.attrs["stride"], then.attrs["stride"], strict=True))
    bias = _bias(V, wide(V.data).sum(tuple(range(2, V.type.rank))), B, C)  # type: ignore[arg-type]
    return ops.conv(x, as_like(W, w), bias, **{**first.attrs, "stride": stride})


@rule(P.conv(INNER, V, C) @ "then", weigh=True)
def conv_after_pointwise(
    x: Value, W: Value, B: Value | None, V: Value, C: Value | None, first: Node, then: Node
) -> Any:
    """Merge a 1x1 convolution into the convolution behind it, if that is less work."""
    if (
        not _is_pointwise(first, W)
        or then.attrs["groups"] != 1
        or set(first.attrs["stride"]) != {1}
    ):
        return no("the first is not a plain 1x1 convolution, or one of the two has groups")
    if any(v is not None and v.data is None for v in (B, C)):
        return no("a bias is not constant")
    if B is not None and any(then.attrs["pad"]) and np.any(B.data):
        return no(
            f"pad is {then.attrs['pad']}: the padding would receive the first convolution's bias"
        )
    if (why := _more_work(first, then, W.shape[1] * math.prod(V.shape[2:]))) is not None:
        return why
    inner, outer = wide(W.data).reshape(W.shape[:2]), wide(V.data)  # type: ignore[arg-type]
    w = np.moveaxis(np.tensordot(outer, inner, (1, 0)), -1, 1)
    bias = _bias(V, outer.sum(tuple(range(2, outer.ndim))), B, C)
    return ops.conv(x, as_like(V, w), bias, **then.attrs)


def _bias(like: Value, mix: Array, inner: Value | None, outer: Value | None) -> Value | None:
    """The bias of two merged convolutions; `mix` is the second's weights summed over its window."""
    if inner is None:
        return outer
    total = mix @ wide(inner.data)  # type: ignore[arg-type]
    return as_like(like, total if outer is None else total + wide(outer.data))  # type: ignore[arg-type]


@rule(P.op(("mul", "add"), P.add(P.mul(x, S), c) @ "shift", d))
def affine_of_affine(x: Value, S: Value, c: Value, d: Value, shift: Node, node: Node) -> Any:
    """Write (x s + c) d as x (s d) + c d: consecutive batch norms and scales become one."""
    if node.op != "mul" or not _whole(x, shift.outputs[0]) or not _whole(x, node.outputs[0]):
        return None
    scale, by = wide(S.data) * wide(d.data), wide(c.data) * wide(d.data)  # type: ignore[arg-type]
    if max(scale.size, by.size) > max(S.type.size, c.type.size, d.type.size):
        return no(f"combining {S.type}, {c.type} and {d.type} makes a larger constant")
    return ops.add(ops.mul(x, as_like(S, scale)), as_like(c, by))


# ---- crops ---------------------------------------------------------------------------------------
@rule(P.slice(P.conv_transpose(x, W, B) @ "deconv"))
def crop_into_conv_transpose(x: Value, W: Value, B: Value | None, deconv: Node, node: Node) -> Any:
    """Turn a crop behind a transposed convolution into its padding."""
    taken = ranges(node)
    whole = deconv.outputs[0].shape
    if taken is None or any(r.step != 1 or not len(r) for r in taken):
        return None
    if any(r != range(n) for r, n in zip(taken[:2], whole[:2], strict=True)):
        return no("the slice cuts the batch or channels too")
    cut = (
        [r.start for r in taken[2:]],
        [n - r.stop for r, n in zip(taken[2:], whole[2:], strict=True)],
    )
    pad = tuple(a + b for a, b in zip(deconv.attrs["pad"], (*cut[0], *cut[1]), strict=True))
    return ops.conv_transpose(x, W, B, **{**deconv.attrs, "pad": pad})


LINEAR = [
    scale_before_matmul,
    shift_before_matmul,
    scale_into_left_matrix,
    scale_to_smaller_operand,
    matmul_of_matmul,
    pointwise_after_conv,
    conv_after_pointwise,
    affine_of_affine,
    crop_into_conv_transpose,
]
