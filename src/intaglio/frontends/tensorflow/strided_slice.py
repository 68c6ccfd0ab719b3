"""Importers of Slice and StridedSlice with all masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.frontends.tensorflow.shape import entries, reshaped
from intaglio.ir import Value


@importer("Slice")
def slice_(n: TfNode) -> Value:
    x, size = n.value(0), n.ints(2)
    if len(size) != x.type.rank:
        raise BadInput(f"{len(size)} sizes do not fit {x.type}; one per axis is needed")
    if not n.is_const(1):
        return _slice_at_run_time(n, x, size)
    start = n.ints(1)
    stop = tuple(d if s < 0 else b + s for b, s, d in zip(start, size, x.shape, strict=True))
    if any(not 0 <= b <= e <= d for b, e, d in zip(start, stop, x.shape, strict=True)):
        raise BadInput(f"the slice from {start} to {stop} is outside of {x.type}")
    result: Value = ops.slice_(x, start=start, stop=stop, step=(1,) * x.type.rank)
    return result


def _slice_at_run_time(n: TfNode, x: Value, size: tuple[int, ...]) -> Value:
    """A slice of fixed size at a run-time position, as a gather per axis."""
    places = entries(n.value(1))
    if places is None or len(places) != x.type.rank:
        n.const(1)  # raises with the remedy
    result = x
    for axis, (p, s) in enumerate(zip(places or [], size, strict=True)):
        d = x.shape[axis]
        if p.data is not None:
            b = int(p.data.reshape(-1)[0])
            result = ops.part(result, b, d if s < 0 else b + s, axis=axis)
        elif s < 0:
            n.unsupported(
                f"axis {axis} starts at a run-time position and runs to the end; give it a fixed "
                "size"
            )
        else:
            steps = np.arange(s, dtype=np.int64)
            index = ops.add(ops.reshape(ops.cast(p, dtype="i64"), shape=(1,)), steps)
            result = ops.gather(result, index, axis=axis)
    return result


@dataclass
class _Axis:
    """The slice of one axis of the operand; `index` if one index is taken."""

    start: int
    stop: int
    step: int
    index: Value | None = None
    single: bool = False


@importer("StridedSlice")
def strided_slice(n: TfNode) -> Value:
    x = n.value(0)
    axes, shape = _slices_of(n, x)
    result: Value = ops.slice_(
        x,
        start=tuple(a.start for a in axes),
        stop=tuple(a.stop for a in axes),
        step=tuple(a.step for a in axes),
    )
    for i, a in enumerate(axes):
        if a.index is not None:
            row = ops.reshape(ops.cast(a.index, dtype="i64"), shape=(1,))
            result = ops.gather(result, row, axis=i)
    return result if shape == tuple(range(x.type.rank)) else reshaped(result, shape)


def _slices_of(n: TfNode, x: Value) -> tuple[list[_Axis], tuple[int, ...]]:
    """The slice of every axis, and the axes of the result, -1 for new ones."""
    begin, end = (entries(n.value(i)) for i in (1, 2))
    step = n.ints(3)
    if begin is None or end is None:
        n.const(1 if begin is None else 2)  # raises with the remedy
        raise AssertionError("a constant has entries")
    if len(begin) != len(end) or len(begin) != len(step):
        raise BadInput(
            f"{len(begin)} begins, {len(end)} ends and {len(step)} strides differ in number"
        )
    masks = {
        m: n.attr(f"{m}_mask", 0) for m in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    axes: list[_Axis] = []
    shape: list[int] = []
    seen = False
    for i in range(len(begin)):
        bit = {m: bool(v >> i & 1) for m, v in masks.items()}
        if bit["ellipsis"] and not seen:
            seen = True
            later = sum(not masks["new_axis"] >> k & 1 for k in range(i + 1, len(begin)))
            while len(axes) < x.type.rank - later:
                shape.append(len(axes))
                axes.append(_Axis(0, x.shape[len(axes)], 1))
        elif bit["new_axis"]:
            shape.append(-1)
        else:
            if len(axes) >= x.type.rank:
                raise BadInput(f"it slices more axes than {x.type} has")
            axis = _axis_slice(n, begin[i], end[i], step[i], x.shape[len(axes)], bit)
            if not axis.single:
                shape.append(len(axes))
            axes.append(axis)
    while len(axes) < x.type.rank:
        shape.append(len(axes))
        axes.append(_Axis(0, x.shape[len(axes)], 1))
    return axes, tuple(shape)


def _axis_slice(
    n: TfNode, begin: Value, end: Value, step: int, d: int, bit: dict[str, bool]
) -> _Axis:
    if bit["shrink_axis"]:
        if begin.data is None:
            return _Axis(0, d, 1, begin, True)
        place = int(begin.data.reshape(-1)[0])
        place = place + d if place < 0 else place
        if not 0 <= place < d:
            raise BadInput(f"index {place} is outside of the extent {d}")
        return _Axis(place, place + 1, 1, None, True)
    if not step:
        raise BadInput("a stride is 0; it must not be")
    ends = []
    for v, open_, default in (
        (begin, "begin", 0 if step > 0 else d - 1),
        (end, "end", d if step > 0 else -d - 1),
    ):
        if bit[open_]:
            ends.append(default)
        elif v.data is None:
            n.unsupported(
                f"its {open_} is known only at run time; one index or a window of fixed size is "
                "supported"
            )
        else:
            ends.append(int(v.data.reshape(-1)[0]))
    return _Axis(ends[0], ends[1], step)
