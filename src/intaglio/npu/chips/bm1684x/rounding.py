"""The last stage of a layer as commands: from i32 sums or f32 numbers to the result's type.

The meaning is that of npu/ops/epilogue.py: clamp(rint(t) + y_zero, low, high), then a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import tiu
from intaglio.npu.chips.bm1684x.local import Local, packed
from intaglio.npu.chips.bm1684x.tiu import Const
from intaglio.npu.chips.bm1684x.variants import Variant

Emit = Callable[[tuple[str, tiu.Fields]], None]
BYTES = ("i8", "u8")
GATHERED = 1 << 15  # indices that one gather looks up


@dataclass(frozen=True, slots=True)
class Rounding:
    """The attributes of an op's last stage."""

    dtype: str
    y_zero: int = 0
    low: int = 0
    high: int = 0
    base: int = 0
    least: float = -math.inf
    most: float = math.inf
    entries: int = 0  # of the table; 0: none

    @classmethod
    def of(cls, attrs: dict[str, Any], entries: int = 0) -> Rounding:
        names = ("y_zero", "low", "high", "base", "least", "most")
        given = {n: attrs[n] for n in names if n in attrs}
        return cls(dtype=attrs["dtype"], **given, entries=entries)

    @property
    def rounded(self) -> str:
        """The type of the number that is stored, or looked up in the table."""
        if not self.entries:
            return self.dtype
        for kind in BYTES:
            low, high = dtypes.limits(kind)
            if low <= self.low and self.high <= high:
                return kind
        return "i16"

    @property
    def shift(self) -> int:
        """What is added after rounding: the zero point, in wide tables less their base."""
        return self.y_zero - (self.base if self.rounded == "i16" else 0)

    def scratch(self, pixels: int, chip: Variant) -> int:
        """Bytes per block of channels beside the sums: rounded numbers before the last steps."""
        if self.dtype not in BYTES:
            return 0
        if self.shift or self.rounded == "i16":
            return chip.aligned(2 * pixels)
        return chip.aligned(pixels) if self.entries else 0

    def table(self, table: Array) -> Array:
        """The table that is looked up: for bytes by their bits, else by the shifted number."""
        if self.rounded == "i16":
            return table
        numbers = np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(self.rounded))
        inside = np.clip(numbers.astype(np.int32), self.low, self.high) - self.base
        return np.asarray(table[np.clip(inside, 0, len(table) - 1)])


