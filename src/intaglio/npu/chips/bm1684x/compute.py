"""Layers as commands of the tensor unit: each function writes one instruction of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np

from intaglio import dtypes
from intaglio.npu.chips.bm1684x import tiu
from intaglio.npu.chips.bm1684x.command_window import Window, window_of
from intaglio.npu.chips.bm1684x.layout import BmConstants, Scratch, folded_bias, rounding
from intaglio.npu.chips.bm1684x.local import Local, local, packed, per_channel
from intaglio.npu.chips.bm1684x.rounding import Emit, Finish, clip, look_up
from intaglio.npu.chips.bm1684x.tiu import Const
from intaglio.npu.chips.bm1684x.variants import Variant
from intaglio.npu.layers import Layer
from intaglio.npu.own.isa import Instruction
from intaglio.npu.weight_packing import Constants


class Work:
    """One instruction: its operands, and its scratch memory."""

    def __init__(
        self,
        given: Instruction,
        layer: Layer,
        constants: Constants | None,
        emit: Emit,
        chip: Variant,
    ):
        self.chip, lanes = chip, chip.lanes
        self.fields, self.layer, self.constants, self.emit = given.fields, layer, constants, emit
        self.y, self.x = (local(given.fields[name], chip) for name in ("dst", "src"))
        self.at = max(given.scratch, 0) // lanes
        self.scratch = Scratch.of(layer, self.y.height, chip)
        self.entries = given.fields.get("entries", 0)
        self.table = given.fields.get("table", 0) // lanes

    def passes(self, *operands: Local) -> Iterator[tuple[int, int]]:
        """Blocks of channels that commands work on at once: the first one, and how many."""
        together = all(x.regular for x in (self.y, *operands))
        step = self.scratch.blocks if together else 1
        for first in range(0, self.y.blocks, step):
            yield first, min(step, self.y.blocks - first)

    def sums(self, y: Local, dtype: str = "i32") -> Local:
        """Scratch memory for i32 sums or f32 numbers of the size of y."""
        return packed(self.chip, self.at, dtype, y.channels, y.height, y.width)

    def spare(self, y: Local) -> int:
        """The address of the scratch memory behind the sums."""
        return self.at + self.scratch.sums * y.blocks

    def finish(self, y: Local) -> Finish:
        entries = self.entries
        return Finish(self.emit, rounding(self.layer, entries), self.spare(y), self.table)

    def source(self, x: Local, dtype: str = "") -> Local:
        """The operand itself, or a copy of it that starts at a whole vector or has another type."""
        same = dtype in ("", x.dtype)
        if x.packed and same:
            return x
        at = self.at + self.scratch.per_block * self.scratch.blocks
        copy = packed(self.chip, at, dtype or x.dtype, x.channels, x.height, x.width)
        self.emit(tiu.arithmetic(tiu.COPY if same else tiu.CAST, copy, x))
        return copy

    def result(self, y: Local) -> Local:
        """The result itself, or scratch memory where commands without strides can write it."""
        return y if y.regular else self.sums(y, y.dtype)

    def window(self) -> Window:
        return window_of(self.layer, self.fields, self.y.size, self.x.size, self.chip.name)


def convolution(work: Work) -> None:
    """Sums, biases, residual, rounding and table of `conv` and `depthwise`."""
    f, layer, c = work.fields, work.layer, work.constants
    assert isinstance(c, BmConstants)
    deep = layer.op == "depthwise"
    chip, step = work.chip, work.chip.scale_step
    weights, blocks = f["weights"] // chip.lanes, work.y.blocks
    residual = local(f["residual"], chip) if f.get("residual") is not None else None
    window, scale, has_bias = work.window(), _one_scale(layer, c), _has_bias(layer)
    for first, count in work.passes(*([work.x] if deep else [])):
        y = work.y.some_blocks(first, count)
        acc = work.sums(y)
        bias = per_channel(chip, weights + c.bias_at(blocks) + 4 * first, "i32", y.channels, 4)
        at = weights + first * c.lane_weights
        if deep:
            x = work.source(work.x.some_blocks(first, count))
            where = bias.address if has_bias else None
            kind = tiu.DEPTHWISE
            work.emit(tiu.windowed(kind, acc, x, window, f["x_zero"], at, where))
        else:
            work.emit(tiu.conv(acc, work.x, at, window, f["x_zero"]))
            if has_bias:
                work.emit(tiu.arithmetic(tiu.ADD, acc, acc, bias))
        factor: float | Local = scale
        if not c.one_scale:
            vector = weights + c.scale_at(blocks) + step * first
            factor = per_channel(chip, vector, "f32", y.channels, step)
        finish = work.finish(y)
        if residual is None:
            finish.sums(y, acc, factor)
            continue
        t = finish.scaled(acc, factor)
        r = residual.some_blocks(first, count)
        added = dequantized(work.emit, work.spare(y), r, f["r_zero"], f["r_factor"])
        work.emit(tiu.arithmetic(tiu.ADD, t, t, added))
        finish.numbers(y, t)


def _one_scale(layer: Layer, c: BmConstants) -> float:
    scale = layer.node.inputs[2].data  # type: ignore[union-attr]
    return float(scale[0]) if c.one_scale else 0.0  # type: ignore[index]


def _has_bias(layer: Layer) -> bool:
    w, bias = (layer.node.inputs[k].data for k in (1, 3))  # type: ignore[union-attr]
    assert w is not None
    assert bias is not None
    return bool(folded_bias(w, bias, layer.attrs["x_zero"]).any())


def dequantized(emit: Emit, at: int, x: Local, zero: int, factor: float) -> Local:
    """f32(x - zero) * factor, at an address of scratch memory."""
    t = packed(x.chip, at, "f32", x.channels, x.height, x.width)
    if x.regular:
        emit(tiu.dequantize(t, x, factor, zero))
        return t
    emit(tiu.arithmetic(tiu.CAST, t, x))
    if zero:
        emit(tiu.arithmetic(tiu.SUB, t, t, Const(zero, "f32")))
    emit(tiu.arithmetic(tiu.MUL, t, t, Const(factor, "f32")))
    return t


def pool(work: Work) -> None:
    """The largest number of each window, or its mean."""
    f, window = work.fields, work.window()
    largest = work.layer.attrs["kind"] == "max"
    for first, count in work.passes(work.x):
        y = work.y.some_blocks(first, count)
        x = work.source(work.x.some_blocks(first, count))
        if not largest:
            _mean(work, y, x, window)
            continue
        least = dtypes.limits(x.dtype)[0]
        to = y
        if not y.regular:
            to = packed(y.chip, work.spare(y), y.dtype, y.channels, y.height, y.width)
        work.emit(tiu.windowed(tiu.LARGEST, to, x, window, int(least), bias=work.at))
        if to is not y:
            work.emit(tiu.arithmetic(tiu.COPY, y, to))
        clip(work.emit, y, f["low"], f["high"])


def _mean(work: Work, y: Local, x: Local, window: Window) -> None:
    f, acc = work.fields, work.sums(y)
    zero, taps = f["x_zero"], window.kernel[0] * window.kernel[1]
    work.emit(tiu.windowed(tiu.AVERAGE, acc, x, window, zero))
    if zero:
        work.emit(tiu.arithmetic(tiu.ADD, acc, acc, Const(-zero * taps, "i32")))
    counts = inside_counts(work, y, x, window)

    def factor(count: int) -> float:
        many = np.float32(max(count, 1))
        return float(np.float32(f["x_scale"]) / (np.float32(f["y_scale"]) * many))

    every = {a * b for a in set(counts[0]) for b in set(counts[1])}
    finish = work.finish(y)
    if f["count_pad"] or len(every) == 1:
        finish.sums(y, acc, factor(taps if f["count_pad"] else every.pop()))
        return
    t = replace(acc, dtype="f32")
    work.emit(tiu.arithmetic(tiu.CAST, t, acc))
    for top, rows, high in runs(counts[0]):
        for left, columns, wide in runs(counts[1]):
            at = t.address + top * t.row + left * t.pixel
            part = replace(t, address=at, height=rows, width=columns)
            part = replace(part, row=t.row, pixel=t.pixel)
            work.emit(tiu.arithmetic(tiu.MUL, part, part, Const(factor(high * wide), "f32")))
    finish.numbers(y, t)


def inside_counts(work: Work, y: Local, x: Local, window: Window) -> tuple[list[int], list[int]]:
    """How many rows, and how many columns of each window lie inside the operand."""
    rows, columns = (
        _inside(n, m, k, s, d, p)
        for n, m, k, s, d, p in zip(
            (y.height, y.width),
            (x.height, x.width),
            window.kernel,
            window.stride,
            window.dilation,
            work.fields["pad"],
            strict=True,
        )
    )
    return rows, columns


def _inside(
    outputs: int, size: int, kernel: int, stride: int, dilation: int, pad: int
) -> list[int]:
    """How many taps of each window lie inside the operand, along one axis."""
    taps = np.arange(kernel) * dilation
    starts = np.arange(outputs) * stride - pad
    at = starts[:, None] + taps
    return [int(n) for n in ((at >= 0) & (at < size)).sum(1)]


def runs(counts: list[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal counts: the first one, how many, and the count."""
    first = 0
    for count, run in groupby(counts):
        many = len(list(run))
        yield first, many, count
        first += many


