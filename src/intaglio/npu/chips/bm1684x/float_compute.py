"""f32 layers and matrix products as commands; float_ops.py has their meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from intaglio import dtypes
from intaglio.npu.chips.bm1684x import tiu
from intaglio.npu.chips.bm1684x.compute import Work, all_lanes
from intaglio.npu.chips.bm1684x.float_ops import (
    EXP_SERIES,
    EXPONENT,
    LEAST_EXPONENT,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    STEPS,
    inverse,
)
from intaglio.npu.chips.bm1684x.float_window_compute import FLOAT_WINDOWS
from intaglio.npu.chips.bm1684x.local import Local, local, packed, per_channel
from intaglio.npu.chips.bm1684x.rounding import Finish, Rounding
from intaglio.npu.chips.bm1684x.tiu import POINT, Const


def _number(value: float | np.float32) -> Const:
    return Const(float(value), "f32")


def matmul(work: Work) -> None:
    """A product of bytes: a convolution whose weights are the second operand, block by block."""
    f, chip = work.fields, work.chip
    weights = local(f["other"], chip)
    rows = _ones(work) if f["a_zero"] else None
    zero = f["b_zero"] if chip.weight_zeros else 0
    columns = _column_sums(work, f["b_zero"]) if zero != f["b_zero"] else None
    for block in range(work.y.blocks):
        y, b = work.y.some_blocks(block, 1), weights.some_blocks(block, 1)
        acc = work.sums(y)
        work.emit(tiu.conv(acc, work.x, b.address, POINT, 0, b.dtype, zero))
        if columns is not None:
            added = replace(columns, channels=y.channels)
            work.emit(tiu.arithmetic(tiu.ADD, acc, acc, added))
        if rows is not None:
            ones, at = rows
            of_b = packed(chip, at, "i32", y.channels, 1, 1)
            work.emit(tiu.conv(of_b, ones, b.address, POINT, 0, b.dtype, zero))
            work.emit(tiu.arithmetic(tiu.MUL, of_b, of_b, Const(-f["a_zero"], "i32")))
            work.emit(tiu.arithmetic(tiu.ADD, acc, acc, of_b))
        work.finish(y).sums(y, acc, float(f["factor"]))


def _column_sums(work: Work, b_zero: int) -> Local:
    """-b_zero times the sums of (a - a_zero) over k, in every lane."""
    chip, y = work.chip, work.y
    at = work.at + work.scratch.per_block * work.scratch.blocks
    at += chip.blocks(work.x.channels) * chip.eu_bytes + chip.aligned(4)
    sums = packed(chip, at, "i32", min(chip.lanes, y.channels), y.height, y.width)
    work.emit(tiu.conv(sums, work.x, Const(1, "i8"), POINT, 0))
    work.emit(tiu.arithmetic(tiu.MUL, sums, sums, Const(-b_zero, "i32")))
    rest = b_zero * work.fields["a_zero"] * work.x.channels
    if rest:
        work.emit(tiu.arithmetic(tiu.ADD, sums, sums, Const(rest, "i32")))
    return sums


def _ones(work: Work) -> tuple[Local, int]:
    """A map of ones with the channels of `a`, and memory for the sums of the rows of b."""
    at = work.at + work.scratch.per_block * work.scratch.blocks
    ones = packed(work.chip, at, "i8", work.x.channels, 1, 1)
    pixel = replace(work.x, height=1, width=1, row=work.x.item, pixel=work.x.item, dtype="i8")
    work.emit(tiu.arithmetic(tiu.MUL, ones, pixel, Const(0, "i8")))
    work.emit(tiu.arithmetic(tiu.ADD, ones, ones, Const(1, "i8")))
    return ones, at + ones.blocks * work.chip.eu_bytes


def float_matmul(work: Work) -> None:
    """A product of matrices of floats, as `matmul`."""
    weights = local(work.fields["other"], work.chip)
    for block in range(work.y.blocks):
        y, b = work.y.some_blocks(block, 1), weights.some_blocks(block, 1)
        to = work.result(y)
        work.emit(tiu.float_conv(to, work.x, b.address))
        if to is not y:
            work.emit(tiu.arithmetic(tiu.COPY, y, to))


def quantize(work: Work) -> None:
    """Scale and round f32."""
    attrs = work.layer.attrs
    low, high = dtypes.limits(attrs["dtype"])
    end = Rounding(attrs["dtype"], attrs["y_zero"], int(low), int(high))
    for first, count in work.passes():
        y, x = work.y.some_blocks(first, count), work.x.some_blocks(first, count)
        t = work.sums(y, "f32")
        work.emit(tiu.arithmetic(tiu.MUL, t, x, _number(inverse(attrs["scale"]))))
        Finish(work.emit, end, work.spare(y)).numbers(y, t)


def dequantize(work: Work) -> None:
    """Bytes as f32."""
    attrs, x, y = work.layer.attrs, work.x, work.y
    zero, scale = attrs["x_zero"], attrs["scale"]
    if x.regular and y.regular:
        work.emit(tiu.dequantize(y, x, scale, zero))
        return
    work.emit(tiu.arithmetic(tiu.CAST, y, x))
    if zero:
        work.emit(tiu.arithmetic(tiu.SUB, y, y, _number(zero)))
    work.emit(tiu.arithmetic(tiu.MUL, y, y, _number(scale)))


def layer_norm(work: Work) -> None:
    """Means and deviations by convolutions with ones, which leave them in every lane."""
    chip, x, y, emit = work.chip, work.x, work.y, work.emit
    size = y.channels, y.height, y.width
    centred = packed(chip, work.at, "f32", *size)
    at = work.at + work.scratch.per_block * work.scratch.blocks
    lanes = min(chip.lanes, y.channels)
    mean = packed(chip, at, "f32", lanes, y.height, y.width)
    spread = replace(mean, address=at + mean.plane)
    many = _number(inverse(y.channels))

    def everywhere(v: Local) -> Local:
        return replace(v, channels=y.channels, plane=0)

    emit(tiu.float_conv(mean, x, _number(1)))
    emit(tiu.arithmetic(tiu.MUL, mean, mean, many))
    emit(tiu.arithmetic(tiu.SUB, centred, x, everywhere(mean)))
    emit(tiu.arithmetic(tiu.MUL, y, centred, centred))
    emit(tiu.float_conv(mean, y, _number(1)))
    emit(tiu.arithmetic(tiu.MUL, mean, mean, many))
    emit(tiu.arithmetic(tiu.ADD, mean, mean, _number(work.layer.attrs["epsilon"])))
    emit(tiu.reciprocal_root(spread, mean, STEPS))
    emit(tiu.arithmetic(tiu.MUL, y, centred, everywhere(spread)))
    constants = work.fields["table"] // chip.lanes
    step = chip.aligned(4 * y.blocks)
    for kind, where in ((tiu.MUL, constants), (tiu.ADD, constants + step)):
        emit(tiu.arithmetic(kind, y, y, per_channel(chip, where, "f32", y.channels, 4)))


def softmax(work: Work) -> None:
    """softmax over rows: largest numbers and sums by halves, exp by a series."""
    table = work.fields["table"] // work.chip.lanes
    mask = None
    if "other" in work.fields:
        mask = all_lanes(work, local(work.fields["other"], work.chip))
    for first, count in work.passes():
        y, x = work.y.some_blocks(first, count), work.x.some_blocks(first, count)
        _softmax(work, y, x, table, mask)


def _softmax(work: Work, y: Local, x: Local, table: int, mask: Local | None) -> None:
    emit = work.emit
    t = work.sums(y, "f32")
    step = t.plane * t.blocks
    whole, rest = (replace(t, address=t.address + k * step) for k in (1, 2))

    def two(kind: int, to: Local, a: Local, b: Local | Const | float | np.float32) -> None:
        second = b if isinstance(b, Local | Const) else _number(b)
        emit(tiu.arithmetic(kind, to, a, second))

    two(tiu.MUL, t, x, work.layer.attrs["scale"])
    if mask is not None:
        two(tiu.ADD, t, t, replace(mask, channels=y.channels))
    two(tiu.SUB, t, t, _largest(work, whole, t))
    two(tiu.MAX, t, t, LEAST_EXPONENT)
    two(tiu.MUL, whole, t, LOG2E)
    emit(tiu.arithmetic(tiu.CAST, whole, whole))
    two(tiu.MUL, rest, whole, LN2_HIGH)
    two(tiu.SUB, t, t, rest)
    two(tiu.MUL, rest, whole, LN2_LOW)
    two(tiu.SUB, t, t, rest)
    emit(tiu.series(rest, t, table, len(EXP_SERIES)))
    two(tiu.MUL, whole, whole, EXPONENT)
    power = replace(whole, dtype="i32")
    emit(tiu.arithmetic(tiu.CAST, power, whole))
    emit(tiu.arithmetic(tiu.ADD, replace(t, dtype="i32"), replace(rest, dtype="i32"), power))
    total = _total(work, whole, t)
    emit(tiu.divide(total, _number(1), total, STEPS))
    two(tiu.MUL, y, t, total)


def _rows(x: Local, first: int, count: int) -> Local:
    return replace(x, address=x.address + first * x.row, height=count)


def _largest(work: Work, to: Local, x: Local) -> Local:
    """The largest row of every channel, in `to`; halves may overlap."""
    rows = x.height
    if rows == 1:
        return x
    while rows > 1:
        half = -(-rows // 2)
        a, b = _rows(x, 0, half), _rows(x, rows - half, half)
        work.emit(tiu.arithmetic(tiu.MAX, _rows(to, 0, half), a, b))
        x, rows = to, half
    return _rows(to, 0, 1)


def _total(work: Work, to: Local, x: Local) -> Local:
    """The sum of all rows of every channel, in `to`; float_ops.halving_sum."""
    rows = x.height
    if rows == 1:
        work.emit(tiu.arithmetic(tiu.COPY, to, x))
    while rows > 1:
        half = rows // 2
        last = _rows(x, 2 * half, 1)
        work.emit(
            tiu.arithmetic(tiu.ADD, _rows(to, 0, half), _rows(x, 0, half), _rows(x, half, half))
        )
        if rows % 2:
            work.emit(tiu.arithmetic(tiu.ADD, _rows(to, 0, 1), _rows(to, 0, 1), last))
        x, rows = to, half
    return _rows(to, 0, 1)


FLOAT_COMPUTE: dict[str, Callable[[Work], None]] = {
    **FLOAT_WINDOWS,
    "matmul": matmul,
    "float_matmul": float_matmul,
    "quantize": quantize,
    "dequantize": dequantize,
    "layer_norm": layer_norm,
    "softmax": softmax,
}
