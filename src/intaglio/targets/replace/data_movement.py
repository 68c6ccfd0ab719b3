"""Replace transposes, pads, gathers, slices and tiles by simpler data movement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value, constant
from intaglio.rewrite import P, Rule, no
from intaglio.targets.replace.builder import (
    Ints,
    Span,
    like,
    pad_or_crop,
    replacement,
    reshaped,
    sliced,
    sliced_axis,
    transposed,
)

x, i = P["x i!"]


# ---- transposes ----------------------------------------------------------------------------------
def _joined(shape: Ints, perm: Ints) -> tuple[Ints, Ints]:
    """The same transpose with adjacent axes merged and unit axes dropped."""
    runs: list[list[int]] = []
    for p in (p for p in perm if shape[p] != 1):
        if runs and all(shape[k] == 1 for k in range(runs[-1][-1] + 1, p)) and p > runs[-1][-1]:
            runs[-1].append(p)
        else:
            runs.append([p])
    order = sorted(range(len(runs)), key=lambda k: runs[k][0])
    extents = tuple(math.prod(shape[p] for p in runs[k]) for k in order)
    return extents, tuple(order.index(k) for k in range(len(runs)))


def transpose_in_steps(rank: int = 4) -> Rule:
    """For units that transpose tensors of at most `rank` axes, 4 or more."""

    @replacement(P.transpose(x))
    def transpose_in_steps(node: Node, x: Value) -> Any:
        """Merge adjacent axes of a transpose, or swap groups of axes step by step; exact."""
        if x.type.rank <= rank:
            return None
        shape, perm = _joined(x.shape, node.attrs["perm"])
        if len(shape) <= rank:
            return reshaped(transposed(reshaped(x, *shape), *perm), *node.outputs[0].shape)
        y, order = x, list(range(len(perm)))
        for to in range(len(perm)):
            at = order.index(perm[to])
            if at == to:
                continue
            end = at + 1
            while end < len(perm) and order[end] == perm[to + end - at]:
                end += 1
            parts = [order[:to], order[to:at], order[at:end], order[end:]]
            y = reshaped(y, *(math.prod(shape[k] for k in part) for part in parts))
            y = transposed(y, 0, 2, 1, 3)
            order = [*parts[0], *parts[2], *parts[1], *parts[3]]
        return reshaped(y, *node.outputs[0].shape)

    return transpose_in_steps


# ---- gathers and pads ----------------------------------------------------------------------------
def _ascending(at: Sequence[int]) -> list[Span]:
    """Consecutive indices merged to spans."""
    spans: list[Span] = []
    for k in at:
        if spans and k == spans[-1][1]:
            spans[-1] = (spans[-1][0], k + 1)
        else:
            spans.append((k, k + 1))
    return spans


def _taken(x: Value, axis: int, spans: list[Span]) -> Value:
    """These spans of an axis, concatenated."""
    results = {s: sliced_axis(x, axis, *s) for s in dict.fromkeys(spans)}
    return (
        results[spans[0]]
        if len(spans) == 1
        else ops.concat(*(results[s] for s in spans), axis=axis)
    )


def gather_as_slices(most: int = 16) -> Rule:
    """For units without gather; `most`: the maximum number of slices."""

    @replacement(P.gather(x, i))
    def gather_as_slices(node: Node, x: Value, i: Value) -> Any:
        """Replace a gather with constant indices by slices and a concat; exact."""
        axis = node.attrs["axis"] % x.type.rank
        extent = x.shape[axis]
        at = [int(k) + extent * (k < 0) for k in np.asarray(i.data).ravel()]
        if not at or min(at) < 0 or max(at) >= extent:
            return no(f"indices {at[:4]}... exceed {extent}")
        spans = _ascending(at)
        if len(spans) > most:
            return no(f"{len(spans)} slices; at most {most} are allowed")
        return reshaped(_taken(x, axis, spans), *node.outputs[0].shape)

    return gather_as_slices


def pad_as_concat(most: int = 64) -> Rule:
    """For units that cannot pad, or only with zeros; `most`: the maximum number of slices
    per axis.
    """

    @replacement(P.pad(x))
    def pad_as_concat(node: Node, x: Value) -> Any:
        """Replace a pad by a concat with constants or slices of the tensor; exact."""
        a, mode = node.attrs, node.attrs["mode"]
        sides = list(zip(a["before"], a["after"], strict=True))
        if mode != "constant":
            cuts = [_places(d, *s, mode) for d, s in zip(x.shape, sides, strict=True)]
            if max(map(len, cuts)) > most:
                return no(f"{max(map(len, cuts))} slices; at most {most} are allowed")
            y = x
            for axis, spans in enumerate(cuts):
                y = _taken(y, axis, spans)
            return y
        y = x
        for axis, (before, after) in enumerate(sides):
            parts = [y]
            if before:
                parts.insert(0, _block(y, axis, before, a["value"]))
            if after:
                parts.append(_block(y, axis, after, a["value"]))
            y = ops.concat(*parts, axis=axis) if len(parts) > 1 else y
        return y

    return pad_as_concat


def _places(extent: int, before: int, after: int, mode: str) -> list[Span]:
    """The spans of an axis that its padded form consists of."""
    if not before and not after:
        return [(0, extent)]
    line = np.arange(extent)
    return _ascending(ops.pad.body(line, before=(before,), after=(after,), mode=mode).tolist())


def _block(x: Value, axis: int, extent: int, value: float) -> Value:
    shape = tuple(extent if k == axis else d for k, d in enumerate(x.shape))
    return like(x, np.full(shape, value))


# ---- slices with a step --------------------------------------------------------------------------
def _ranges(node: Node, x: Value) -> list[range]:
    a = node.attrs
    cuts = zip(a["start"], a["stop"], a["step"], strict=True)
    return [range(*slice(*c).indices(d)) for c, d in zip(cuts, x.shape, strict=True)]


def _steps(ranges: list[range]) -> list[int]:
    """The axes with a step other than 1."""
    return [k for k, r in enumerate(ranges) if r.step != 1 and len(r) > 1]


def _without_steps(x: Value, ranges: list[range]) -> Value:
    """`x` sliced along the axes with step 1."""
    steps = _steps(ranges)
    whole = [
        (0, d) if k in steps else (r.start, r.start + len(r))
        for k, (r, d) in enumerate(zip(ranges, x.shape, strict=True))
    ]
    return sliced(x, whole)


@replacement(P.slice(x))
def strided_slice_as_reshape(node: Node, x: Value) -> Any:
    """Replace a strided slice by reshape to a matrix and its first column; exact."""
    ranges = _ranges(node, x)
    if not _steps(ranges) or not node.outputs[0].type.size:
        return None
    if any(ranges[k].step < 0 for k in _steps(ranges)):
        return no("a step is negative")
    y = _without_steps(x, ranges)
    for k in _steps(ranges):
        r = ranges[k]
        shape, whole = list(y.shape), len(r) * r.step
        front = [r.start * (a == k) for a in range(len(shape))]
        back = [(r.start + whole - shape[k]) * (a == k) for a in range(len(shape))]
        y = pad_or_crop(y, [-f for f in front], back)
        matrix = reshaped(y, math.prod(shape[:k]), len(r), r.step, math.prod(shape[k + 1 :]))
        shape[k] = len(r)
        y = reshaped(sliced_axis(matrix, 2, 0, 1), *shape)
    return y


@replacement(P.slice(x))
def strided_slice_as_gather(node: Node, x: Value) -> Any:
    """Replace a strided slice by a gather; exact."""
    ranges = _ranges(node, x)
    if not _steps(ranges):
        return None
    y = _without_steps(x, ranges)
    for k in _steps(ranges):
        y = ops.gather(y, constant(np.array(ranges[k], np.int64)), axis=k)
    return y


@replacement(P.slice(x))
def strided_slice_as_pool(node: Node, x: Value) -> Any:
    """Replace a strided slice of an image by a 1x1 max pooling with stride; exact."""
    ranges = _ranges(node, x)
    steps = _steps(ranges)
    if not steps or not node.outputs[0].type.size:
        return None
    if x.type.rank not in (3, 4, 5) or min(steps) < 2 or min(ranges[k].step for k in steps) < 0:
        return no(f"axes {steps} of {x.type}: only spatial axes with positive steps are supported")
    n = x.type.rank - 2
    seen = sliced(
        x, [(r.start, r.stop if k in steps else r.start + len(r)) for k, r in enumerate(ranges)]
    )
    stride = tuple(ranges[k].step if k in steps else 1 for k in range(2, n + 2))
    return ops.max_pool(seen, kernel=(1,) * n, stride=stride, pad=(0,) * 2 * n, dilation=(1,) * n)


# ---- copies --------------------------------------------------------------------------------------
def repeat_as_concat(most: int = 64) -> Rule:
    """For units without tile and expand; `most`: the maximum number of copies."""

    @replacement(P.op(("tile", "expand"), x))
    def repeat_as_concat(node: Node, x: Value) -> Any:
        """Replace a tile or expand by a concat of copies; exact."""
        out = node.outputs[0].shape
        lead = (1,) * (len(out) - x.type.rank)
        if node.op == "tile":
            times = node.attrs["repeats"]
        else:
            times = tuple(o if d == 1 else 1 for o, d in zip(out, (*lead, *x.shape), strict=True))
        if not all(times) or max(times) > most:
            return no(f"{times} copies; 1 to {most} per axis are supported")
        y = reshaped(x, *lead, *x.shape)
        for axis, count in enumerate(times):
            y = ops.concat(*[y] * count, axis=axis) if count > 1 else y
        return y

    return repeat_as_concat


MOVES: list[Rule] = [
    transpose_in_steps(),
    gather_as_slices(),
    pad_as_concat(),
    strided_slice_as_reshape,
    strided_slice_as_gather,
    strided_slice_as_pool,
    repeat_as_concat(),
]