def eltwise(work: Work) -> None:
    """A sum or product of two maps; the second one may have one row, column or channel."""
    f, layer = work.fields, work.layer
    other = small(local(f["other"], work.chip), layer)
    add = layer.attrs["kind"] == "add"
    if other.channels == 1 < work.y.channels:
        other = all_lanes(work, other)
    same = (other.height, other.width) == (work.y.height, work.y.width)
    for first, count in work.passes(work.x, *([other] if same else [])):
        y, a = work.y.some_blocks(first, count), work.x.some_blocks(first, count)
        b = other.some_blocks(0 if other.plane == 0 else first, count)
        b = replace(b, channels=y.channels)
        if add:
            t = dequantized(work.emit, work.at, a, f["a_zero"], f["a_factor"])
            added = dequantized(work.emit, work.spare(y), b, f["b_zero"], f["b_factor"])
            work.emit(tiu.arithmetic(tiu.ADD, t, t, added))
            work.finish(y).numbers(y, t)
            continue
        acc, spare = work.sums(y), work.spare(y)
        left = _without_zero(work.emit, spare, a, f["a_zero"])
        behind = spare + y.blocks * y.chip.aligned(2 * y.height * y.width)
        right = _without_zero(work.emit, behind, b, f["b_zero"])
        work.emit(tiu.arithmetic(tiu.MUL, acc, left, right))
        work.finish(y).sums(y, acc, float(f["a_factor"]))


