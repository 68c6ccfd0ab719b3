"""Slices as Python ranges of indices, one range per axis."""

from __future__ import annotations

from intaglio import ops
from intaglio.ir import Node, Value

EXTENT = 2**62  # a slice's stop for "to the end"


def ranges(cut: Node) -> list[range] | None:
    """The indices that a slice takes along each axis; None if it cuts a dynamic axis."""
    x = cut.inputs[0]
    assert x is not None
    found = []
    bounds = zip(x.shape, cut.attrs["start"], cut.attrs["stop"], cut.attrs["step"], strict=True)
    for axis, (extent, start, stop, step) in enumerate(bounds):
        if axis in x.type.dynamic and (start != 0 or stop < extent or step != 1):
            return None
        found.append(range(extent)[start:stop:step])
    return found


def is_whole(taken: range, extent: int) -> bool:
    return taken == range(extent)


def cut(x: Value, taken: list[range]) -> Value:
    """The slice of `x` with these indices; `x` itself if they are all of its indices."""
    whole = [is_whole(r, d) for r, d in zip(taken, x.shape, strict=True)]
    if all(whole):
        return x
    open_end = [w and a in x.type.dynamic for a, w in enumerate(whole)]
    result: Value = ops.slice_(
        x,
        start=tuple(r.start for r in taken),
        stop=tuple(
            EXTENT if o else r.stop if r.stop >= 0 else -EXTENT
            for r, o in zip(taken, open_end, strict=True)
        ),
        step=tuple(r.step for r in taken),
    )
    return result


def one_axis(cut: Node) -> tuple[int, range] | None:
    """(axis, indices) of a slice that cuts one axis only; None for any other slice."""
    x, taken = cut.inputs[0], ranges(cut)
    assert x is not None
    if taken is None:
        return None
    axes = [a for a, r in enumerate(taken) if not is_whole(r, x.shape[a])]
    return (axes[0], taken[axes[0]]) if len(axes) == 1 else None
