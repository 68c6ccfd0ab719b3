"""Fusions that hold on every target: fold scales, shifts and pads into neighbouring weights.

They reorder floating-point operations, so results may differ in the last bits.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from intaglio import dtypes, heap, ops, symint
from intaglio.ir import Array, Node, Value, constant
from intaglio.passes.canonical.identities import interval
from intaglio.rewrite import P, no, rule

x, y, W, B, S, c, d = P["x y W! B? S! c! d!"]
CONV = P.op(("conv", "conv_transpose"), x, W, B) @ "conv"


def along(c: Value, of: Value, axis: int) -> Array | None:
    """The constant `c` as a vector along `axis` of `of`; None if it varies along other axes."""
    if c.data is None or c.type.rank > of.type.rank or of.type.dynamic:
        return None
    shape = (1,) * (of.type.rank - c.type.rank) + c.shape
    axis %= of.type.rank
    if any(n != 1 for k, n in enumerate(shape) if k != axis):
        return None
    return np.broadcast_to(c.data.reshape(shape[axis]), (of.shape[axis],))


def why_not_along(what: str, c: Value, of: Value) -> str:
    """The refusal for a constant that `along` does not accept."""
    return f"{what} {c.type} does not have one number per channel of {of.type}"


def wide(a: Array) -> Array:
    """In f64, so that folding rounds only once."""
    return a.astype(np.float64)


def as_like(v: Value, data: Array) -> Value:
    """A constant with the element type of `v`."""
    return constant(np.ascontiguousarray(data.astype(dtypes.numpy_of(v.dtype))))


def scaled(v: Value, by: Array) -> Value:
    """The constant `v` times `by`, multiplied in f64 and rounded once, without an f64 copy."""
    assert v.data is not None
    result = heap.empty(v.shape, v.data.dtype)
    np.multiply(v.data, by, out=result, dtype=np.float64, casting="unsafe")
    return constant(result)


# ---- batch norm, scale and shift behind a convolution or matmul ---------------------------------
@rule(P.batch_norm(x, c, d, *P["mean! var!"]))
def batch_norm_as_scale_and_shift(x: Value, node: Node) -> Any:
    """Write a batch norm with constant statistics as one mul and one add."""
    scale, bias, middle, spread = (wide(v.data) for v in node.inputs[1:])  # type: ignore[arg-type,union-attr]
    factor = scale / np.sqrt(spread + node.attrs["epsilon"])
    column = (-1,) + (1,) * (x.type.rank - 2)
    shift = bias - middle * factor
    return ops.add(
        ops.mul(x, as_like(x, factor.reshape(column))), as_like(x, shift.reshape(column))
    )


def _per_output(conv: Node, w: Value, s: Array) -> Array:
    """One factor per output channel, shaped to multiply the weights."""
    rest = (1,) * (w.type.rank - 2)
    if conv.op == "conv":
        return s.reshape(-1, 1, *rest)
    by_group = s.reshape(conv.attrs["groups"], -1, *rest)
    return np.repeat(by_group, w.shape[0] // len(by_group), axis=0)


@rule(P.mul(CONV, S))
def scale_into_conv(x: Value, W: Value, B: Value | None, S: Value, conv: Node) -> Any:
    """Fold a factor per output channel into the weights and bias."""
    if B is not None and B.data is None:
        return no("the bias is not constant")
    s = along(S, conv.outputs[0], 1)
    if s is None:
        return no(why_not_along("scale", S, conv.outputs[0]))
    s = wide(s)
    w = scaled(W, _per_output(conv, W, s))
    b = None if B is None else as_like(B, wide(B.data) * s)  # type: ignore[arg-type]
    return ops.REGISTRY[conv.op](x, w, b, origin=conv.origin, **conv.attrs)


@rule(P.add(CONV, S))
def shift_into_conv(x: Value, W: Value, B: Value | None, S: Value, conv: Node) -> Any:
    """Fold an addend per output channel into the bias."""
    if B is not None and B.data is None:
        return no("the bias is not constant")
    s = along(S, conv.outputs[0], 1)
    if s is None:
        return no(why_not_along("shift", S, conv.outputs[0]))
    b = wide(s) if B is None else wide(B.data) + wide(s)  # type: ignore[arg-type]
    return ops.REGISTRY[conv.op](x, W, as_like(W, b), origin=conv.origin, **conv.attrs)


@rule(P.gemm(x, y, P["z?"][0]))
def gemm_as_matmul_and_add(x: Value, y: Value, z: Value | None, node: Node) -> Any:
    """Write gemm as matmul and add, so that other rules need one form only."""
    return ops.gemm.lower(x, y, z, **node.attrs)  # type: ignore[misc]


@rule(P.mul(P.matmul(x, W), S))
def scale_into_matmul(x: Value, W: Value, S: Value, node: Node) -> Any:
    """Fold a factor per output column into the matrix."""
    s = along(S, node.outputs[0], -1) if W.type.rank > 1 and dtypes.is_float(W.dtype) else None
    if s is None:
        return no(why_not_along("scale", S, node.outputs[0]))
    return ops.matmul(x, scaled(W, wide(s)))


@rule(P.mul(P.add(P.matmul(x, W) @ "product", c), S))
def distribute_scale(product: Node, c: Value, S: Value) -> Any:
    """Write (a + c) * s as a * s + c * s, so that the matmul can take the factor."""
    y = product.outputs[0]
    if along(S, y, -1) is None or not dtypes.is_float(y.dtype):
        return no(why_not_along("scale", S, y))
    return ops.add(ops.mul(y, S), as_like(c, wide(c.data) * wide(S.data)))  # type: ignore[arg-type]


# ---- in front of a convolution -------------------------------------------------------------------
@rule(P.conv(P.mul(x, S), W, B) @ "conv")
def scale_before_conv(x: Value, S: Value, W: Value, B: Value | None, conv: Node) -> Any:
    """Fold a factor per input channel into the weights."""
    s = along(S, conv.inputs[0], 1)  # type: ignore[arg-type]
    if s is None or x.type != conv.inputs[0].type:  # type: ignore[union-attr]
        return no(why_not_along("scale", S, conv.inputs[0]))  # type: ignore[arg-type]
    return ops.conv(x, scaled(W, _per_input(conv, s)), B, **conv.attrs)


@rule(P.conv(P.add(x, S), W, B) @ "conv")
def shift_before_conv(x: Value, S: Value, W: Value, B: Value | None, conv: Node) -> Any:
    """Fold an addend per input channel into the bias, if the convolution has no padding."""
    s = along(S, conv.inputs[0], 1)  # type: ignore[arg-type]
    if s is None or x.type != conv.inputs[0].type:  # type: ignore[union-attr]
        return no(why_not_along("shift", S, conv.inputs[0]))  # type: ignore[arg-type]
    if any(conv.attrs["pad"]):
        return no(f"pad is {conv.attrs['pad']}: the padding would be shifted too")
    if B is not None and B.data is None:
        return no("the bias is not constant")
    spread = (wide(W.data) * _per_input(conv, s)).reshape(W.shape[0], -1).sum(1)  # type: ignore[arg-type]
    b = spread if B is None else wide(B.data) + spread  # type: ignore[arg-type]
    return ops.conv(x, W, as_like(W, b), **conv.attrs)


def _per_input(conv: Node, s: Array) -> Array:
    """One number per input channel, shaped to multiply the weights of a grouped convolution."""
    w = conv.inputs[1]
    assert w is not None
    groups = conv.attrs["groups"]
    rows = np.repeat(wide(s).reshape(groups, -1), w.shape[0] // groups, axis=0)
    return rows.reshape(w.shape[0], w.shape[1], *(1,) * (w.type.rank - 2))


@rule(P.conv(P.space_to_depth(x) @ "blocks", W, B) @ "conv")
def space_to_depth_into_conv(x: Value, W: Value, B: Value | None, blocks: Node, conv: Node) -> Any:
    """Replace a convolution behind space_to_depth by one with a larger kernel and stride."""
    a, size = conv.attrs, blocks.attrs["blocksize"]
    if a["groups"] != 1 or any(d != 1 for d in a["dilation"]):
        return no(f"groups is {a['groups']} and dilation {a['dilation']}; both must be 1")
    m, _, *kernel = W.shape
    c, last = x.shape[1], blocks.attrs["mode"] == "DCR"  # DCR: channels count fastest
    split = W.data.reshape(m, *((size, size, c) if last else (c, size, size)), *kernel)  # type: ignore[union-attr]
    perm = (0, 3, 4, 1, 5, 2) if last else (0, 1, 4, 2, 5, 3)
    w = split.transpose(perm).reshape(m, c, *(k * size for k in kernel))
    larger = {k: tuple(n * size for n in a[k]) for k in ("stride", "pad")}
    return ops.conv(x, constant(np.ascontiguousarray(w)), B, **{**a, **larger})


ORDER = P.one_of(P.gather(x, c) @ "order", P.channel_shuffle(x) @ "order")


@rule(P.conv(ORDER, W, B) @ "conv")
def channel_order_into_conv(x: Value, W: Value, B: Value | None, order: Node, conv: Node) -> Any:
    """Permute the weights instead of the input channels."""
    at = _channel_order(order, x)
    if at is None or conv.attrs["groups"] != 1 or x.type.dynamic:
        return None
    if len(at) < x.shape[1]:
        return no(f"only {len(at)} of {x.shape[1]} channels are read: the weights would grow")
    w = np.zeros((W.shape[0], x.shape[1], *W.shape[2:]))
    np.add.at(w, (slice(None), at), wide(W.data))  # type: ignore[arg-type]
    return ops.conv(x, as_like(W, w), B, **conv.attrs)


def _channel_order(order: Node, x: Value) -> Array | None:
    """For every channel behind the node, its channel in `x`."""
    if order.op == "channel_shuffle":
        return np.arange(x.shape[1]).reshape(order.attrs["groups"], -1).T.ravel()
    i = order.inputs[1]
    if i is None or i.data is None or i.type.rank != 1 or order.attrs["axis"] % x.type.rank != 1:
        return None
    return np.where(i.data < 0, i.data + x.shape[1], i.data)


# ---- padding -------------------------------------------------------------------------------------
def _spatial_pad(pad: Node, own: tuple[int, ...]) -> tuple[int, ...] | None:
    before, after = pad.attrs["before"], pad.attrs["after"]
    if any(before[:2]) or any(after[:2]) or pad.attrs["mode"] != "constant":
        return None
    return tuple(a + b for a, b in zip((*before[2:], *after[2:]), own, strict=True))


@rule(P.transpose(P.pad(x) @ "pad") @ "turn")
def transpose_before_pad(x: Value, pad: Node, turn: Node) -> Any:
    """Transpose before padding where only convolutions follow, which then pad themselves."""
    if any(r.op not in ("conv", "qlinear_conv") for r in turn.outputs[0].uses):
        return None
    perm = turn.attrs["perm"]
    around = {k: tuple(pad.attrs[k][i] for i in perm) for k in ("before", "after")}
    return ops.pad(ops.transpose(x, perm=perm), **{**pad.attrs, **around})


@rule(P.conv(P.pad(x) @ "pad", W, B) @ "conv")
def pad_into_conv(x: Value, W: Value, B: Value | None, pad: Node, conv: Node) -> Any:
    """Fold zero padding into the convolution's own padding."""
    both = _spatial_pad(pad, conv.attrs["pad"])
    if both is None or pad.attrs["value"] != 0:
        return no(f"{pad.attrs} is not zero padding")
    return ops.conv(x, W, B, **{**conv.attrs, "pad": both})


