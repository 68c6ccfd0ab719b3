"""Bit-exact lowerings of quantised arithmetic to simpler ops, for formats that lack it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.ir import Value, constant
from intaglio.ops.cast import cast
from intaglio.ops.compare import bitwise_and
from intaglio.ops.elementwise import add, div, mul, round, sub
from intaglio.ops.index import gather
from intaglio.ops.integer_conv import conv_integer, qlinear_conv
from intaglio.ops.linear import matmul_integer, qlinear_matmul
from intaglio.ops.pool import avg_pool
from intaglio.ops.quantize import quantize_linear
from intaglio.ops.quantized import (
    RESIZE_UNIT,
    lookup,
    qlinear_add,
    qlinear_avg_pool,
    qlinear_mean,
    qlinear_mul,
    qlinear_resize,
    qlinear_softmax,
)
from intaglio.ops.reduce import reduce_max, reduce_sum
from intaglio.ops.registry import normalize_axis
from intaglio.ops.shape import part, reshape


def _one(v: Value) -> Value:
    result: Value = reshape(v, shape=())
    return result


def _per_channel(v: Value, rank: int) -> Value:
    result: Value = _one(v) if v.type.size == 1 else reshape(v, shape=(-1, *[1] * (rank - 2)))
    return result


def _rounded(real: Value, zero: Value) -> Value:
    """clamp(rint(real) + zero)"""
    result: Value = quantize_linear(real, constant(1.0, dtype="f32"), zero, dtype=zero.dtype)
    return result


# ---- products; 16-bit operands are split into bytes ----------------------------------------------
def _split(v: Value, zero: Value | None) -> list[tuple[Value, Value | None, int]]:
    """A tensor as byte parts, each with its zero and factor: i16 is 256 * i8 + u8."""
    if v.dtype != "i16":
        return [(v, zero, 1)]

    def parts(x: Value) -> tuple[Value, Value]:
        low = bitwise_and(x, constant(255, dtype="i16"))
        high = div(sub(x, low), constant(256, dtype="i16"))
        return cast(high, dtype="i8"), cast(low, dtype="u8")

    (high, low), zeros = parts(v), (None, None) if zero is None else parts(zero)
    return [(high, zeros[0], 256), (low, zeros[1], 1)]


def _sums(product: Any, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None) -> Value:
    """The accumulators of a product: i32 for bytes, i64 summed from byte parts for i16."""
    found: list[Value] = []
    for one, one_zero, by in _split(x, x_zero):
        for other, other_zero, times in _split(w, w_zero):
            sums = product(one, other, one_zero, other_zero)
            if "i16" in (x.dtype, w.dtype):
                sums = mul(cast(sums, dtype="i64"), constant(by * times, dtype="i64"))
            found.append(sums)
    total = found[0]
    for more in found[1:]:
        total = add(total, more)
    return total


@qlinear_conv.lowers
def _(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value | None,
    y_zero: Value | None,
    b: Value | None,
    residual: Value | None,
    r_scale: Value | None,
    r_zero: Value | None,
    **window: Any,
) -> Value:
    def convolve(*operands: Value | None) -> Value:
        result: Value = conv_integer(*operands, **window)
        return result

    acc, rank = _sums(convolve, x, _one(x_zero), w, w_zero), x.type.rank
    if b is not None:
        same = b if b.dtype == acc.dtype else cast(b, dtype=acc.dtype)
        acc = add(acc, _per_channel(same, rank))
    scale = mul(_one(x_scale), _per_channel(w_scale, rank))
    scale = scale if y_scale is None else div(scale, _one(y_scale))
    real: Value = mul(cast(acc, dtype="f32"), scale)
    if y_scale is None or y_zero is None:
        return real if residual is None else add(real, residual)
    if residual is not None and r_scale is not None and r_zero is not None:
        centred = sub(cast(residual, dtype="f32"), cast(_one(r_zero), dtype="f32"))
        real = add(real, mul(centred, div(_one(r_scale), _one(y_scale))))
    return _rounded(real, _one(y_zero))


@qlinear_matmul.lowers
def _(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value | None,
    y_zero: Value | None,
) -> Value | None:
    wide = "i16" in (a.dtype, b.dtype)
    if a_scale.type.size != 1 or (y_scale is not None and (not wide or y_scale.type.size != 1)):
        return None
    acc = cast(_sums(matmul_integer, a, a_zero, b, b_zero), dtype="f32")
    scale = mul(_one(a_scale), _one(b_scale) if b_scale.type.size == 1 else b_scale)
    if y_scale is None or y_zero is None:
        result: Value = mul(acc, scale)
        return result
    return _rounded(mul(acc, div(scale, _one(y_scale))), _one(y_zero))


# ---- elementwise, means, resize ------------------------------------------------------------------
def _centred(x: Value, zero: Value, dtype: str = "f32") -> Value:
    result: Value = sub(cast(x, dtype=dtype), cast(_one(zero), dtype=dtype))
    return result


@lookup.lowers
def _(x: Value, table: Value) -> Value | None:
    if x.dtype == "u8":
        result: Value = gather(table, cast(x, dtype="i64"), axis=0)
        return result
    if table.data is None:
        return None
    rolled = constant(np.roll(table.data, 128))  # start with the entry of -128
    result = gather(rolled, add(cast(x, dtype="i64"), constant(128, dtype="i64")), axis=0)
    return result


@qlinear_add.lowers
def _(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    left = mul(_centred(a, a_zero), div(_one(a_scale), _one(y_scale)))
    right = mul(_centred(b, b_zero), div(_one(b_scale), _one(y_scale)))
    return _rounded(add(left, right), _one(y_zero))


@qlinear_mul.lowers
def _(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    factor = div(mul(_one(a_scale), _one(b_scale)), _one(y_scale))
    return _rounded(mul(mul(_centred(a, a_zero), _centred(b, b_zero)), factor), _one(y_zero))


def _mean(total: Value, x_scale: Value, y_scale: Value, y_zero: Value, count: Value) -> Value:
    factor = div(_one(x_scale), mul(_one(y_scale), count))
    return _rounded(mul(cast(total, dtype="f32"), factor), _one(y_zero))


@qlinear_mean.lowers
def _(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y_scale: Value,
    y_zero: Value,
    *,
    axes: tuple[int, ...],
    keepdims: bool,
) -> Value:
    total = reduce_sum(_centred(x, x_zero, "i64"), axes=axes, keepdims=keepdims)
    count = constant(float(math.prod(x.shape[a] for a in axes)), dtype="f32")
    return _mean(total, x_scale, y_scale, y_zero, count)


@qlinear_avg_pool.lowers
def _(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y_scale: Value,
    y_zero: Value,
    *,
    count_include_pad: bool,
    **window: Any,
) -> Value | None:
    size = math.prod(window["kernel"])
    if x.type.dynamic or size > 4096:
        return None  # an f32 mean cannot hold so large a sum exactly
    mean = avg_pool(_centred(x, x_zero), **window, count_include_pad=True)
    total = round(mul(mean, constant(float(size), dtype="f32")))
    ones = np.ones((1, 1, *x.shape[2:]))
    met = np.rint(avg_pool.body(ones, **window, count_include_pad=True) * size)
    count = np.full_like(met, size) if count_include_pad else np.maximum(met, 1)
    return _mean(total, x_scale, y_scale, y_zero, constant(count.astype(np.float32)))


@qlinear_resize.lowers
def _(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y_scale: Value,
    y_zero: Value,
    row: Value,
    row_weight: Value,
    column: Value,
    column_weight: Value,
    *,
    axis: int,
) -> Value:
    total: Value = _centred(x, x_zero, "i32")
    for at, index, weight in ((axis, row, row_weight), (axis + 1, column, column_weight)):
        ends = [
            gather(total, reshape(part(index, k, k + 1, axis=1), shape=(-1,)), axis=at)
            for k in range(2)
        ]
        along_axis = (-1, *[1] * (x.type.rank - 1 - at % x.type.rank))
        taken = [reshape(part(weight, k, k + 1, axis=1), shape=along_axis) for k in range(2)]
        total = add(mul(ends[0], taken[0]), mul(ends[1], taken[1]))
    unit = constant(float(RESIZE_UNIT**2), dtype="f32")
    return _mean(total, x_scale, y_scale, y_zero, unit)


@qlinear_softmax.lowers
def _(x: Value, table: Value, y_scale: Value, y_zero: Value, *, axis: int) -> Value:
    axes, wide = (normalize_axis(axis, x.type.rank),), cast(x, dtype="i64")
    power = cast(gather(table, sub(reduce_max(wide, axes=axes), wide), axis=0), dtype="i64")
    total = cast(reduce_sum(power, axes=axes), dtype="f32")
    real = div(cast(power, dtype="f32"), mul(total, _one(y_scale)))
    return _rounded(real, _one(y_zero))
