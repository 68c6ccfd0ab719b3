"""Each NPU op in neutral ops, for ops that are better left to the CPU.

Integer ops keep every bit. Sums of f16 are added up in the CPU's own order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Value, constant
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.ops.convolutions import conv, depthwise
from intaglio.npu.ops.data_movement import concat, depth_to_space, resize, slice_
from intaglio.npu.ops.elementwise import eltwise, lut
from intaglio.npu.ops.epilogue import Epilogue
from intaglio.npu.ops.feature_maps import INTEGER_FEATURES
from intaglio.npu.ops.matrix_product import matmul
from intaglio.npu.ops.pooling import pool
from intaglio.ops.quantized import BITS8, INTEGERS

FLOATS = (*f16_arithmetic.TYPES, "f32")


def _integer(n: int, dtype: str) -> Value:
    return constant(n, dtype=dtype)


def _real(f: float) -> Value:
    return constant(f, dtype="f32")


# ---- epilogues -----------------------------------------------------------------------------------
def _type_before_table(
    end: Epilogue, table: Value | None, dtypes_allowed: tuple[str, ...] = INTEGER_FEATURES
) -> str | None:
    """The element type that holds the numbers before a table looks them up; None: there is none."""
    if table is None:
        return end.dtype
    numbers = end.y_zero, end.low, end.high
    for dtype in dtypes_allowed:
        low, high = dtypes.limits(dtype)
        if low <= min(numbers) and max(numbers) <= high:
            return dtype
    return None


def _look_up(y: Value, table: Value, base: int, low: int, high: int) -> Value:
    assert table.data is not None
    narrow = y.dtype in BITS8
    if narrow:
        every = np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(y.dtype))
    else:
        every = base + np.arange(table.type.size)
    at = np.clip(np.clip(every.astype(np.int32), low, high) - base, 0, table.type.size - 1)
    entries = constant(table.data[at])
    result: Value = ops.lookup(y, entries) if narrow else ops.lookup_wide(y, entries, base=base)
    return result


def _clip_or_look_up(y: Value, end: Epilogue, table: Value | None = None) -> Value:
    """The rest of an integer epilogue, after rounding to the type of `y`."""
    if table is not None:
        return _look_up(y, table, end.base, end.low, end.high)
    if (end.low, end.high) == dtypes.limits(y.dtype):
        return y
    result: Value = ops.clip(y, lo=float(end.low), hi=float(end.high))
    return result


def _from_f32(t: Value, end: Epilogue, table: Value | None = None) -> Value:
    """The epilogue of an f32 result."""
    result = t
    if end.dtype in FLOATS:
        if end.least > -math.inf or end.most < math.inf:
            result = ops.clip(result, lo=end.least, hi=end.most)
        result = result if end.dtype == "f32" else ops.cast(result, dtype=end.dtype)
        return result if table is None else _interpolate(result, table)
    result = ops.quantize_linear(t, _real(1.0), _integer(end.y_zero, end.dtype), dtype=end.dtype)
    return _clip_or_look_up(result, end)


def _interpolate(x: Value, table: Value) -> Value:
    """A piecewise-linear table of f16 as a table of all f16, indexed by their bits."""
    assert table.data is not None
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore"):
        entries = constant(f16_arithmetic.interpolate(every, table.data).astype(np.float16))
    bits = ops.cast(ops.bitcast(x, dtype="u16"), dtype="i64")
    result: Value = ops.gather(entries, bits, axis=0)
    return result


# ---- operands ------------------------------------------------------------------------------------
def _as_f32(v: Value) -> Value:
    result: Value = ops.cast(v, dtype="f32")
    return result


def _scaled(v: Value, factor: float, zero: int = 0) -> Value:
    """An operand as f32, times a factor."""
    result: Value
    if v.dtype not in f16_arithmetic.TYPES:
        result = ops.dequantize_linear(v, _real(factor), _integer(zero, v.dtype))
        return result
    result = _as_f32(v)
    return result if factor == 1 else ops.mul(result, _real(factor))


# ---- convolutions --------------------------------------------------------------------------------
def _f16_convolution(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    end: Epilogue,
    **window: Any,
) -> Value:
    assert w.data is not None
    assert scale.data is not None
    weights = constant(w.data.astype(np.float32) * scale.data.reshape(-1, 1, 1, 1))
    t = ops.conv(_as_f32(x), weights, bias, **window)
    return _from_f32(t if residual is None else ops.add(t, residual), end, table)


def _convolution(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    *,
    x_zero: int,
    y_zero: int,
    low: int,
    high: int,
    r_zero: int,
    r_factor: float,
    base: int,
    least: float,
    most: float,
    dtype: str,
    **window: Any,
) -> Value | None:
    end = Epilogue(dtype, y_zero, low, high, base, least, most)
    in_floats = residual is not None and residual.dtype == "f16"
    if x.dtype in f16_arithmetic.TYPES:
        added = None if residual is None else _scaled(residual, r_factor, r_zero)
        return _f16_convolution(x, w, scale, bias, added, table, end, **window)
    one, zeros = _real(1.0), constant(np.zeros(w.shape[0], dtypes.numpy_of(w.dtype)))
    given = x, one, _integer(x_zero, x.dtype), w, scale, zeros
    y: Value
    if dtype == "i32":
        if "i16" in (x.dtype, w.dtype):
            return None
        y = ops.conv_integer(x, w, _integer(x_zero, x.dtype), **window)
        return ops.add(y, constant(bias.data.reshape(-1, 1, 1)))  # type: ignore[union-attr, no-any-return]
    if dtype in FLOATS or in_floats:
        added = None if residual is None else _scaled(residual, r_factor, r_zero)
        y = ops.qlinear_conv(*given, None, None, bias, added, **window)
        return None if table is not None else _from_f32(y, end)
    kind = _type_before_table(end, table)
    if kind is None:
        return None
    of_residual: tuple[Value, ...] = ()
    if residual is not None:
        of_residual = _real(r_factor), _integer(r_zero, residual.dtype)
    zero = _integer(y_zero, kind)
    y = ops.qlinear_conv(*given, one, zero, bias, residual, *of_residual, **window)
    return _clip_or_look_up(y, end, table)


@conv.lowers
def _(*operands: Value | None, **attrs: Any) -> Value | None:
    return _convolution(*operands, groups=1, **attrs)  # type: ignore[arg-type]


@depthwise.lowers
def _(x: Value, *operands: Value | None, **attrs: Any) -> Value | None:
    return _convolution(x, *operands, groups=x.shape[1], **attrs)  # type: ignore[arg-type]


# ---- the other ops -------------------------------------------------------------------------------
@matmul.lowers
def _(
    a: Value,
    b: Value,
    *,
    turned: bool,
    a_zero: int,
    b_zero: int,
    factor: float,
    dtype: str,
    **bounds: Any,
) -> Value:
    left, right = (ops.reshape(v, shape=v.shape[:3]) for v in (b, a))
    left = ops.transpose(left, perm=(0, 2, 1)) if turned else left
    zeros = _integer_or_none(b, b_zero), _integer_or_none(a, a_zero)
    end = Epilogue(dtype, **bounds)
    y: Value
    if dtype == "i32":
        y = ops.matmul_integer(left, right, *zeros)
    elif a.dtype in f16_arithmetic.TYPES:
        y = ops.mul(ops.matmul(_as_f32(left), _as_f32(right)), _real(factor))
        y = _from_f32(y, end)
    else:
        given = left, _real(factor), zeros[0], right, _real(1.0), zeros[1]
        if dtype in FLOATS:
            y = _from_f32(ops.qlinear_matmul(*given), end)
        else:
            y = ops.qlinear_matmul(*given, _real(1.0), _integer(end.y_zero, dtype))
            y = _clip_or_look_up(y, end)
    result: Value = ops.reshape(y, shape=(*y.shape, 1))
    return result


def _integer_or_none(v: Value, zero: int) -> Value | None:
    return None if v.dtype in f16_arithmetic.TYPES else _integer(zero, v.dtype)


@pool.lowers
def _(
    x: Value,
    *,
    kind: str,
    count_include_pad: bool,
    x_zero: int,
    y_zero: int,
    x_scale: float,
    y_scale: float,
    low: int,
    high: int,
    least: float,
    most: float,
    dtype: str,
    **window: Any,
) -> Value | None:
    end = Epilogue(dtype, y_zero, low, high, least=least, most=most)
    if x.dtype in f16_arithmetic.TYPES:
        pooled = ops.max_pool if kind == "max" else ops.avg_pool
        count: Any = {} if kind == "max" else {"count_include_pad": count_include_pad}
        t = pooled(_as_f32(x), **window, **count)
        return _from_f32(t if x_scale == y_scale else ops.mul(t, _real(x_scale / y_scale)), end)
    if kind == "max":
        return _clip_or_look_up(ops.max_pool(x, **window), end)
    if dtype not in INTEGERS:
        return None
    of_x = _real(x_scale), _integer(x_zero, x.dtype)
    of_y = _real(y_scale), _integer(y_zero, dtype)
    y = ops.qlinear_avg_pool(x, *of_x, *of_y, **window, count_include_pad=count_include_pad)
    return _clip_or_look_up(y, end)


@eltwise.lowers
def _(
    a: Value,
    b: Value,
    table: Value | None,
    *,
    kind: str,
    a_zero: int,
    b_zero: int,
    a_factor: float,
    b_factor: float,
    dtype: str,
    **bounds: Any,
) -> Value | None:
    end = Epilogue(dtype, **bounds)
    right_factor = b_factor if kind == "add" else 1.0
    if a.dtype in f16_arithmetic.TYPES:
        left, right = _scaled(a, a_factor), _scaled(b, right_factor)
        t = ops.add(left, right) if kind == "add" else ops.mul(left, right)
        return _from_f32(t, end, table)
    stored = _type_before_table(end, table, INTEGERS)
    if stored not in INTEGERS:
        return None
    of_a = a, _real(a_factor), _integer(a_zero, a.dtype)
    of_b = b, _real(right_factor), _integer(b_zero, b.dtype)
    result = ops.qlinear_add if kind == "add" else ops.qlinear_mul
    y = result(*of_a, *of_b, _real(1.0), _integer(end.y_zero, stored))
    return _clip_or_look_up(y, end, table)


@lut.lowers
def _(x: Value, table: Value, *, base: int) -> Value:
    if x.dtype in f16_arithmetic.TYPES:
        return _interpolate(x, table)
    return _look_up(x, table, base, *dtypes.limits(x.dtype))


@resize.lowers
def _(x: Value, *, factor: tuple[int, int]) -> Value:
    shape = tuple(n * f for n, f in zip(x.shape[2:], factor, strict=True))
    result: Value = ops.resize(
        x,
        axes=(2, 3),
        shape=shape,
        scales=tuple(map(float, factor)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return result


@depth_to_space.lowers
def _(
    x: Value, *, blocksize: int, channels: int, first: tuple[int, int], shape: tuple[int, int]
) -> Value:
    y = ops.depth_to_space(x, blocksize=blocksize, mode="DCR") if blocksize > 1 else x
    y = ops.part(y, 0, channels, axis=1)
    for axis, start, size in zip((2, 3), first, shape, strict=True):
        y = ops.part(y, start, start + size, axis=axis)
    return y


@concat.lowers
def _(*xs: Value) -> Value:
    result: Value = ops.concat(*xs, axis=1)
    return result


@slice_.lowers
def _(x: Value, *, first: int, count: int) -> Value:
    return ops.part(x, first, first + count, axis=1)
