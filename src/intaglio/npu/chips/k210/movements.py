"""Movements of maps within main memory: strided copies of kmodel 5."""

from __future__ import annotations

import math
from collections.abc import Callable

from intaglio.npu.chips.k210.layer import MIN_EXTENT
from intaglio.npu.chips.k210.model import Command, Copy, Range, Upload

PADDED = MIN_EXTENT * MIN_EXTENT  # pixels of the map that holds one pixel of a linear layer

Later = Callable[[], Command]  # makes a command once all addresses are known
Where = Callable[[], Range]
Shape = tuple[int, ...]


def inside(r: Range, offset: int, size: int) -> Range:
    """Some bytes of a range."""
    return Range(r.place, r.start + offset, size, r.dtype)


class Movements:
    """Appends the commands that move maps; `buffer` gives them main memory."""

    def __init__(self) -> None:
        self.commands: list[Later] = []
        self.step = 0

    def buffer(self, size: int, *steps: int) -> Where:
        """A block of main memory that is in use from the first to the last of these steps."""
        raise NotImplementedError

    def copied(self, where: Where, target: Where, size: int) -> None:
        """Copy bytes."""
        shape, strides = (1, 1, 1, size), (size, size, size, 1)
        self.commands.append(lambda: Copy(where(), target(), shape, strides, strides))

    def transposed(self, where: Where, rows: int, columns: int) -> Where:
        """A copy of a matrix with rows and columns exchanged."""
        target = self.buffer(rows * columns, self.step)
        shape = (1, 1, columns, rows)
        strides = (
            (rows * columns, rows * columns, 1, columns),
            (rows * columns, rows * columns, rows, 1),
        )
        self.commands.append(lambda: Copy(where(), target(), shape, *strides))
        return target

    def spread(self, where: Where, channels: int, line: int) -> None:
        """Upload one pixel as the first pixel of a map of 4x4."""
        target = self.buffer(channels * PADDED, self.step)
        shape, dense = (1, channels, 1, 1), (channels, 1, 1, 1)
        apart = (channels * PADDED, PADDED, MIN_EXTENT, 1)
        self.commands.append(lambda: Copy(where(), target(), shape, dense, apart))
        whole = (1, channels, MIN_EXTENT, MIN_EXTENT)
        self.commands.append(lambda: Upload(target(), line, whole))

    def spread_windows(self, where: Where, numbers: int, line: int) -> None:
        """Upload numbers as the top left 3x3 pixels of maps of 4x4."""
        channels = -(-numbers // 9)
        target = self.buffer(channels * PADDED, self.step)
        whole, rest = numbers // 9, numbers % 9
        parts = [(0, (1, whole, 3, 3)), (9 * whole, (1, 1, rest // 3, 3))]
        parts.append((numbers - rest % 3, (1, 1, 1, rest % 3)))
        for first, shape in parts:
            if not math.prod(shape):
                continue
            c, row = first // 9, first % 9 // 3
            to = c * PADDED + row * MIN_EXTENT
            self.commands.append(
                lambda first=first, to=to, shape=shape: Copy(  # type: ignore[misc]
                    inside(where(), first, math.prod(shape)),
                    inside(target(), to, channels * PADDED - to),
                    shape,
                    (numbers, 9, 3, 1),
                    (channels * PADDED, PADDED, MIN_EXTENT, 1),
                )
            )
        whole_map = (1, channels, MIN_EXTENT, MIN_EXTENT)
        self.commands.append(lambda: Upload(target(), line, whole_map))

    def gather(self, where: Where, target: Where, channels: int) -> None:
        """The first pixels of maps of 4x4."""
        shape, dense = (1, channels, 1, 1), (channels, 1, 1, 1)
        apart = (channels * PADDED, PADDED, MIN_EXTENT, 1)
        self.commands.append(lambda: Copy(where(), target(), shape, apart, dense))

    def _strided(
        self, where: Where, target: Where, shape: Shape, read: Shape, write: Shape, offset: int
    ) -> None:
        """Copy a map [1, C, H, W] to `offset` of another place."""

        def copy() -> Copy:
            to = target()
            return Copy(where(), inside(to, offset, to.size - offset), shape, read, write)

        self.commands.append(copy)

    def upsampled(self, where: Where, target: Where, shape: Shape) -> None:
        """Repeat every pixel of a map [1, C, H, W] in both directions: four strided copies."""
        read = _strides(shape)
        _, c, h, w = shape
        write = (4 * c * h * w, 4 * h * w, 4 * w, 2)
        for offset in (0, 1, 2 * w, 2 * w + 1):
            self._strided(where, target, shape, read, write, offset)

    def bordered(
        self,
        where: Where,
        fill: Where,
        target: Where,
        shape: Shape,
        keep: tuple[int, int],
        made: Shape,
    ) -> None:
        """Put pixels of a map [1, C, H, W] into a larger one; the rest is the first of `fill`."""
        (high, wide), c, same = keep, shape[1], (0, 0, 0, 0)
        write = _strides(made)
        self._strided(where, target, (1, c, high, wide), _strides(shape), write, 0)
        if made[3] > wide:
            self._strided(fill, target, (1, c, high, made[3] - wide), same, write, wide)
        if made[2] > high:
            rest = (1, c, made[2] - high, made[3])
            self._strided(fill, target, rest, same, write, high * made[3])

    def cropped(self, where: Where, target: Where, shape: Shape, made: Shape) -> None:
        """The top left pixels of a map [1, C, H, W]."""
        self._strided(where, target, made, _strides(shape), _strides(made), 0)


def _strides(shape: Shape) -> Shape:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
