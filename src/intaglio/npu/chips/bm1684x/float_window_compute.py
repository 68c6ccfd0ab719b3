"""Convolutions, pools and element-wise layers of floats as commands; float_windows.py has
their meaning."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from intaglio.npu.chips.bm1684x import tiu
from intaglio.npu.chips.bm1684x.command_window import Window
from intaglio.npu.chips.bm1684x.compute import Work, all_lanes, inside_counts, runs
from intaglio.npu.chips.bm1684x.float_function_compute import PAIRS, function
from intaglio.npu.chips.bm1684x.float_windows import reciprocal, smallest
from intaglio.npu.chips.bm1684x.layout import BmConstants
from intaglio.npu.chips.bm1684x.local import Local, local
from intaglio.npu.chips.bm1684x.rounding import Emit
from intaglio.npu.chips.bm1684x.tiu import Const


def clamp(emit: Emit, y: Local, least: float, most: float) -> None:
    """Bounds of numbers in place."""
    for kind, bound in ((tiu.MAX, least), (tiu.MIN, most)):
        if math.isfinite(bound):
            emit(tiu.arithmetic(kind, y, y, Const(bound, y.dtype)))


def product(work: Work) -> None:
    """A convolution or a depthwise one: one command for each pass over blocks of channels."""
    f, c = work.fields, work.constants
    assert isinstance(c, BmConstants)
    deep, window, bounds = work.layer.op == "depthwise", work.window(), _bounds(work)
    weights, blocks = f["weights"] // work.chip.lanes, work.y.blocks
    for first, count in work.passes(*([work.x] if deep else [])):
        y = work.y.some_blocks(first, count)
        to = work.result(y)
        bias = weights + c.bias_at(blocks) + c.bias_item * first
        at = weights + first * c.lane_weights
        if deep:
            x = work.source(work.x.some_blocks(first, count))
            work.emit(tiu.windowed(tiu.DEPTHWISE, to, x, window, 0, at, bias))
        else:
            work.emit(tiu.float_conv(to, work.x, at, window, bias))
        clamp(work.emit, to, *bounds)
        if to is not y:
            work.emit(tiu.arithmetic(tiu.COPY, y, to))


def _bounds(work: Work) -> tuple[float, float]:
    attrs = work.layer.attrs
    return attrs["least"], attrs["most"]


def pool(work: Work) -> None:
    """The largest number of each window, or its mean in f32."""
    window = work.window()
    for first, count in work.passes(work.x):
        y, x = work.y.some_blocks(first, count), work.x.some_blocks(first, count)
        if work.layer.attrs["kind"] == "avg":
            _mean(work, y, x, window)
            continue
        to, least = work.result(y), Const(smallest(x.dtype), x.dtype)
        places = work.spare(y)
        work.emit(tiu.windowed(tiu.LARGEST, to, work.source(x), window, least, bias=places))
        if to is not y:
            work.emit(tiu.arithmetic(tiu.COPY, y, to))


def _mean(work: Work, y: Local, x: Local, window: Window) -> None:
    total = work.sums(y, "f32")
    source = work.source(x, "f32")
    work.emit(tiu.windowed(tiu.AVERAGE, total, source, window, 0, Const(1.0, "f32")))
    counts = inside_counts(work, y, x, window)
    if work.layer.attrs["count_include_pad"]:
        whole = window.kernel[0] * window.kernel[1]
        counts = [whole] * y.height, [1] * y.width
    for top, rows, high in runs(counts[0]):
        for left, columns, wide in runs(counts[1]):
            at = total.address + top * total.row + left * total.pixel
            part = replace(total, address=at, height=rows, width=columns)
            factor = Const(float(reciprocal(max(high * wide, 1))), "f32")
            work.emit(tiu.arithmetic(tiu.MUL, part, part, factor))
    work.emit(tiu.arithmetic(tiu.COPY if y.dtype == "f32" else tiu.CAST, y, total))


def arithmetic(work: Work) -> None:
    """One command for two maps; the second one may have one row, column or channel."""
    other = local(work.fields["other"], work.chip)
    kind, bounds = PAIRS[work.layer.attrs["kind"]], _bounds(work)
    if other.channels == 1 < work.y.channels:
        other = all_lanes(work, other)
    work.emit(tiu.arithmetic(kind, work.y, work.x, replace(other, channels=work.y.channels)))
    clamp(work.emit, work.y, *bounds)


def cast(work: Work) -> None:
    """Numbers in another type."""
    work.emit(tiu.arithmetic(tiu.CAST, work.y, work.x))


def bound(work: Work) -> None:
    """Numbers between two bounds."""
    least, most = _bounds(work)
    y, x = work.y, work.x
    for kind, number in ((tiu.MAX, least), (tiu.MIN, most)):
        if math.isfinite(number):
            work.emit(tiu.arithmetic(kind, y, x, Const(number, y.dtype)))
            x = y
    if x is not y:
        work.emit(tiu.arithmetic(tiu.COPY, y, x))


FLOAT_WINDOWS: dict[str, Callable[[Work], None]] = {
    "float_conv": product,
    "float_depthwise": product,
    "float_pool": pool,
    "arithmetic": arithmetic,
    "cast": cast,
    "bound": bound,
    "function": function,
}
