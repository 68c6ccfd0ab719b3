"""Packed int8 weights for depthwise convolutions, in the order in which cpu.qdepthwise reads them.

A group has four taps of each of 16 channels: those that four lines of the window have in one
column. If one pass over the image makes two lines of output, the weights are stored a second time,
shifted down by a line. Weights that need nine bits are stored as two parts of i8, which the kernel
adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array, Value
from intaglio.ops import expand, reshape
from intaglio.targets.cpu.packing import PANEL, Ints
from intaglio.targets.cpu.weight_zeros import byte_parts

FOUR = 4  # bytes that one instruction multiplies and adds
MAX_TAPS = 64  # of a window
MAX_SPAN = 4096  # pixels of a line that a window covers or strides over


@dataclass(frozen=True)
class TapPacking:
    """The order in which the taps of a window are packed."""

    kernel: tuple[int, ...]  # always three axes
    outs: int
    high: int
    wide: int

    @property
    def vectors(self) -> int:
        """Groups of four taps for each block of 16 channels, in each part of the weights."""
        return self.outs * self.high * self.wide

    def places(self) -> Array:
        """[taps, 2]: the group of each tap and its place in it, for the first line of output."""
        z, y, x = (a.reshape(-1) for a in np.indices(self.kernel))
        down = z * self.kernel[1] + y
        return np.stack([down // FOUR * self.wide + x, down % FOUR], 1)

    def packed(self, w: Array) -> Array:
        """Weights [window.., channels] of at most nine bits as [blocks, parts * groups, 64]."""
        channels = w.shape[-1]
        blocks = -(-channels // PANEL)
        count, once = math.prod(self.kernel), self.high * self.wide
        first, second = byte_parts(w)
        parts = [first] if second is None else [first, second]
        result = np.zeros((blocks, self.outs, len(parts), once, PANEL, FOUR), np.int8)
        group, at = self.places().T
        for i, part in enumerate(parts):
            taps = np.zeros((count, blocks * PANEL), np.int8)
            taps[:, :channels] = part.reshape(count, channels)
            by_block = taps.reshape(count, blocks, PANEL)
            result[:, 0, i, group, :, at] = by_block
            if self.outs == 2:  # the second line: taps shifted by one, or into the next group
                later = group + (at == FOUR - 1) * self.wide
                result[:, 1, i, later, :, (at + 1) % FOUR] = by_block
        return result.reshape(blocks, len(parts) * self.vectors, PANEL * FOUR)

    def unpacked(self, w: Array, channels: int) -> Array:
        """The inverse of `packed`, as [taps, channels] of i16."""
        group, at = self.places().T
        parts = w.reshape(len(w), self.outs, -1, self.high * self.wide, PANEL, FOUR)
        split = parts[:, 0].sum(1, dtype=np.int16)
        taps: Array = split[:, group, :, at]
        return taps.reshape(len(group), len(w) * PANEL)[:, :channels]


def tap_packing(kernel: Ints, stride: Ints, dilation: Ints) -> TapPacking:
    """The packing of this window; the kernel makes the same decision."""
    ones = (1,) * (3 - len(kernel))
    k, s, d = (*ones, *kernel), (*ones, *stride), (*ones, *dilation)
    lines = k[0] * k[1]
    twice = k[0] == 1 and s[1] == d[1] == 1 < lines and lines % FOUR != 0
    return TapPacking(k, 2 if twice else 1, -(-lines // FOUR), k[2])


def why_not_packed(kernel: Ints, stride: Ints, dilation: Ints) -> str | None:
    """Why cpu.qdepthwise does not support this window, or None."""
    if math.prod(kernel) > MAX_TAPS:
        return f"a window has at most {MAX_TAPS} taps, not {tuple(kernel)}"
    if max(stride[-1], (kernel[-1] - 1) * dilation[-1]) > MAX_SPAN:
        return f"a window covers and strides over at most {MAX_SPAN} pixels"
    return None


def repeat_channels(x: Value, times: int) -> Value:
    """Every channel of [.., c] `times` times in a row: the image for a channel multiplier."""
    if times == 1:
        return x
    wide = expand(reshape(x, shape=(*x.shape, 1)), shape=(*x.shape, times))
    repeated: Value = reshape(wide, shape=(*x.shape[:-1], x.shape[-1] * times))
    return repeated