@dataclass(frozen=True, slots=True)
class Finish:
    """Writes the last commands of a layer; `spare` is scratch memory beside the sums."""

    emit: Emit
    rounding: Rounding
    spare: int
    table: int = 0  # its address

    def sums(self, y: Local, x: Local, scale: float | Local) -> None:
        """From i32 sums, which are overwritten."""
        r = self.rounding
        if r.dtype == "i32":
            self.emit(tiu.arithmetic(tiu.COPY, y, x))
            return
        plain = r.dtype in BYTES and not r.entries and not r.shift
        if r.dtype == "f32" or (plain and not y.regular):
            self.numbers(y, self.scaled(x, scale))
            return
        number = scale if isinstance(scale, float) else scale.address

        def rounded(to: Local) -> None:
            self.emit(tiu.requantize(to, x, number, isinstance(scale, float)))

        self._rounded(y, x, rounded)

    def scaled(self, x: Local, scale: float | Local) -> Local:
        """f32(x) * scale, in the place of x."""
        t = replace(x, dtype="f32")
        self.emit(tiu.arithmetic(tiu.CAST, t, x))
        factor = Const(scale, "f32") if isinstance(scale, float) else scale
        self.emit(tiu.arithmetic(tiu.MUL, t, t, factor))
        return t

    def numbers(self, y: Local, t: Local) -> None:
        """From f32 numbers, which are overwritten."""
        r = self.rounding
        if r.dtype == "f32":
            if t.address != y.address:
                self.emit(tiu.arithmetic(tiu.COPY, y, t))
            for kind, bound in ((tiu.MAX, r.least), (tiu.MIN, r.most)):
                if math.isfinite(bound):
                    self.emit(tiu.arithmetic(kind, y, y, Const(bound, "f32")))
            return
        self._rounded(y, t, lambda to: self.emit(tiu.arithmetic(tiu.CAST, to, t)))

    def _rounded(self, y: Local, x: Local, rounded: Callable[[Local], None]) -> None:
        r = self.rounding
        size = y.channels, y.height, y.width
        if not r.entries and not r.shift:
            rounded(y)
            self._clip(y)
            return
        wide = packed(y.chip, self.spare, "i16", *size)
        if not r.entries:
            rounded(wide)
            self._shifted(y, wide)
            self._clip(y)
            return
        if r.rounded == "i16":
            index = replace(wide, dtype="u16")
            rounded(wide)
            if r.shift:
                self.emit(tiu.arithmetic(tiu.SATURATING_ADD, wide, wide, Const(r.shift, "i16")))
            bounds = max(r.low - r.base, 0), min(r.high - r.base, r.entries - 1)
            for kind, bound in zip((tiu.MAX, tiu.MIN), bounds, strict=True):
                self.emit(tiu.arithmetic(kind, wide, wide, Const(bound, "i16")))
        elif r.shift:
            index = packed(y.chip, x.address, r.rounded, *size)  # the sums are not needed any more
            rounded(wide)
            self._shifted(index, wide)
        else:
            index = packed(y.chip, self.spare, r.rounded, *size)
            rounded(index)
        entries = r.entries if r.rounded == "i16" else 256
        found = y
        if not y.regular:
            free = self.spare if index.address == x.address else x.address
            found = packed(y.chip, free, y.dtype, *size)
        look_up(self.emit, found, index, self.table, entries)
        if found is not y:
            self.emit(tiu.arithmetic(tiu.COPY, y, found))

    def _shifted(self, y: Local, wide: Local) -> None:
        """Add the zero point, and saturate to bytes."""
        add = Const(self.rounding.shift, "i16")
        if y.dtype == "i8":
            self.emit(tiu.arithmetic(tiu.SATURATING_ADD, y, wide, add))
            return
        self.emit(tiu.arithmetic(tiu.SATURATING_ADD, wide, wide, add))
        self.emit(tiu.arithmetic(tiu.CAST, y, wide))

    def _clip(self, y: Local) -> None:
        clip(self.emit, y, self.rounding.low, self.rounding.high)


def clip(emit: Emit, y: Local, low: int, high: int) -> None:
    """Clamp bytes in place, where the bounds are not those of their type."""
    first, last = dtypes.limits(y.dtype)
    if low > first:
        emit(tiu.arithmetic(tiu.MAX, y, y, Const(low, y.dtype)))
    if high < last:
        emit(tiu.arithmetic(tiu.MIN, y, y, Const(high, y.dtype)))


def look_up(emit: Emit, y: Local, index: Local, table: int, entries: int) -> None:
    """y = table[index], in parts that the command's fields hold."""
    pixels = y.height * y.width
    if pixels <= GATHERED:
        emit(tiu.gather(y, index, table, entries))
        return
    for block in range(y.blocks):
        one, at = y.some_blocks(block, 1), index.some_blocks(block, 1)
        for first in range(0, pixels, GATHERED):
            count = min(GATHERED, pixels - first)
            emit(tiu.gather(_run(one, first, count), _run(at, first, count), table, entries))


def _run(x: Local, first: int, count: int) -> Local:
    """Some pixels of a packed plane."""
    item = x.item
    return replace(
        x, address=x.address + first * item, height=1, width=count, row=count * item, plane=0
    )


def lanes_of(row: bytes, chip: Variant) -> bytes:
    """The same bytes for every lane, padded to whole vectors."""
    return row.ljust(chip.aligned(len(row)), b"\0") * chip.lanes
