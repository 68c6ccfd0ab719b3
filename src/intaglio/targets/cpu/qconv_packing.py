"""Packed int8 weights for cpu.qconv: panels of 16 columns with four consecutive bytes each.

Bytes that a kernel reads from consecutive addresses of the image form one run, which is padded to
a multiple of four: one tap (the channels of a pixel), one line of the window, or the whole window.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio import heap
from intaglio.ir import Array
from intaglio.targets.cpu.depthwise_packing import FOUR
from intaglio.targets.cpu.packing import PANEL, Ints

MAX_GATHERED_LINE = 64  # bytes of a window's line up to which a window is gathered to one run
RUNS = ("tap", "line", "window")  # which bytes form one run


def run_bytes(deep: int, kernel: Ints, run: str) -> int:
    """Bytes of one run."""
    return deep * {"tap": 1, "line": kernel[-1], "window": math.prod(kernel)}[run]


def packed(w: Array, run: str = "tap") -> Array:
    """Weights [groups, m, c, window..] as [groups, panels, rows, 16 columns of 4 bytes]."""
    groups, per, deep = w.shape[:3]
    size = run_bytes(deep, w.shape[3:], run)
    runs, fours, panels = math.prod(w.shape[3:]) * deep // size, -(-size // FOUR), -(-per // PANEL)
    full = np.ascontiguousarray(np.moveaxis(w, 2, -1)).reshape(groups, per, runs, size)
    if (per, size) != (panels * PANEL, fours * FOUR):
        given = full
        full = np.zeros((groups, panels * PANEL, runs, fours * FOUR), np.int8)
        full[:, :per, :, :size] = given
    # Four bytes at a time.
    words = full.view(np.uint32).reshape(groups, panels, PANEL, runs * fours)
    result = heap.package_array((groups, panels, runs * fours, PANEL), np.uint32)
    result[:] = words.swapaxes(2, 3)
    return result.view(np.int8).reshape(groups, panels, runs * fours, PANEL * FOUR)


def unpacked(w: Array, deep: int, per: int, kernel: Ints, run: str = "tap") -> Array:
    """The inverse of `packed`, as [groups * m, c, window..]."""
    groups, panels, rows = w.shape[:3]
    size = run_bytes(deep, kernel, run)
    words = np.ascontiguousarray(w).view(np.uint32).reshape(groups, panels, rows, PANEL)
    full = np.ascontiguousarray(words.swapaxes(2, 3)).view(np.int8)
    runs = full.reshape(groups, panels * PANEL, math.prod(kernel) * deep // size, -1)
    transposed = runs[:, :per, :, :size].reshape(groups * per, *kernel, deep)
    return np.moveaxis(transposed, -1, 1)


def best_run(deep: int, kernel: Ints, dilation: Ints, groups: int) -> str:
    """The run to pack: a line of taps is contiguous in the image; few channels are gathered to
    whole windows.
    """
    if groups != 1 or dilation[-1] != 1 or math.prod(kernel) == 1:
        return "tap"
    line, window = deep * kernel[-1], deep * math.prod(kernel)
    lines = math.prod(kernel[:-1]) * -(-line // FOUR)
    return (
        "window"
        if line <= MAX_GATHERED_LINE and deep <= FOUR and -(-window // FOUR) < lines
        else "line"
    )
