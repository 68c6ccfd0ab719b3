"""Ops whose result shape is known only at run time.

`bound` is the largest shape; `dynamic` lists the axes that may be shorter (None: all of them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Type, Value
from intaglio.ops.registry import op
from intaglio.ops.shape import broadcast_shape, resolve_shape


def _bounded(dtype: str, bound: tuple[int, ...], dynamic: tuple[int, ...] | None = None) -> Type:
    axes = range(len(bound)) if dynamic is None else dynamic
    return Type(dtype, tuple(bound), dynamic=tuple(axes))


def _within(shape: Sequence[int], bound: tuple[int, ...], what: str) -> None:
    if len(shape) != len(bound) or any(d > b for d, b in zip(shape, bound, strict=True)):
        raise RunError(f"{what}: shape {tuple(shape)} exceeds the bound {bound}")


def _vector(v: Value, what: str, entries: int | None = None) -> None:
    if v.dtype not in ("i32", "i64") or v.type.rank != 1:
        raise BadInput(f"{what} must be a vector of i32 or i64, it is {v.type}")
    if entries is not None and v.shape[0] != entries:
        raise BadInput(f"{what} has {v.shape[0]} entries, {entries} are needed")


def _shape_of(x: Value) -> Type:
    return Type("i64", (x.type.rank,))


@op(_shape_of, onnx="Shape")
def shape_of(x: Array) -> Array:
    """The shape at run time; exists only where an extent is known only then."""
    return np.array(x.shape, np.int64)


def _range(start: Value, limit: Value, delta: Value, *, bound: tuple[int, ...]) -> Type:
    for v in (start, limit, delta):
        if v.type.size != 1 or v.dtype != start.dtype:
            raise BadInput(f"range needs three scalars of one type, it was given {v.type}")
    if len(bound) != 1:
        raise BadInput(f"range has bound {bound}; its result is a vector, so one entry is needed")
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
    full = resolve_shape(shape.tolist(), x.size)
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
    full = broadcast_shape(x.shape, shape.tolist())
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
