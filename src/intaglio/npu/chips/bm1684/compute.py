"""Layers as commands of the tensor unit: each function writes one instruction of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from intaglio import dtypes
from intaglio.npu.chips.bm1684 import tiu
from intaglio.npu.chips.bm1684.arithmetic import WHOLE, common_shift, of_scaled, of_sum
from intaglio.npu.chips.bm1684.layout import BIAS, SHIFT, LaneConstants, Scratch
from intaglio.npu.chips.bm1684.local import Local, local, packed
from intaglio.npu.chips.bm1684.lower import product_of
from intaglio.npu.chips.bm1684.variant import BM1684, WORD
from intaglio.npu.chips.bm1684x.command_window import Window, window_of
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Instruction
from intaglio.npu.weight_packing import Constants

Emit = Callable[[tiu.Made], None]


class Work:
    """One instruction: its operands, and its scratch memory."""

    def __init__(
        self,
        given: Instruction,
        layer: Layer,
        constants: Constants | None,
        emit: Emit,
        move_table: Callable[[int], None],
    ) -> None:
        self.move_table = move_table
        self.fields, self.layer, self.constants, self.emit = given.fields, layer, constants, emit
        self.y, self.x = (local(given.fields[name]) for name in ("dst", "src"))
        self.scratch = Scratch.of(layer, self.y.height)
        self.first = max(given.scratch, 0) // BM1684.lanes
        self.second = self.first + self.scratch.first * self.scratch.blocks

    def passes(self) -> Iterator[tuple[int, int]]:
        """Blocks of channels that commands work on at once: the first one, and how many."""
        for first in range(0, self.y.blocks, self.scratch.blocks):
            yield first, min(self.scratch.blocks, self.y.blocks - first)

    def source(self, x: Local) -> Local:
        """The operand itself, or a copy of it that starts at a whole vector."""
        if x.aligned:
            return x
        copy = packed(self.second + self.scratch.second * self.scratch.blocks, x.dtype, x)
        self.emit(tiu.arithmetic(tiu.COPY, copy, x))
        return copy

    def result(self, y: Local) -> Local:
        """The result itself, or scratch memory where commands without strides can write it."""
        return y if y.regular else packed(self.first, y.dtype, y)

    def finish(self, y: Local, made: Local) -> None:
        """Move a result to its place, and clamp it."""
        if made is not y:
            self.emit(tiu.arithmetic(tiu.COPY, y, made))
        low, high = dtypes.limits(y.dtype)
        least, most = (int(self.fields[k]) for k in ("low", "high"))
        if least > low:
            self.emit(tiu.arithmetic(tiu.MAX, y, y, least))
        if most < high:
            self.emit(tiu.arithmetic(tiu.MIN, y, y, most))

    def window(self) -> Window:
        return window_of(self.layer, self.fields, self.y.size, self.x.size, BM1684.name)


def convolution(work: Work) -> None:
    """`conv` and `depthwise`: with one shift a command, else three or four."""
    layer, c = work.layer, work.constants
    assert isinstance(c, LaneConstants)
    assert layer.node is not None
    weights, blocks = work.fields["weights"] // BM1684.lanes, work.y.blocks
    shift, window = common_shift(product_of(layer.node).shifts), work.window()
    deep = layer.op == "depthwise"
    dense = None if deep else work.source(work.x)
    for first, count in work.passes():
        y = work.y.some_blocks(first, count)
        at = weights + first * c.lane_weights
        bias = weights + c.bias_at(blocks) + BIAS * first

        def sums(
            to: Local, first: int = first, count: int = count, at: int = at, bias: int = bias
        ) -> None:
            if dense is None:
                x = work.source(work.x.some_blocks(first, count))
                work.emit(tiu.depthwise(to, x, at, bias, window, shift))
            else:
                groups = -(-dense.channels // WORD)
                work.emit(tiu.conv(to, dense, at, bias, window, groups, shift))

        if c.one_scale:
            to = work.result(y)
            sums(to)
            work.finish(y, to)
            continue
        wide = packed(work.first, "i16", y, 2 * WORD)
        sums(wide)
        narrow = packed(work.second, "i16", y)
        work.emit(tiu.shift_channels(narrow, wide, weights + c.shifts_at(blocks) + SHIFT * first))
        _to_bytes(work, y, narrow, 1)
        work.finish(y, y)


def _to_bytes(work: Work, y: Local, x: Local, shift: int) -> None:
    """16 bits as bytes, shifted and saturated; those below 0 become 0 of u8."""
    if y.dtype == "u8":
        work.emit(tiu.arithmetic(tiu.MAX, x, x, 0))
        x = replace(x, dtype="u16")
    work.emit(tiu.arithmetic(tiu.ADD, y, x, 0, shift))


def pool(work: Work) -> None:
    """The largest number of each window; means are depthwise convolutions."""
    window = work.window()
    for first, count in work.passes():
        y = work.y.some_blocks(first, count)
        x = work.source(work.x.some_blocks(first, count))
        to = work.result(y)
        work.emit(tiu.largest(to, x, window))
        work.finish(y, to)


def lut(work: Work) -> None:
    """A table lookup of bytes; one table at a time lies in L2 memory."""
    work.move_table(work.fields["table"] // BM1684.lanes)
    source = work.x
    if not source.regular:
        at = work.second + work.scratch.second * work.scratch.blocks
        source = packed(at, work.x.dtype, work.x)
        work.emit(tiu.arithmetic(tiu.COPY, source, work.x))
    for first, count in work.passes():
        y = work.y.some_blocks(first, count)
        to = work.result(y)
        work.emit(tiu.lookup(to, source.some_blocks(first, count)))
        if to is not y:
            work.emit(tiu.arithmetic(tiu.COPY, y, to))


def product(work: Work) -> None:
    """A product of two maps; the second may have one pixel."""
    assert work.layer.node is not None
    s, other = of_scaled(work.layer.node), local(work.fields["other"])
    one = other.pixel == 0
    for first, count in work.passes():
        y, a = (v.some_blocks(first, count) for v in (work.y, work.x))
        b = other.some_blocks(first, count)
        if one:
            b = replace(b, height=1, width=1, row=WORD, pixel=WORD)
        if s.multiplier != WHOLE:
            c = packed(work.second, b.dtype, b)
            work.emit(tiu.arithmetic(tiu.MUL, c, b, s.multiplier, 7))
            b = c
        if one:
            b = replace(b, row=0, pixel=0)
        if y.dtype == "u8" and (a.signed or b.signed):
            wide = packed(work.first, "i16", y)
            work.emit(tiu.arithmetic(tiu.MUL, wide, a, b, s.shift))
            _to_bytes(work, y, wide, 0)
        else:
            work.emit(tiu.arithmetic(tiu.MUL, y, a, b, s.shift))
        work.finish(y, y)


def eltwise(work: Work) -> None:
    """A sum of two maps, each with a multiplier."""
    assert work.layer.node is not None
    if work.layer.attrs["kind"] == "mul":
        product(work)
        return
    s, other = of_sum(work.layer.node), local(work.fields["other"])
    for first, count in work.passes():
        y = work.y.some_blocks(first, count)
        terms: list[Local] = []
        for x, factor, at in ((work.x, s.left, work.first), (other, s.right, work.second)):
            part = x.some_blocks(first, count)
            terms.append(packed(at, "i16", y))
            work.emit(tiu.arithmetic(tiu.MUL, terms[-1], part, factor))
        if y.dtype == "u8":
            work.emit(tiu.arithmetic(tiu.ADD, terms[0], terms[0], terms[1], s.shift))
            _to_bytes(work, y, terms[0], 0)
        else:
            work.emit(tiu.arithmetic(tiu.ADD, y, terms[0], terms[1], s.shift))
        work.finish(y, y)


def resize(work: Work) -> None:
    """Repeat rows and columns: one strided copy for each place in the repeated box."""
    (high, wide), (phase, _) = work.fields["factor"], work.fields["phase"]
    for i in range(high):
        first = (i - phase) % high  # the first row of the result at this place
        rows = len(range(first, work.y.height, high))
        if not rows:
            continue
        source = (phase + first) // high
        for j in range(wide):
            at = work.y.address + first * work.y.row + j * work.y.pixel
            to = replace(work.y, address=at, height=rows, width=work.x.width)
            to = replace(to, row=work.y.row * high, pixel=work.y.pixel * wide)
            read = replace(work.x, address=work.x.address + source * work.x.row, height=rows)
            work.emit(tiu.arithmetic(tiu.COPY, to, read))


COMPUTE: dict[str, Callable[[Work], None]] = {
    "conv": convolution,
    "depthwise": convolution,
    "pool": pool,
    "eltwise": eltwise,
    "lut": lut,
    "resize": resize,
}


def compute(
    given: Instruction,
    layer: Layer,
    constants: Constants | None,
    emit: Emit,
    move_table: Callable[[int], None],
) -> None:
    """Write the commands of an instruction of the compute queue.

    `move_table` moves the table at an address of local memory to where lookups read it.
    """
    COMPUTE[given.op](Work(given, layer, constants, emit, move_table))
