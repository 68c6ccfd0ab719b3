"""The KPU's own RAM: 2 MiB in lines of 64 bytes, and how feature maps of bytes lie in it.

Narrow rows share a line: four channels side by side up to a width of 16, two up to 32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir import Array

LINE = 64  # bytes
LINES = 32768
BYTES = LINES * LINE


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a map of some width lie."""

    groups: int  # channels side by side in a line
    row_lines: int
    pitch: int  # bytes between channels in a line

    def blocks(self, channels: int) -> int:
        """The number of blocks of `groups` channels."""
        return -(-channels // self.groups)


def layout(width: int) -> Layout:
    """The layout of maps of this width."""
    if width <= 16:
        return Layout(4, 1, 16)
    if width <= 32:
        return Layout(2, 1, 32)
    return Layout(1, -(-width // LINE), LINE)


def lines(channels: int, height: int, width: int) -> int:
    """The number of lines that a map takes."""
    place = layout(width)
    return place.row_lines * height * place.blocks(channels)


def _addresses(shape: tuple[int, ...]) -> Array:
    """The byte address of every element of a map [C, H, W] that starts at 0."""
    c, h, w = (np.arange(d) for d in shape)
    place = layout(shape[2])
    block = place.row_lines * shape[1] * LINE
    channel = c // place.groups * block + c % place.groups * place.pitch
    return channel[:, None, None] + h[:, None] * (place.row_lines * LINE) + w


def upload(ram: Array, line: int, values: Array) -> None:
    """Write a map [C, H, W] of bytes to RAM."""
    target = ram[line * LINE :]
    c, h, w = values.shape
    place = layout(w)
    if c % place.groups:
        target[_addresses(values.shape)] = values
        return
    view = _view(target, c, h, w)
    view[...] = values.reshape(-1, place.groups, h, w).transpose(0, 2, 1, 3)


def download(ram: Array, line: int, shape: tuple[int, ...]) -> Array:
    """Read a map [C, H, W] of bytes from RAM."""
    source = ram[line * LINE :]
    c, h, w = shape
    if c % layout(w).groups:
        return source[_addresses((c, h, w))]
    return np.ascontiguousarray(_view(source, c, h, w).transpose(0, 2, 1, 3)).reshape(c, h, w)


def _view(ram: Array, c: int, h: int, w: int) -> Array:
    """RAM as block, row, channel within the block, column."""
    place = layout(w)
    blocks = c // place.groups
    whole = ram[: blocks * h * place.row_lines * LINE]
    if place.row_lines > 1:
        return whole.reshape(blocks, h, 1, place.row_lines * LINE)[..., :w]
    return whole.reshape(blocks, h, place.groups, place.pitch)[..., :w]