@rule(P.any("qlinear_conv"))
def pad_into_qlinear_conv(node: Node) -> Any:
    """Fold padding with the zero point into a quantised convolution's own padding."""
    image, zero = node.inputs[0], node.inputs[2]
    pad = image.producer if image is not None else None
    if pad is None or pad.op != "pad":
        return None
    both = _spatial_pad(pad, node.attrs["pad"])
    if both is None or zero is None or zero.data is None or pad.attrs["value"] != zero.data.item():
        return no(f"{pad.attrs} does not pad with the zero point")
    return ops.qlinear_conv(pad.inputs[0], *node.inputs[1:], **{**node.attrs, "pad": both})


@rule(P.avg_pool(P.pad(x) @ "pad"))
def pad_into_avg_pool(x: Value, pad: Node, node: Node) -> Any:
    """Fold zero padding into an average pooling that counts its padding."""
    both = _spatial_pad(pad, node.attrs["pad"])
    if both is None or pad.attrs["value"] != 0 or any(node.attrs["pad"]):
        return no(f"{pad.attrs} is not zero padding, or the pooling pads too")
    return ops.avg_pool(x, **{**node.attrs, "pad": both, "count_include_pad": True})


@rule(P.max_pool(P.pad(x) @ "pad"))
def pad_into_max_pool(x: Value, pad: Node, node: Node) -> Any:
    """Fold padding into a max pooling, if the pad value is below every element."""
    both, value = _spatial_pad(pad, node.attrs["pad"]), pad.attrs["value"]
    if both is None or node.attrs["with_indices"]:
        return no(f"{pad.attrs} is not constant padding, or the pooling returns indices")
    if value == -math.inf:
        return ops.max_pool(x, **{**node.attrs, "pad": both})
    kernel = node.attrs["kernel"]
    if any(p >= k for p, k in zip(both, kernel * 2, strict=True)) or set(
        node.attrs["dilation"]
    ) != {1}:
        return no("a window may contain only padding")
    if not dtypes.is_float(x.dtype) or value > max(interval(x)[0], _lowest(x.dtype)):
        return no(f"the pad value is {value:g}; elements may be smaller")
    return ops.max_pool(x, **{**node.attrs, "pad": both})