def small(other: Local, layer: Layer) -> Local:
    """The second operand in its own size: the schedule repeats it by strides of 0."""
    fm = layer.reads[1].map
    if other.row == 0 and fm.height == 1:
        other = replace(other, height=1, row=fm.width * other.item)
    if other.pixel == 0 and fm.width == 1:
        other = replace(other, width=1, pixel=other.item)
        other = replace(other, row=other.item if other.row in (0, other.item) else other.row)
    return other


def all_lanes(work: Work, x: Local) -> Local:
    """A map of one channel, copied to every lane; all blocks share it."""
    at = work.at + work.scratch.per_block * work.scratch.blocks
    copy = packed(x.chip, at, x.dtype, min(x.chip.lanes, work.y.channels), x.height, x.width)
    if not x.regular:
        moved = replace(copy, channels=1)
        work.emit(tiu.arithmetic(tiu.COPY, moved, x))
        x = moved
    work.emit(tiu.lane_broadcast(copy, x))
    return replace(copy, plane=0)


def _without_zero(emit: Emit, at: int, x: Local, zero: int) -> Local:
    """x - zero as i16; x itself if the zero is 0."""
    if not zero:
        return x
    wide = packed(x.chip, at, "i16", x.channels, x.height, x.width)
    emit(tiu.arithmetic(tiu.SUB, wide, x, Const(zero, "i16")))
    return wide


def lut(work: Work) -> None:
    """A table lookup of bytes."""
    for first, count in work.passes(work.x):
        y = work.y.some_blocks(first, count)
        x = work.source(work.x.some_blocks(first, count))
        direct = y.regular and y.address != x.address
        to = y if direct else packed(y.chip, work.at, y.dtype, y.channels, y.height, y.width)
        look_up(work.emit, to, x, work.table, 256)
        if to is not y:
            work.emit(tiu.arithmetic(tiu.COPY, y, to))


def resize(work: Work) -> None:
    """Repeat rows and columns: one strided copy for each place in the repeated box."""
    (high, wide), (phase, _) = work.fields["factor"], work.fields["phase"]
    for block in range(work.y.blocks):
        y, x = work.y.some_blocks(block, 1), work.x.some_blocks(block, 1)
        for i in range(high):
            first = (i - phase) % high  # the first row of the result at this place
            rows = len(range(first, y.height, high))
            if not rows:
                continue
            source = (phase + first) // high
            for j in range(wide):
                to = replace(
                    y,
                    address=y.address + first * y.row + j * y.pixel,
                    height=rows,
                    width=x.width,
                    row=y.row * high,
                    pixel=y.pixel * wide,
                )
                read = replace(x, address=x.address + source * x.row, height=rows)
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
    chip: Variant,
    more: Mapping[str, Callable[[Work], None]],
) -> None:
    """Write the commands of an instruction of the compute queue; `more` are other modules'.

    Layers of floats share instructions with those of bytes, and have functions of their own.
    """
    name = layer.node.op.removeprefix("npu.") if layer.node is not None else given.op
    found = more.get(name) or {**COMPUTE, **more}[given.op]
    found(Work(given, layer, constants, emit, chip))
