"""Operations that move elements about without computing with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Type, Value
from intaglio.ops.registry import normalize_axis, op


def _full_rank(x: Value, **attrs: Sequence[int]) -> None:
    for name, values in attrs.items():
        if len(values) != x.type.rank:
            raise BadInput(f"{name} has {len(values)} entries, the tensor has rank {x.type.rank}")


# ---- the same elements in another shape ----------------------------------------------------------
def _resolve(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """`shape` with its one -1 replaced by whatever makes it hold `size` elements."""
    if list(shape).count(-1) > 1 or min(shape, default=0) < -1:
        raise BadInput(f"cannot reshape to {tuple(shape)}; at most one extent may be -1")
    known = math.prod(d for d in shape if d != -1)
    free = size // known if known else 0
    full = tuple(free if d == -1 else d for d in shape)
    if math.prod(full) != size:
        raise BadInput(f"cannot reshape {size} elements to {tuple(shape)}")
    return full


def _reshape(x: Value, *, shape: tuple[int, ...]) -> Type:
    return Type(x.dtype, _resolve(shape, x.type.size))


@op(_reshape, tflite="RESHAPE", torch="reshape")
def reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    return x.reshape(_resolve(shape, x.size))


def _transpose(x: Value, *, perm: tuple[int, ...]) -> Type:
    if sorted(perm) != list(range(x.type.rank)):
        raise BadInput(f"perm {perm} is no permutation of the {x.type.rank} axes of {x.type}")
    return Type(x.dtype, tuple(x.shape[i] for i in perm))


@op(_transpose, onnx="Transpose", tflite="TRANSPOSE", torch="permute")
def transpose(x: Array, *, perm: tuple[int, ...]) -> Array:
    return x.transpose(perm)


def channels_last(x: Value) -> Value:
    """[n, c, ..] as [n, .., c]."""
    return transpose(x, perm=(0, *range(2, x.type.rank), 1))


def channels_first(x: Value) -> Value:
    """[n, .., c] as [n, c, ..]."""
    return transpose(x, perm=(0, x.type.rank - 1, *range(1, x.type.rank - 1)))


# ---- repeating -----------------------------------------------------------------------------------
def _broadcast(x: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(tuple(x), tuple(shape))
    except ValueError:
        raise BadInput(f"shape {tuple(x)} cannot be expanded to {tuple(shape)}") from None


def _expand(x: Value, *, shape: tuple[int, ...]) -> Type:
    return Type(x.dtype, _broadcast(x.shape, shape))


@op(_expand, tflite="BROADCAST_TO", torch="expand")
def expand(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Broadcast x and `shape` together: where `shape` says 1, the extent of x stays."""
    return np.broadcast_to(x, _broadcast(x.shape, shape))


def _tile(x: Value, *, repeats: tuple[int, ...]) -> Type:
    _full_rank(x, repeats=repeats)
    if min(repeats, default=0) < 0:
        raise BadInput(f"repeats {repeats} must not be negative")
    return Type(x.dtype, tuple(d * r for d, r in zip(x.shape, repeats, strict=True)))


@op(_tile, tflite="TILE", torch="tile")
def tile(x: Array, *, repeats: tuple[int, ...]) -> Array:
    return np.tile(x, repeats)


# ---- joining, cutting, padding -------------------------------------------------------------------
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


def _cut(extent: int, start: int, stop: int, step: int) -> int:
    return len(range(*slice(start, stop, step).indices(extent)))


def _largest_cut(extent: int, start: int, stop: int, step: int) -> int:
    """The longest cut that any extent up to this one gives: it is linear between these points."""
    points = {abs(p) + d for p in (start, stop) for d in (-1, 0, 1)} | {0, extent}
    return max(_cut(p, start, stop, step) for p in points if 0 <= p <= extent)


def _slice(
    x: Value, *, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]
) -> Type:
    _full_rank(x, start=start, stop=stop, step=step)
    if 0 in step:
        raise BadInput(f"slice steps {step} must not be 0")
    shape = tuple(
        (_largest_cut if i in x.type.dynamic else _cut)(*args)
        for i, args in enumerate(zip(x.shape, start, stop, step, strict=True))
    )
    return Type(x.dtype, shape, dynamic=x.type.dynamic)


@op(_slice, name="slice", tflite="STRIDED_SLICE", torch="slice")
def slice_(
    x: Array, *, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]
) -> Array:
    """x[start:stop:step] on every axis, as Python counts: negative from the end, clamped."""
    return x[tuple(slice(*s) for s in zip(start, stop, step, strict=True))]


def part(x: Value, start: int, stop: int, *, axis: int, step: int = 1) -> Value:
    """x[start:stop:step] along one axis."""
    axis = normalize_axis(axis, x.type.rank)
    starts = tuple(start if i == axis else 0 for i in range(x.type.rank))
    stops = tuple(stop if i == axis else d for i, d in enumerate(x.shape))
    steps = tuple(step if i == axis else 1 for i in range(x.type.rank))
    return slice_(x, start=starts, stop=stops, step=steps)