def _lowest(dtype: str) -> float:
    return float(ml_dtypes.finfo(dtypes.numpy_of(dtype)).min)  # type: ignore[no-untyped-call]


# ---- constants -----------------------------------------------------------------------------------
@rule(P.sub(x, c))
def subtract_as_add(x: Value, c: Value) -> Any:
    """Write x - c as x + (-c), so that other rules need one form only."""
    if c.data is None or not dtypes.is_float(c.dtype):
        return None
    return ops.add(x, constant(-c.data))


@rule(P.div(x, c))
def divide_as_multiply(x: Value, c: Value) -> Any:
    """Write x / c as x * (1 / c), which is faster."""
    if not dtypes.is_float(c.dtype) or c.data is None or not np.all(c.data):
        return None
    inverse = 1 / wide(c.data)
    if not np.all(np.isfinite(inverse.astype(c.data.dtype).astype(np.float64))):
        return no("a reciprocal is not finite")
    return ops.mul(x, as_like(c, inverse))


@rule(P.op(("add", "mul"), P.op(("add", "mul"), x, c) @ "inner", d))
def combine_constants(x: Value, c: Value, d: Value, inner: Node, node: Node) -> Any:
    """Write (x + c) + d as x + (c + d), and the same for products."""
    if inner.op != node.op or not dtypes.is_float(x.dtype):
        return None
    both = symint.broadcast(c.shape, d.shape)
    if math.prod(both) > max(c.type.size, d.type.size):
        return no(f"combining {c.type} and {d.type} makes a larger constant")
    joined = wide(c.data) + wide(d.data) if node.op == "add" else wide(c.data) * wide(d.data)  # type: ignore[arg-type]
    return ops.REGISTRY[node.op](x, as_like(c, joined))


FUSE = [
    batch_norm_as_scale_and_shift,
    scale_into_conv,
    shift_into_conv,
    gemm_as_matmul_and_add,
    scale_into_matmul,
    distribute_scale,
    scale_before_conv,
    shift_before_conv,
    space_to_depth_into_conv,
    channel_order_into_conv,
    transpose_before_pad,
    pad_into_conv,
    pad_into_qlinear_conv,
    pad_into_avg_pool,
    pad_into_max_pool,
    subtract_as_add,
    divide_as_multiply,
    combine_constants,
]
