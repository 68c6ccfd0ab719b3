"""Packed int8 weights for cpu.qconv: panels of 16 columns with four consecutive bytes each.

Bytes that a kernel reads from consecutive addresses of the image form one run, which is padded to
a multiple of four: one tap (the channels of a pixel), one line of the window, or the whole window.

Weights that need nine bits have two parts of i8 (weight_zeros.py). Rows in which a second part is
not zero come a second time, after all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio import heap
from intaglio.ir import Array
from intaglio.targets.cpu.depthwise_packing import FOUR
from intaglio.targets.cpu.packing import PANEL, Ints
from intaglio.targets.cpu.weight_zeros import HIGHEST, byte_parts, with_zeros

MAX_GATHERED_LINE = 64  # bytes of a window's line up to which a window is gathered to one run
RUNS = ("tap", "line", "window")  # which bytes form one run
# Up to so many rows with second parts, or this share of all, they are faster than zero points.
FEW_SECOND_ROWS, MAX_SECOND_SHARE = 3, 1 / 8


@dataclass(frozen=True)
class PackedWeights:
    """Weights as cpu.qconv takes them; at most one of the last two is given."""

    w: Array
    w_zero: Array | None = None  # negated zero points, one per output channel
    second_rows: Array | None = None  # the rows that have a second part, in its order


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


def packed_differences(w: Array, run: str = "tap") -> PackedWeights:
    """Weights [groups, m, c, window..] of i8, or of i16 with at most nine bits, packed."""
    if w.dtype == np.int8:
        return PackedWeights(packed(w, run))
    if w.max(initial=0) <= HIGHEST:
        first, second = byte_parts(w)
        if second is None:
            return PackedWeights(packed(first, run))
        more = packed(second, run)
        rows = np.flatnonzero(more.any(axis=(0, 1, 3))).astype(np.int32)
        if len(rows) <= max(FEW_SECOND_ROWS, MAX_SECOND_SHARE * more.shape[2]):
            both = np.concatenate([packed(first, run), more[:, :, rows]], axis=2)
            return PackedWeights(both, second_rows=rows)
    shifted, zeros = with_zeros(w.reshape(-1, *w.shape[2:]))
    return PackedWeights(packed(shifted.reshape(w.shape), run), (-zeros).astype(np.int32))


def unpacked(
    w: Array, deep: int, per: int, kernel: Ints, run: str = "tap", second_rows: Array | None = None
) -> Array:
    """The inverse of `packed`, as [groups * m, c, window..]: i8, or i16 with second parts."""
    groups, panels, rows = w.shape[:3]
    if second_rows is not None:
        rows -= len(second_rows)
        both = w[:, :, :rows].astype(np.int16)
        np.add.at(both.swapaxes(0, 2), second_rows, w[:, :, rows:].swapaxes(0, 2))
        w = both
    size = run_bytes(deep, kernel, run)
    word = np.uint32 if w.dtype == np.int8 else np.uint64
    words = np.ascontiguousarray(w).view(word).reshape(groups, panels, rows, PANEL)
    full = np.ascontiguousarray(words.swapaxes(2, 3)).view(w.dtype)
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
