"""Operations that move elements: reshape, transpose, expand, concat, slice, pad."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value, constant
from intaglio.ops.registry import normalize_axis, op
from intaglio.symint import SymInt, bound, broadcast, slice_length


def _full_rank(x: Value, **attrs: Sequence[int]) -> None:
    for name, values in attrs.items():
        if len(values) != x.type.rank:
            raise BadInput(f"{name} has {len(values)} entries, the tensor has rank {x.type.rank}")


# ---- reshape and transpose -----------------------------------------------------------------------
def resolve_shape(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """`shape` with its -1, if any, replaced by the extent that makes it hold `size` elements."""
    if list(shape).count(-1) > 1 or any(d < -1 for d in shape):
        raise BadInput(f"cannot reshape to {tuple(shape)}; at most one extent may be -1")
    known = math.prod(d for d in shape if d != -1)
    free = size // known if known else 0
    full = tuple(free if d == -1 else d for d in shape)
    if math.prod(full) != size:
        raise BadInput(f"cannot reshape {size} elements to {tuple(shape)}")
    return full


def _reshape(x: Value, *, shape: tuple[int, ...]) -> Type:
    return Type(x.dtype, resolve_shape(shape, x.type.size))


@op(_reshape, tflite="RESHAPE", torch="reshape")
def reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    return x.reshape(resolve_shape(shape, x.size))


def _transpose(x: Value, *, perm: tuple[int, ...]) -> Type:
    if sorted(perm) != list(range(x.type.rank)):
        raise BadInput(f"perm {perm} is not a permutation of the {x.type.rank} axes of {x.type}")
    return Type(x.dtype, tuple(x.shape[i] for i in perm))


@op(_transpose, onnx="Transpose", tflite="TRANSPOSE", torch="permute")
def transpose(x: Array, *, perm: tuple[int, ...]) -> Array:
    return x.transpose(perm)


def channels_last(x: Value) -> Value:
    """Transpose [n, c, ..] to [n, .., c]."""
    return transpose(x, perm=(0, *range(2, x.type.rank), 1))


def channels_first(x: Value) -> Value:
    """Transpose [n, .., c] to [n, c, ..]."""
    return transpose(x, perm=(0, x.type.rank - 1, *range(1, x.type.rank - 1)))


# ---- expand and tile -----------------------------------------------------------------------------
def broadcast_shape(x: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return broadcast(x, shape)
    except ValueError:
        raise BadInput(f"shape {tuple(x)} cannot be expanded to {tuple(shape)}") from None


def _expand(x: Value, *, shape: tuple[int, ...]) -> Type:
    return Type(x.dtype, broadcast_shape(x.shape, shape))


@op(_expand, tflite="BROADCAST_TO", torch="expand")
def expand(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Broadcast x and `shape` together: where `shape` is 1, the extent of x is kept."""
    return np.broadcast_to(x, broadcast_shape(x.shape, shape))


def _tile(x: Value, *, repeats: tuple[int, ...]) -> Type:
    _full_rank(x, repeats=repeats)
    if any(r < 0 for r in repeats):
        raise BadInput(f"repeats {repeats} must not be negative")
    return Type(x.dtype, tuple(d * r for d, r in zip(x.shape, repeats, strict=True)))


@op(_tile, tflite="TILE", torch="tile")
def tile(x: Array, *, repeats: tuple[int, ...]) -> Array:
    return np.tile(x, repeats)


# ---- concat, slice, pad --------------------------------------------------------------------------
def _concat(*xs: Value, axis: int) -> Type:
    if not xs:
        raise BadInput("concat needs at least one tensor")
    axis = normalize_axis(axis, xs[0].type.rank)
    shape = list(xs[0].shape)
    for x in xs[1:]:
        if (
            x.dtype != xs[0].dtype
            or x.type.rank != len(shape)
            or any(a != b for i, (a, b) in enumerate(zip(x.shape, shape, strict=True)) if i != axis)
        ):
            raise BadInput(f"cannot concat {xs[0].type} and {x.type} along axis {axis}")
        shape[axis] += x.shape[axis]
    return Type(xs[0].dtype, tuple(shape))


@op(_concat, onnx="Concat", tflite="CONCATENATION", torch="cat")
def concat(*xs: Array, axis: int) -> Array:
    return np.concatenate(xs, axis)


