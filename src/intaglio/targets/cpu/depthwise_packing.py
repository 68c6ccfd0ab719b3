"""Weights of depthwise convolutions of bytes as `cpu.qdepthwise` reads them (csrc: qdepthwise.h).

Four taps of a channel lie together, 16 channels after each other: what four lines of the window
have in one column. Where one weave of the image serves two lines of output, the weights come once
more, a line further down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array, Value
from intaglio.ops import expand, reshape
from intaglio.targets.cpu.packing import PANEL, Ints

FOUR = 4  # taps that are multiplied at once
TAPS = 64  # of the largest window
REACH = 4096  # pixels of a line that a window spans, or steps over, at most


@dataclass(frozen=True)
class Weave:
    """Which taps of a window lie together."""

    kernel: tuple[int, ...]  # always three axes
    outs: int
    high: int
    wide: int

    @property
    def vectors(self) -> int:
        """Groups of four taps for each block of 16 channels."""
        return self.outs * self.high * self.wide

    def places(self) -> Array:
        """[taps, 2]: the group and the place in it of each tap, for the first line of output."""
        z, y, x = (a.reshape(-1) for a in np.indices(self.kernel))
        down = z * self.kernel[1] + y
        return np.stack([down // FOUR * self.wide + x, down % FOUR], 1)

    def packed(self, w: Array) -> Array:
        """Weights [window.., channels] as [blocks, groups, 64]."""
        channels = w.shape[-1]
        blocks = -(-channels // PANEL)
        count = math.prod(self.kernel)
        taps = np.zeros((count, blocks * PANEL), np.int8)
        taps[:, :channels] = w.reshape(count, channels)
        by_block = taps.reshape(count, blocks, PANEL)
        made = np.zeros((blocks, self.vectors, PANEL, FOUR), np.int8)
        group, at = self.places().T
        made[:, group, :, at] = by_block
        if self.outs == 2:  # the taps of the line above: at + 1, or the first of the next group
            later = group + (at == FOUR - 1) * self.wide + self.high * self.wide
            made[:, later, :, (at + 1) % FOUR] = by_block
        return made.reshape(blocks, self.vectors, PANEL * FOUR)

    def unpacked(self, w: Array, channels: int) -> Array:
        """What `packed` was given, as [taps, channels]."""
        group, at = self.places().T
        split = w.reshape(-1, self.vectors, PANEL, FOUR)
        taps: Array = split[:, group, :, at]
        return taps.reshape(len(group), len(w) * PANEL)[:, :channels]


def weave_of(kernel: Ints, stride: Ints, dilation: Ints) -> Weave:
    """How the taps of this window lie; the kernel decides alike."""
    ones = (1,) * (3 - len(kernel))
    k, s, d = (*ones, *kernel), (*ones, *stride), (*ones, *dilation)
    lines = k[0] * k[1]
    twice = k[0] == 1 and s[1] == d[1] == 1 < lines and lines % FOUR != 0
    return Weave(k, 2 if twice else 1, -(-lines // FOUR), k[2])


def why_not_woven(kernel: Ints, stride: Ints, dilation: Ints) -> str | None:
    """Why the kernel for windows of single channels cannot take this one."""
    if math.prod(kernel) > TAPS:
        return f"windows of {TAPS} taps at most are taken, not {tuple(kernel)}"
    if max(stride[-1], (kernel[-1] - 1) * dilation[-1]) > REACH:
        return f"a window spans and steps over {REACH} pixels at most"
    return None


def repeat_channels(x: Value, times: int) -> Value:
    """Every channel of [.., c] `times` times in a row: the image for a channel multiplier."""
    if times == 1:
        return x
    wide = expand(reshape(x, shape=(*x.shape, 1)), shape=(*x.shape, times))
    repeated: Value = reshape(wide, shape=(*x.shape[:-1], x.shape[-1] * times))
    return repeated