def _pad(
    x: Value, *, before: tuple[int, ...], after: tuple[int, ...], mode: str, value: float
) -> Type:
    _full_rank(x, before=before, after=after)
    if min((*before, *after), default=0) < 0:
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
            else:  # reflect: back and forth between the two end elements
                at = np.abs((at + extent - 1) % max(2 * extent - 2, 1) - (extent - 1))
            x = x.take(at, axis)
    return x


# ---- blocks of pixels to channels and back -------------------------------------------------------
def _image(x: Value, blocksize: int) -> tuple[int, int, int, int]:
    if x.type.rank != 4 or blocksize < 1:
        raise BadInput(
            f"blocks need a rank-4 tensor and a blocksize above 0: {x.type}, {blocksize}"
        )
    return x.shape  # type: ignore[return-value]  # the rank is 4


def _block_mode(mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        raise BadInput(f"mode '{mode}' is neither DCR (depth, column, row) nor CRD")


def _batch_free(x: Value) -> tuple[int, ...]:
    return (-1, *x.shape[1:]) if 0 in x.type.dynamic else x.shape


def _depth_to_space(x: Value, *, blocksize: int, mode: str) -> Type:
    n, c, h, w = _image(x, blocksize)
    _block_mode(mode)
    if c % blocksize**2:
        raise BadInput(f"{c} channels are no multiple of blocksize² = {blocksize**2}")
    return Type(x.dtype, (n, c // blocksize**2, h * blocksize, w * blocksize))


def depth_to_space_steps(
    shape: tuple[int, ...], b: int, mode: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The shape in which an image is cut, how its axes move, and the shape that is left."""
    n, c, h, w = shape
    c //= b * b
    split = (n, b, b, c, h, w) if mode == "DCR" else (n, c, b, b, h, w)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return split, perm, (n, c, h * b, w * b)


@op(_depth_to_space, onnx="DepthToSpace")
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    split, perm, shape = depth_to_space_steps(x.shape, blocksize, mode)
    return x.reshape(split).transpose(perm).reshape(shape)


@depth_to_space.lowers
def _lower_depth_to_space(x: Value, *, blocksize: int, mode: str) -> Value:
    split, perm, shape = depth_to_space_steps(_batch_free(x), blocksize, mode)
    return reshape(transpose(reshape(x, shape=split), perm=perm), shape=shape)


def _space_to_depth(x: Value, *, blocksize: int, mode: str) -> Type:
    n, c, h, w = _image(x, blocksize)
    _block_mode(mode)
    if h % blocksize or w % blocksize:
        raise BadInput(f"height {h} and width {w} are no multiples of the blocksize {blocksize}")
    return Type(x.dtype, (n, c * blocksize**2, h // blocksize, w // blocksize))


def space_to_depth_steps(
    shape: tuple[int, ...], b: int, mode: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The shape in which an image is cut, how its axes move, and the shape that is left."""
    n, c, h, w = shape
    h, w = h // b, w // b
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return (n, c, h, b, w, b), perm, (n, c * b * b, h, w)


@op(_space_to_depth, onnx="SpaceToDepth")
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    split, perm, shape = space_to_depth_steps(x.shape, blocksize, mode)
    return x.reshape(split).transpose(perm).reshape(shape)


@space_to_depth.lowers
def _lower_space_to_depth(x: Value, *, blocksize: int, mode: str) -> Value:
    split, perm, shape = space_to_depth_steps(_batch_free(x), blocksize, mode)
    return reshape(transpose(reshape(x, shape=split), perm=perm), shape=shape)


def _channel_shuffle(x: Value, *, groups: int) -> Type:
    if x.type.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise BadInput(f"the channels of {x.type} cannot be dealt out of {groups} groups")
    return Type(x.dtype, x.shape)


@op(_channel_shuffle, torch="channel_shuffle")
def channel_shuffle(x: Array, *, groups: int) -> Array:
    """Deal channels out of `groups` groups in turn: the first of each, the second of each, ..."""
    n, c, *rest = x.shape
    return x.reshape(n, groups, c // groups, *rest).swapaxes(1, 2).reshape(x.shape)


@channel_shuffle.lowers
def _lower_channel_shuffle(x: Value, *, groups: int) -> Value:
    n, c, *rest = _batch_free(x)
    split = reshape(x, shape=(n, groups, c // groups, *rest))
    swapped = transpose(split, perm=(0, 2, 1, *range(3, x.type.rank + 1)))
    return reshape(swapped, shape=(n, c, *rest))


# ---- shapes that are known only at run time ------------------------------------------------------
# `bound` is the largest shape; `dynamic` the axes that may stay below it, None meaning all of them.
def _bounded(dtype: str, bound: tuple[int, ...], dynamic: tuple[int, ...] | None = None) -> Type:
    axes = range(len(bound)) if dynamic is None else dynamic
    return Type(dtype, tuple(bound), dynamic=tuple(axes))


def _within(shape: Sequence[int], bound: tuple[int, ...], what: str) -> None:
    if len(shape) != len(bound) or any(d > b for d, b in zip(shape, bound, strict=True)):
        raise RunError(f"{what}: shape {tuple(shape)} exceeds the declared {bound}")


def _vector(v: Value, what: str, entries: int | None = None) -> None:
    if v.dtype not in ("i32", "i64") or v.type.rank != 1:
        raise BadInput(f"{what} must be a vector of i32 or i64, it is {v.type}")
    if entries is not None and v.shape[0] != entries:
        raise BadInput(f"{what} has {v.shape[0]} entries, {entries} are needed")


def _shape_of(x: Value) -> Type:
    return Type("i64", (x.type.rank,))


@op(_shape_of, onnx="Shape")
def shape_of(x: Array) -> Array:
    """The true shape; kept only where an extent is known at run time alone."""
    return np.array(x.shape, np.int64)


def _range(start: Value, limit: Value, delta: Value, *, bound: tuple[int, ...]) -> Type:
    for v in (start, limit, delta):
        if v.type.size != 1 or v.dtype != start.dtype:
            raise BadInput(f"range needs three scalars of one type, it was given {v.type}")
    if len(bound) != 1:
        raise BadInput(f"range makes a vector; the bound {bound} must have one entry")
    return _bounded(start.dtype, bound)


@op(_range, name="range")
def range_(start: Array, limit: Array, delta: Array, *, bound: tuple[int, ...]) -> Array:
    first, last, step = (a.reshape(-1)[0].item() for a in (start, limit, delta))
    if step == 0:
        raise RunError("range: delta is 0")
    count = max(math.ceil((last - first) / step), 0)
    _within([count], bound, "range")
    wide: Any = np.float64 if isinstance(first, float) else np.int64
    return (wide(first) + np.arange(count, dtype=wide) * wide(step)).astype(start.dtype)


def _reshape_to(
    x: Value, shape: Value, *, bound: tuple[int, ...], dynamic: tuple[int, ...] | None
) -> Type:
    _vector(shape, "the shape", len(bound))
    return _bounded(x.dtype, bound, dynamic)


@op(_reshape_to)
def reshape_to(
    x: Array, shape: Array, *, bound: tuple[int, ...], dynamic: tuple[int, ...] | None = None
) -> Array:
    full = _resolve(shape.tolist(), x.size)
    _within(full, bound, "reshape_to")
    return x.reshape(full)


def _expand_to(
    x: Value, shape: Value, *, bound: tuple[int, ...], dynamic: tuple[int, ...] | None
) -> Type:
    _vector(shape, "the shape")
    if max(shape.shape[0], x.type.rank) != len(bound):
        raise BadInput(f"expanding {x.type} by {shape.type} cannot give rank {len(bound)}")
    return _bounded(x.dtype, bound, dynamic)


@op(_expand_to)
def expand_to(
    x: Array, shape: Array, *, bound: tuple[int, ...], dynamic: tuple[int, ...] | None = None
) -> Array:
    full = _broadcast(x.shape, shape.tolist())
    _within(full, bound, "expand_to")
    return np.broadcast_to(x, full)


def _slice_to(
    x: Value,
    starts: Value,
    stops: Value,
    steps: Value,
    *,
    axes: tuple[int, ...],
    bound: tuple[int, ...],
) -> Type:
    for what, v in (("starts", starts), ("stops", stops), ("steps", steps)):
        _vector(v, what, len(axes))
    if len(bound) != x.type.rank or not all(0 <= a < x.type.rank for a in axes):
        raise BadInput(f"slice_to of {x.type} cannot have axes {axes} and bound {bound}")
    dynamic = tuple(sorted({*axes, *x.type.dynamic}))
    shape = tuple(
        b if i in axes else d for i, (b, d) in enumerate(zip(bound, x.shape, strict=True))
    )
    return Type(x.dtype, shape, dynamic=dynamic)


@op(_slice_to)
def slice_to(
    x: Array,
    starts: Array,
    stops: Array,
    steps: Array,
    *,
    axes: tuple[int, ...],
    bound: tuple[int, ...],
) -> Array:
    at = [slice(None)] * x.ndim
    for axis, *cut in zip(axes, starts.tolist(), stops.tolist(), steps.tolist(), strict=True):
        if cut[2] == 0:
            raise RunError("slice_to: a step is 0")
        at[axis] = slice(*cut)
    out = x[tuple(at)]
    _within(out.shape, bound, "slice_to")
    return out


def axis_groups(
    a: Sequence[int], b: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The finest way to cut two shapes of equal size into runs of axes of equal product."""
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
            if left < right:
                left, i = left * a[i], i + 1
            else:
                right, j = right * b[j], j + 1
        groups.append((tuple(range(first, i)), tuple(range(second, j))))
    return groups
