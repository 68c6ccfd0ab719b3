"""Prints steps that only move elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intaglio import dtypes
from intaglio.ops.registry import normalize_axis
from intaglio.plan import Step, Tensor

if TYPE_CHECKING:
    from intaglio.export.deploy.calls import Printer

RANK = 6


def _strides(shape: Sequence[int], size: int) -> list[int]:
    return [size * math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _move(
    p: Printer,
    x: Tensor,
    y: Tensor,
    shape: Sequence[int],
    x_step: Sequence[int],
    y_step: Sequence[int],
    x_at: int = 0,
    y_at: int = 0,
) -> None:
    """Copy a tensor of `shape` between strides in bytes."""
    size = y.type.bytes // max(y.type.size, 1)
    merged: list[tuple[int, int, int]] = []
    for d, u, v in reversed(list(zip(shape, x_step, y_step, strict=True))):
        if d == 1:
            continue
        if merged and u == merged[-1][0] * merged[-1][1] and v == merged[-1][0] * merged[-1][2]:
            merged[-1] = (merged[-1][0] * d, *merged[-1][1:])
        else:
            merged.append((d, u, v))
    merged = [*(merged or [(1, size, size)])][::-1]
    axes = [*[(1, 0, 0)] * (RANK - len(merged)), *merged]
    columns = [list(c) for c in zip(*axes, strict=True)]
    fields = dict(zip(("shape", "x_step", "y_step"), columns, strict=True)) | {"size": size}
    layer = p.layer("itg_moves", fields)
    source, to = p.address(x, "uint8_t"), p.address(y, "uint8_t")
    p.call("move", "itg_move", layer, _plus(source, x_at), _plus(to, y_at))


def _plus(address: str, by: int) -> str:
    return f"{address} + {by}" if by else address


def _ends(step: Step) -> tuple[Tensor, Tensor, int]:
    x, y = step.inputs[0], step.outputs[0]
    assert x is not None
    return x, y, y.type.bytes // max(y.type.size, 1)


def copy(p: Printer, x: Tensor, y: Tensor) -> None:
    """Copy all bytes, unless they lie there already."""
    if (x.memory, x.slot, x.offset) != (y.memory, y.slot, y.offset) or x.fixed:
        size = y.type.bytes // max(y.type.size, 1)
        _move(p, x, y, (y.type.size,), [size], [size])


def _reshape(p: Printer, step: Step) -> None:
    x, y, _ = _ends(step)
    copy(p, x, y)


def _transpose(p: Printer, step: Step) -> None:
    x, y, size = _ends(step)
    steps = _strides(x.type.shape, size)
    moved = [steps[a] for a in step.attrs["perm"]]
    _move(p, x, y, y.type.shape, moved, _strides(y.type.shape, size))


def _concat(p: Printer, step: Step) -> None:
    y = step.outputs[0]
    size, at = y.type.bytes // max(y.type.size, 1), 0
    axis = normalize_axis(step.attrs["axis"], y.type.rank)
    steps = _strides(y.type.shape, size)
    for x in step.inputs:
        assert x is not None
        shape = x.type.shape
        _move(p, x, y, shape, _strides(shape, size), steps, y_at=at * steps[axis])
        at += shape[axis]


def _slice(p: Printer, step: Step) -> None:
    x, y, size = _ends(step)
    steps, at, moved = _strides(x.type.shape, size), 0, []
    bounds = zip(*(step.attrs[k] for k in ("start", "stop", "step")), strict=True)
    for d, bound, by in zip(x.type.shape, bounds, steps, strict=True):
        first, _, stride = slice(*bound).indices(d)
        at += first * by
        moved.append(stride * by)
    _move(p, x, y, y.type.shape, moved, _strides(y.type.shape, size), x_at=at)


def _expand(p: Printer, step: Step) -> None:
    x, y, size = _ends(step)
    rank = y.type.rank
    shape = (1,) * (rank - x.type.rank) + tuple(x.type.shape)
    steps = [0 if d == 1 else s for d, s in zip(shape, _strides(shape, size), strict=True)]
    _move(p, x, y, y.type.shape, steps, _strides(y.type.shape, size))


def _pad(p: Printer, step: Step) -> None:
    x, y, size = _ends(step)
    before = step.attrs["before"]
    filling = np.array(step.attrs["value"]).astype(dtypes.numpy_of(y.type.dtype)).tobytes()
    steps = _strides(y.type.shape, size)
    if len(set(filling)) == 1:
        p.call("move", "itg_fill", str(y.type.bytes), str(filling[0]), p.address(y, "uint8_t"))
    else:
        one = Tensor.const(np.frombuffer(filling, dtypes.numpy_of(y.type.dtype)), y.type)
        _move(p, one, y, y.type.shape, [0] * y.type.rank, steps)
    at = sum(b * s for b, s in zip(before, steps, strict=True))
    _move(p, x, y, x.type.shape, _strides(x.type.shape, size), steps, y_at=at)


def _interpolate(p: Printer, step: Step) -> None:
    """Nearest neighbours along an axis: runs of places with one distance, repeated or not."""
    x, y, size = _ends(step)
    axis = normalize_axis(step.attrs["axis"], x.type.rank)
    table = step.inputs[1]
    assert table is not None
    assert table.data is not None
    index = [int(i) for i in table.data[:, 0]]
    outer, inner = math.prod(x.type.shape[:axis]), math.prod(x.type.shape[axis + 1 :])
    row = inner * size
    x_outer, y_outer = x.type.shape[axis] * row, len(index) * row
    for first, count, times, by in nearest_runs(index):
        _move(
            p,
            x,
            y,
            (outer, count, times, inner),
            (x_outer, by * row, 0, size),
            (y_outer, times * row, row, size),
            x_at=index[first] * row,
            y_at=first * row,
        )


def nearest_runs(index: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """An index as runs: first place, number of values, how often each, their distance."""
    runs: list[tuple[int, int, int, int]] = []
    at = 0
    while at < len(index):
        times = _equal(index, at)
        by, count = 0, 1
        following = at + times
        if following < len(index) and _equal(index, following) >= times:
            by = index[following] - index[at]
        while following < len(index) and by:
            if index[following] != index[at] + count * by or _equal(index, following) < times:
                break
            count, following = count + 1, following + times
            if _equal(index, following - times) > times:
                break
        runs.append((at, count, times, by))
        at += count * times
    return runs


def _equal(index: Sequence[int], at: int) -> int:
    """How many places from `at` on are the same."""
    n = at
    while n < len(index) and index[n] == index[at]:
        n += 1
    return n - at


MOVES: dict[str, Callable[[Printer, Step], None]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "concat": _concat,
    "slice": _slice,
    "expand": _expand,
    "pad": _pad,
    "interpolate": _interpolate,
}
