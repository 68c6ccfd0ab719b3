"""Shapes of two sizes as one shape for all sizes.

Every function gets shapes and values of a tensor at two sizes. Entries that are equal are fixed; an
entry that differs must follow from the operand's own extents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Shape = Sequence[int]
Target = list[int | tuple[int]]  # per entry: a number, -1 (the rest), or (axis of the operand,)


def reshape_target(
    x: Shape, y: Shape, a: Shape, b: Shape, allowzero: bool = False
) -> Target | None:
    """The target of a Reshape of x to a at one size and of y to b at the other; None if unknown."""
    if len(a) != len(b):
        return None
    first, second = _full(x, a, allowzero), _full(y, b, allowzero)
    if first is None or second is None:
        return None
    target: Target = []
    for i, pair in enumerate(zip(first, second, strict=True)):
        if pair[0] == pair[1]:
            target.append(pair[0])
            continue
        axes = [k for k, own in enumerate(zip(x, y, strict=True)) if own == pair]
        target.append((i,) if i in axes else (axes[0],) if axes else -1)
    return target if target.count(-1) <= 1 else None


def _full(x: Shape, target: Shape, allowzero: bool) -> list[int] | None:
    """A target without 0 (keep) and -1 (the rest)."""
    made = [
        x[i] if d == 0 and not allowzero and i < len(x) else int(d) for i, d in enumerate(target)
    ]
    if -1 in made:
        rest = math.prod(d for d in made if d != -1)
        made[made.index(-1)] = math.prod(x) // rest if rest else 0
    return made if math.prod(made) == math.prod(x) else None


def expand_target(x: Shape, y: Shape, a: Shape, b: Shape) -> list[int] | None:
    """The target of an Expand: 1 where the operand has the open extent itself."""
    if len(a) != len(b):
        return None
    target = []
    for i in range(-len(a), 0):
        own = (x[i], y[i]) if -i <= len(x) else (1, 1)
        if a[i] == b[i]:
            target.append(int(a[i]))
        elif (a[i], b[i]) == own:
            target.append(1)
        else:
            return None
    return target


def slice_stops(x: Shape, y: Shape, axes: Shape, a: Shape, b: Shape, end: int) -> list[int] | None:
    """The stops of a Slice: `end` where both are the extent of the operand or more."""
    target = []
    for axis, first, second in zip(axes, a, b, strict=True):
        if first != second and (first < x[axis] or second < y[axis]):
            return None
        target.append(int(first) if first == second else end)
    return target


def resize_scales(x: Shape, y: Shape, a: Shape, b: Shape) -> list[float] | None:
    """The scales of a Resize to a and to b, if they are equal and give both."""
    if not len(x) == len(y) == len(a) == len(b) or 0 in (*x, *y):
        return None
    scales = [float(np.float32(w / d)) for w, d in zip(a, x, strict=True)]
    f = np.float32
    for s, d, w in (*zip(scales, x, a, strict=True), *zip(scales, y, b, strict=True)):
        if math.floor(f(d) * f(s)) != w or f(w / d) != f(s):
            return None
    return scales