def _slice_length(extent: int, start: int, stop: int, step: int) -> int:
    return slice_length(extent, start, stop, step)


def _largest_slice(extent: int, start: int, stop: int, step: int) -> int:
    """The longest slice of any extent up to this one; its length is linear between these points."""
    points = {abs(p) + d for p in (start, stop) for d in (-1, 0, 1)} | {0, extent}
    return max(_slice_length(p, start, stop, step) for p in points if 0 <= p <= extent)


def _slice(
    x: Value, *, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]
) -> Type:
    _full_rank(x, start=start, stop=stop, step=step)
    if 0 in step:
        raise BadInput(f"slice steps {step} must not be 0")
    shape = tuple(
        (_largest_slice if i in x.type.dynamic else _slice_length)(*args)
        for i, args in enumerate(zip(x.shape, start, stop, step, strict=True))
    )
    return Type(x.dtype, shape, dynamic=x.type.dynamic)


@op(_slice, name="slice", tflite="STRIDED_SLICE", torch="slice")
def slice_(
    x: Array, *, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]
) -> Array:
    """x[start:stop:step] on every axis, with Python's rules for negative and large indices."""
    return x[tuple(slice(*s) for s in zip(start, stop, step, strict=True))]


def part(x: Value, start: int, stop: int, *, axis: int, step: int = 1) -> Value:
    """x[start:stop:step] along one axis."""
    axis = normalize_axis(axis, x.type.rank)
    starts = tuple(start if i == axis else 0 for i in range(x.type.rank))
    stops = tuple(stop if i == axis else d for i, d in enumerate(x.shape))
    steps = tuple(step if i == axis else 1 for i in range(x.type.rank))
    return slice_(x, start=starts, stop=stops, step=steps)


def count_up(count: int) -> Value:
    """The vector 0, 1, ..., count - 1 (i64); `count` may depend on open dimensions."""
    every = constant(np.arange(bound(count), dtype=np.int64))
    return part(every, 0, count, axis=0) if isinstance(count, SymInt) else every


def _pad(
    x: Value, *, before: tuple[int, ...], after: tuple[int, ...], mode: str, value: float
) -> Type:
    _full_rank(x, before=before, after=after)
    if any(p < 0 for p in (*before, *after)):
        raise BadInput(f"pads {before} and {after} must not be negative; slice instead")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise BadInput(f"pad mode '{mode}' is none of constant, reflect, edge, wrap")
    sides = list(zip(x.shape, before, after, strict=True))
    if mode != "constant" and any(d == 0 and b + a > 0 for d, b, a in sides):
        raise BadInput(f"mode '{mode}' cannot pad an axis of extent 0, the tensor is {x.type}")
    return Type(x.dtype, tuple(b + d + a for d, b, a in sides))


@op(_pad, tflite="PADV2", torch="pad")
def pad(
    x: Array,
    *,
    before: tuple[int, ...],
    after: tuple[int, ...],
    mode: str = "constant",
    value: float = 0.0,
) -> Array:
    width = list(zip(before, after, strict=True))
    if mode == "constant":
        out = np.full([b + d + a for d, (b, a) in zip(x.shape, width, strict=True)], value, x.dtype)
        out[tuple(slice(b, b + d) for d, b in zip(x.shape, before, strict=True))] = x
        return out
    for axis, (b, a) in enumerate(width):
        if b + a:
            extent = x.shape[axis]
            at = np.arange(-b, extent + a)
            if mode == "edge":
                at = at.clip(0, extent - 1)
            elif mode == "wrap":
                at %= extent
            else:  # reflect, without repeating the end elements
                at = np.abs((at + extent - 1) % max(2 * extent - 2, 1) - (extent - 1))
            x = x.take(at, axis)
    return x


def axis_groups(
    a: Sequence[int], b: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Split two shapes of equal size into the shortest runs of axes with equal products."""
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        first, second = i, j
        left = right = 1
        if i < len(a):
            left, i = a[i], i + 1
        if j < len(b):
            right, j = b[j], j + 1
        while left != right:
            if j == len(b) or (i < len(a) and bound(left) < bound(right)):
                left, i = left * a[i], i + 1
            else:
                right, j = right * b[j], j + 1
        groups.append((tuple(range(first, i)), tuple(range(second, j))))
    return groups
