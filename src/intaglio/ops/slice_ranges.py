"""Slices as Python ranges of indices, one range per axis."""

from __future__ import annotations

from typing import Any

from intaglio import ops
from intaglio.ir import Node, Value
from intaglio.symint import OpenExtent, is_symbolic, slice_length

EXTENT = 2**62  # a slice's stop for "to the end"


class WholeAxis:
    """All indices of an axis whose extent depends on open dimensions; in place of a range."""

    start, stop, step = 0, EXTENT, 1

    def __getitem__(self, part: slice) -> Any:
        if (part.start, part.stop, part.step) == (0, EXTENT, 1):
            return self
        raise OpenExtent("a slice of an open dimension is computed at run time")

    def __len__(self) -> int:
        raise OpenExtent("an open dimension has no length")


WHOLE = WholeAxis()


def is_empty(taken: range | WholeAxis) -> bool:
    """Whether a slice takes nothing along an axis."""
    return taken is not WHOLE and len(taken) == 0


def ranges(cut: Node) -> list[Any] | None:
    """The indices that a slice takes along each axis; None if it cuts one with run-time extent."""
    x = cut.inputs[0]
    assert x is not None
    found: list[Any] = []
    bounds = zip(x.shape, cut.attrs["start"], cut.attrs["stop"], cut.attrs["step"], strict=True)
    for axis, (extent, start, stop, step) in enumerate(bounds):
        if axis in x.type.dynamic and (start != 0 or stop < extent or step != 1):
            return None
        if not is_symbolic((extent, start, stop, step)):
            found.append(range(extent)[start:stop:step])
        elif step == 1 and slice_length(extent, start, stop, step) == extent:
            found.append(WHOLE)
        else:
            return None
    return found


def whole_axis(extent: int) -> Any:
    """All indices of an axis."""
    return WHOLE if is_symbolic(extent) else range(extent)


def is_whole(taken: range | WholeAxis, extent: int) -> bool:
    """Whether a slice takes all of an axis."""
    return taken is WHOLE or (not is_symbolic(extent) and taken == range(extent))


def cut(x: Value, taken: list[Any]) -> Value:
    """The slice of `x` with these indices; `x` itself if they are all of its indices."""
    whole = [is_whole(r, d) for r, d in zip(taken, x.shape, strict=True)]
    if all(whole):
        return x
    open_end = [taken[a] is WHOLE or (w and a in x.type.dynamic) for a, w in enumerate(whole)]
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


def one_axis(cut: Node) -> tuple[int, Any] | None:
    """(axis, indices) of a slice that cuts one axis only; None for any other slice."""
    x, taken = cut.inputs[0], ranges(cut)
    assert x is not None
    if taken is None:
        return None
    axes = [a for a, r in enumerate(taken) if not is_whole(r, x.shape[a])]
    return (axes[0], taken[axes[0]]) if len(axes) == 1 else None
