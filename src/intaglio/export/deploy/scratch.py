"""Temporary memory of steps, placed into bytes of the arena that are free while they run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.plan import Plan, Step, Tensor

ALIGN = 16  # bytes; the widest vector


def place_scratch(plan: Plan, need: Callable[[Step], int]) -> tuple[list[int], int]:
    """The offset of each step's temporary memory, and the size of the arena with all of them."""
    live = np.zeros(plan.arena, bool)
    for t in plan.outputs:
        _mark(live, t, True)
    offsets, size = [0] * len(plan.steps), plan.arena
    for i in reversed(range(len(plan.steps))):
        step = plan.steps[i]
        used = live.copy()
        for used_by in (*step.inputs, *step.outputs):
            _mark(used, used_by, True)
        if bytes_needed := need(step):
            offsets[i] = _first_gap(used, bytes_needed)
            size = max(size, offsets[i] + bytes_needed)
        for t in step.outputs:
            _mark(live, t, False)
        for u in step.inputs:
            _mark(live, u, True)
    return offsets, -(-size // ALIGN) * ALIGN


def _mark(live: np.ndarray, t: Tensor | None, value: bool) -> None:
    if t is not None and t.memory == "arena":
        live[t.offset : t.end] = value


def _first_gap(used: np.ndarray, size: int) -> int:
    """The first aligned offset of `size` free bytes; past the last used byte all are free."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], used, [False]]).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    at = 0
    for start, end in zip(starts, ends, strict=True):
        if at + size <= start:
            return at
        at = -(-int(end) // ALIGN) * ALIGN
    return at
