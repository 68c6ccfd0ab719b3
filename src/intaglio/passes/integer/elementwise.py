"""Integer add, mul, mean, average pooling, softmax and resize of quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.quantized import RESIZE_UNIT, power_table
from intaglio.ops.registry import Op
from intaglio.ops.resize import resize_tables
from intaglio.passes.integer.operands import (
    BITS8,
    parameters,
    r,
    real,
    rs,
    rz,
    why_not_one,
    x,
    xs,
    xz,
    ys,
    yz,
    zero_of,
)
from intaglio.rewrite import P, no, rule

DX, DR = real(x, xs, xz, "dx"), real(r, rs, rz, "dr")


def result(node: Node) -> tuple[Value, Value]:
    """Scale and zero point of a quantize_linear node."""
    scale = node.inputs[1]
    assert scale is not None
    return scale, zero_of(node.outputs[0], node.inputs[2])


def _lifted(v: Value, rank: int) -> Value:
    """`v` with leading unit axes up to `rank`, so that both operands can be transposed alike."""
    if v.type.rank == rank:
        return v
    made: Value = ops.reshape(v, shape=(*[1] * (rank - v.type.rank), *v.shape))
    return made


def pair(op: Op, dx: Node, dr: Node, node: Node, kinds: tuple[str, ...] = BITS8) -> Any:
    """A binary integer op for two dequantised operands and a quantised result."""
    if why := why_not_one(dx, dr, node, kinds=kinds):
        return no(why)
    (a, *of_a), (b, *of_b) = parameters(dx), parameters(dr)
    rank = node.outputs[0].type.rank
    if a.type.rank != b.type.rank and (a.type.dynamic or b.type.dynamic):
        return no("a size is known only at run time")
    return op(_lifted(a, rank), *of_a, _lifted(b, rank), *of_b, *result(node))


@rule(P.quantize_linear(P.add(DX, DR), ys, yz))
def integer_add(dx: Node, dr: Node, node: Node) -> Any:
    """Add quantised tensors as integers."""
    return pair(ops.qlinear_add, dx, dr, node)


@rule(P.quantize_linear(P.mul(DX, DR), ys, yz))
def integer_mul(dx: Node, dr: Node, node: Node) -> Any:
    """Multiply quantised tensors as integers, for example by a gate per channel."""
    return pair(ops.qlinear_mul, dx, dr, node)


@rule(P.quantize_linear(P.avg_pool(DX) @ "pool", ys, yz))
def integer_avg_pool(dx: Node, pool: Node, node: Node) -> Any:
    """Average pooling of a quantised tensor as integers."""
    if why := why_not_one(dx, node):
        return no(why)
    return ops.qlinear_avg_pool(*parameters(dx), *result(node), **pool.attrs)


@rule(P.quantize_linear(P.reduce_mean(DX) @ "mean", ys, yz))
def integer_mean(dx: Node, mean: Node, node: Node) -> Any:
    """Mean of a quantised tensor as integers."""
    if why := why_not_one(dx, node):
        return no(why)
    rank = dx.outputs[0].type.rank
    axes = tuple(sorted(a % rank for a in mean.attrs["axes"]))
    if not axes or axes != tuple(range(axes[0], axes[0] + len(axes))):
        return no(f"axes {axes} are not consecutive")
    if not all(dx.outputs[0].shape[a] for a in axes):
        return no("a reduced axis is empty")
    return ops.qlinear_mean(
        *parameters(dx), *result(node), axes=axes, keepdims=mean.attrs["keepdims"]
    )


@rule(P.quantize_linear(P.softmax(DX) @ "softmax", ys, yz))
def integer_softmax(dx: Node, softmax: Node, node: Node) -> Any:
    """Softmax of a quantised tensor with a table of its 256 possible exponentials."""
    if why := why_not_one(dx, node):
        return no(why)
    x, scale, _ = parameters(dx)
    if scale.data is None or not scale.data.item() > 0:
        return no("the scale is not positive")
    table = constant(power_table(scale.data.item()))
    return ops.qlinear_softmax(x, table, *result(node), axis=softmax.attrs["axis"])


def _integer_weights(weight: Array) -> Array:
    """Pairs of interpolation weights as integers that sum to RESIZE_UNIT."""
    second = np.rint(weight[:, 1].astype(np.float64) * RESIZE_UNIT)
    return np.stack([RESIZE_UNIT - second, second], 1).astype(np.int32)


@rule(P.quantize_linear(P.resize(DX) @ "resize", ys, yz))
def integer_resize(dx: Node, resize: Node, node: Node) -> Any:
    """Bilinear resize of a quantised image as integers."""
    a, x = resize.attrs, dx.outputs[0]
    if a["mode"] != "linear" or a["antialias"] or a["exclude_outside"]:
        return no(f"mode {a['mode']} or its options do not interpolate between two pixels per axis")
    if why := why_not_one(dx, node):
        return no(why)
    axes = [i % x.type.rank for i in a["axes"]]
    tables = resize_tables([x.shape[i] for i in axes], **a)
    if any(t.outside.any() for t in tables):
        return no("some samples lie outside the image")
    found = {i: t for i, t in zip(axes, tables, strict=True) if i >= x.type.rank - 2}
    grown = [i for i, n in enumerate(resize.outputs[0].shape) if n != x.shape[i]]
    if set(found) != {x.type.rank - 2, x.type.rank - 1} or not set(grown) <= set(found):
        return no(f"axes {axes} of {x.type} are not the two spatial axes")
    pair = [found[i] for i in sorted(found)]
    given = [constant(v) for t in pair for v in (t.index, _integer_weights(t.weight))]
    return ops.qlinear_resize(*parameters(dx), *result(node), *given, axis=x.type.rank - 2)


PAIRS = [integer_resize, integer_add, integer_mul, integer_avg_pool, integer_mean, integer_softmax]
