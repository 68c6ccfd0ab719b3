"""Ops that move elements of whole feature maps in DDR: permute, join, cut and constant maps.

Feature maps lie in DDR as plain N x C x H x W, so each of these ops is a few copies of boxes with
strides. Only encoders of real chips have them; `boxes` says which bytes go where.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints

RELAYOUTS = ("npu.permute", "npu.join", "npu.cut", "npu.repeat", "npu.constant", "npu.spread_rows")
BOX_AXES = 3  # axes of a box that one transfer moves


def _map(x: Value) -> None:
    if x.type.rank != 4 or x.type.dynamic:
        raise BadInput(f"{x.type} is no feature map; four fixed extents are needed")


def _permute_type(x: Value, *, shape: Ints, perm: Ints, out: Ints) -> Type:
    _map(x)
    if math.prod(shape) != x.type.size or math.prod(out) != x.type.size or len(out) != 4:
        raise BadInput(f"{x.type} has not as many elements as {shape} and {out}")
    if sorted(perm) != list(range(len(shape))):
        raise BadInput(f"perm is {perm}; it must order the {len(shape)} axes of {shape}")
    return Type(x.dtype, tuple(out))


@op(_permute_type, name="npu.permute")
def permute(x: Array, *, shape: Ints, perm: Ints, out: Ints) -> Array:
    """x in `shape`, its axes in the order `perm`, then as the feature map `out`."""
    return np.ascontiguousarray(x.reshape(shape).transpose(perm)).reshape(out)


def _join_type(*xs: Value) -> Type:
    for x in xs:
        _map(x)
        sides = (x.dtype, x.shape[:2], x.shape[3:])
        if sides != (xs[0].dtype, xs[0].shape[:2], xs[0].shape[3:]):
            raise BadInput(f"{x.type} and {xs[0].type} differ in more than their rows")
    n, c, _, w = xs[0].shape
    return Type(xs[0].dtype, (n, c, sum(x.shape[2] for x in xs), w))


@op(_join_type, name="npu.join")
def join(*xs: Array) -> Array:
    """Concatenates along the rows."""
    return np.concatenate(xs, 2)


def _cut_type(x: Value, *, first: int, count: int) -> Type:
    _map(x)
    if not 0 <= first < first + count <= x.shape[2]:
        raise BadInput(f"rows {first} to {first + count} are not all in {x.type}")
    return Type(x.dtype, (*x.shape[:2], count, x.shape[3]))


@op(_cut_type, name="npu.cut")
def cut(x: Array, *, first: int, count: int) -> Array:
    """Rows first .. first + count."""
    return np.ascontiguousarray(x[:, :, first : first + count])


def _repeat_type(x: Value, *, count: int) -> Type:
    _map(x)
    if count < 1:
        raise BadInput(f"each image is repeated {count} times; at least 1 is needed")
    return Type(x.dtype, (x.shape[0] * count, *x.shape[1:]))


@op(_repeat_type, name="npu.repeat")
def repeat(x: Array, *, count: int) -> Array:
    """Every image `count` times."""
    return x.repeat(count, 0)


def _constant_type(x: Value) -> Type:
    _map(x)
    return x.type


@op(_constant_type, name="npu.constant")
def constant_map(x: Array) -> Array:
    """A constant as a feature map."""
    return x


def _spread_type(x: Value, edge: Value, *, kernel: int, stride: int, pad: int, rows: int) -> Type:
    _map(x)
    if edge.shape != (1, 1, 1, x.shape[3]) or edge.dtype != x.dtype:
        raise BadInput(f"{edge.type} is no row of {x.type}")
    if min(kernel, stride, rows) < 1 or pad < 0:
        raise BadInput(f"windows of {kernel} rows, {stride} apart, have no {rows} rows")
    n, c, _, w = x.shape
    return Type(x.dtype, (n, c * kernel, rows, w))


@op(_spread_type, name="npu.spread_rows")
def spread_rows(x: Array, edge: Array, *, kernel: int, stride: int, pad: int, rows: int) -> Array:
    """The rows of windows as channels: y[c * kernel + k, i] = x[c, i * stride + k - pad].

    Rows outside of x have the numbers of `edge`.
    """
    n, c, h, w = x.shape
    y = np.broadcast_to(edge, (n, c * kernel, rows, w)).copy()
    for k in range(kernel):
        first, last = _inside(h, k, stride, pad, rows)
        begin = first * stride + k - pad
        y[:, k::kernel, first:last] = x[:, :, begin : begin + (last - first) * stride : stride]
    return y


def _inside(height: int, k: int, stride: int, pad: int, rows: int) -> tuple[int, int]:
    """The windows whose row k lies in the map: first, last + 1."""
    first = min(max(-((k - pad) // stride), 0), rows)
    return first, max(min((height - 1 - k + pad) // stride + 1, rows), first)


@dataclass(frozen=True, slots=True)
class Box:
    """Elements that one transfer moves: offsets and strides in elements of the whole maps."""

    operand: int
    source: int
    target: int
    sizes: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]


def boxes(node: Node) -> list[Box]:
    """The transfers of a node, each of at most BOX_AXES axes."""
    out = node.outputs[0]
    found: list[Box] = []
    if node.op == "npu.permute":
        shape, perm = node.attrs["shape"], node.attrs["perm"]
        strides = _strides(shape)
        sizes = tuple(shape[p] for p in perm)
        found.append(Box(0, 0, 0, sizes, tuple(strides[p] for p in perm), _strides(sizes)))
    elif node.op == "npu.repeat":
        count = node.attrs["count"]
        size, images = math.prod(out.shape[1:]), out.shape[0] // count
        sizes = images, count, size
        found.append(Box(0, 0, 0, sizes, (size, 0, 1), (count * size, size, 1)))
    elif node.op == "npu.spread_rows":
        found += _spread_boxes(node)
    elif node.op == "npu.constant":
        found.append(Box(0, 0, 0, (out.type.size,), (1,), (1,)))
    else:
        n, c, rows, w = out.shape
        first = 0
        for k, v in enumerate(node.inputs):
            assert v is not None
            begin, count = node.attrs.get("first", 0), node.attrs.get("count", v.shape[2])
            sizes, high = (n * c, count * w), v.shape[2] * w
            found.append(Box(k, begin * w, first * w, sizes, (high, 1), (rows * w, 1)))
            first += count
    return [one for box in found for one in _split(_merged(box))]


def _spread_boxes(node: Node) -> list[Box]:
    x, a = node.inputs[0], node.attrs
    assert x is not None
    n, c, h, w = x.shape
    kernel, stride, rows = a["kernel"], a["stride"], a["rows"]
    found = []
    for k in range(kernel):
        first, last = _inside(h, k, stride, a["pad"], rows)
        to = kernel * rows * w, w, 1
        for operand, i, end in ((1, 0, first), (0, first, last), (1, last, rows)):
            sizes, target = (n * c, end - i, w), (k * rows + i) * w
            if end == i:
                continue
            source = 0 if operand else (i * stride + k - a["pad"]) * w
            steps = (0, 0, 1) if operand else (h * w, stride * w, 1)
            found.append(Box(operand, source, target, sizes, steps, to))
    return found


def _strides(shape: Ints) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def _merged(box: Box) -> Box:
    """The same box with as few axes as possible."""
    axes: list[tuple[int, int, int]] = []
    for size, a, b in zip(box.sizes, box.source_strides, box.target_strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1:] == (size * a, size * b):
            axes[-1] = axes[-1][0] * size, a, b
        else:
            axes.append((size, a, b))
    sizes, source, target = zip(*(axes or [(1, 1, 1)]), strict=True)
    return Box(box.operand, box.source, box.target, sizes, source, target)


MAX_EXTENT = 0xFFFF  # of an axis of a transfer


def _split(box: Box) -> list[Box]:
    """Boxes of at most BOX_AXES axes whose extents fit the transfer's fields."""
    axes = list(zip(box.sizes, box.source_strides, box.target_strides, strict=True))
    for k, (size, a, b) in enumerate(axes):
        if size > MAX_EXTENT:
            inner = next((d for d in range(MAX_EXTENT, 1, -1) if size % d == 0), 0)
            if not inner:
                return [one for part in _halves(box, k) for one in _split(part)]
            axes[k : k + 1] = [(size // inner, a * inner, b * inner), (inner, a, b)]
            return _split(_of(box, axes))
    if len(axes) <= BOX_AXES:
        return [box]
    outer = min(range(len(axes)), key=lambda k: axes[k][0])
    count, a, b = axes.pop(outer)
    rest = _of(box, axes)
    return [
        one
        for i in range(count)
        for one in _split(_of(rest, axes, rest.source + i * a, rest.target + i * b))
    ]


def _of(
    box: Box, axes: list[tuple[int, int, int]], source: int | None = None, target: int | None = None
) -> Box:
    sizes, a, b = zip(*axes, strict=True)
    source = box.source if source is None else source
    target = box.target if target is None else target
    return Box(box.operand, source, target, sizes, a, b)


def _halves(box: Box, k: int) -> list[Box]:
    """Two boxes that cut an axis of prime extent."""
    axes = list(zip(box.sizes, box.source_strides, box.target_strides, strict=True))
    size, a, b = axes[k]
    half = size // 2
    parts = []
    for first, count in ((0, half), (half, size - half)):
        axes[k] = count, a, b
        parts.append(_of(box, list(axes), box.source + first * a, box.target + first * b))
    return parts
