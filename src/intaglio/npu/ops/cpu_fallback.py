"""NPU ops in neutral ones: for those that are better left to the CPU.

Those of integers keep every bit; sums of f16 are added up in the CPU's own order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Value, constant
from intaglio.npu.ops import (
    FEATURES,
    concat,
    conv,
    depthwise,
    eltwise,
    f16_arithmetic,
    lut,
    matmul,
    pool,
    resize,
    slice_,
)
from intaglio.ops.quantized import BITS8, INTEGERS


def _number(n: int, dtype: str) -> Value:
    return constant(n, dtype=dtype)


def _factor(f: float) -> Value:
    return constant(f, dtype="f32")


def _between(
    numbers: tuple[int, ...], dtype: str, table: Value | None, kinds: tuple[str, ...] = FEATURES
) -> str | None:
    """The element type in which the numbers before a table are stored."""
    if table is None:
        return dtype
    return next(
        (
            k
            for k in kinds
            if dtypes.limits(k)[0] <= min(numbers) <= max(numbers) <= dtypes.limits(k)[1]
        ),
        None,
    )


def _looked_up(y: Value, table: Value, base: int, low: int, high: int) -> Value:
    assert table.data is not None
    if y.dtype in BITS8:
        every = np.arange(256, dtype=np.uint8).view(dtypes.numpy_of(y.dtype))
    else:
        every = base + np.arange(table.type.size)
    at = np.clip(np.clip(every.astype(np.int32), low, high) - base, 0, table.type.size - 1)
    entries, narrow = constant(table.data[at]), y.dtype in BITS8
    made: Value = ops.lookup(y, entries) if narrow else ops.lookup_wide(y, entries, base=base)
    return made


def _bounded(y: Value, low: int, high: int, table: Value | None = None, base: int = 0) -> Value:
    """What is left to do after rounding to the type of `y`."""
    if table is not None:
        return _looked_up(y, table, base, low, high)
    if (low, high) == dtypes.limits(y.dtype):
        return y
    made: Value = ops.clip(y, lo=float(low), hi=float(high))
    return made


# ---- floats --------------------------------------------------------------------------------------
def _real(v: Value) -> Value:
    """f16 as f32."""
    made: Value = ops.cast(v, dtype="f32")
    return made


def _clipped(t: Value, least: float, most: float) -> Value:
    made: Value = ops.clip(t, lo=least, hi=most) if least > -math.inf or most < math.inf else t
    return made


def _of_floats(
    t: Value,
    dtype: str,
    y_zero: int,
    low: int,
    high: int,
    least: float,
    most: float,
    table: Value | None = None,
) -> Value:
    """What is made of f32."""
    made: Value
    if dtype in (*f16_arithmetic.TYPES, "f32"):
        made = _clipped(t, least, most)
        made = made if dtype == "f32" else ops.cast(made, dtype=dtype)
        return made if table is None else _on_curve(made, table)
    made = ops.quantize_linear(t, _factor(1.0), _number(y_zero, dtype), dtype=dtype)
    return _bounded(made, low, high)


def _on_curve(x: Value, table: Value) -> Value:
    """A table of f16, by the bits of its numbers."""
    assert table.data is not None
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore"):
        entries = constant(f16_arithmetic.curved(every, table.data).astype(np.float16))
    bits = ops.cast(ops.bitcast(x, dtype="u16"), dtype="i64")
    made: Value = ops.gather(entries, bits, axis=0)
    return made


def _real_product(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    groups: int,
    *,
    x_zero: int,
    r_zero: int,
    r_factor: float,
    base: int,
    stride: Any,
    pad: Any,
    dilation: Any,
    **end: Any,
) -> Value:
    assert w.data is not None
    assert scale.data is not None
    weights = constant(w.data.astype(np.float32) * scale.data.reshape(-1, 1, 1, 1))
    t = ops.conv(_real(x), weights, bias, stride=stride, pad=pad, dilation=dilation, groups=groups)
    if residual is not None:
        t = ops.add(t, _scaled(residual, r_factor, r_zero))
    return _of_floats(t, table=table, **end)


def _scaled(v: Value, factor: float, zero: int = 0) -> Value:
    """An operand as f32, times a factor."""
    made: Value
    if v.dtype not in f16_arithmetic.TYPES:
        made = ops.dequantize_linear(v, _factor(factor), _number(zero, v.dtype))
        return made
    made = _real(v)
    return made if factor == 1 else ops.mul(made, _factor(factor))


# ---- integers ------------------------------------------------------------------------------------
def _product(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    groups: int,
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
    if x.dtype in f16_arithmetic.TYPES:
        return _real_product(
            x,
            w,
            scale,
            bias,
            residual,
            table,
            groups,
            x_zero=x_zero,
            r_zero=r_zero,
            r_factor=r_factor,
            base=base,
            y_zero=y_zero,
            low=low,
            high=high,
            least=least,
            most=most,
            dtype=dtype,
            **window,
        )
    one, zeros = _factor(1.0), constant(np.zeros(w.shape[0], dtypes.numpy_of(w.dtype)))
    given = x, one, _number(x_zero, x.dtype), w, scale, zeros
    of_r = () if residual is None else (_factor(r_factor), _number(r_zero, residual.dtype))
    y: Value
    if dtype == "i32":
        if "i16" in (x.dtype, w.dtype):
            return None
        y = ops.conv_integer(x, w, _number(x_zero, x.dtype), **window, groups=groups)
        return ops.add(y, constant(bias.data.reshape(-1, 1, 1)))  # type: ignore[union-attr, no-any-return]
    if dtype in (*f16_arithmetic.TYPES, "f32") or (
        residual is not None and residual.dtype == "f16"
    ):
        real = None if residual is None else _scaled(residual, r_factor, r_zero)
        y = ops.qlinear_conv(*given, None, None, bias, real, **window, groups=groups)
        if table is not None:
            return None
        return _of_floats(y, dtype, y_zero, low, high, least, most)
    kind = _between((y_zero, low, high), dtype, table)
    if kind is None:
        return None
    y = ops.qlinear_conv(
        *given, one, _number(y_zero, kind), bias, residual, *of_r, **window, groups=groups
    )
    return _bounded(y, low, high, table, base)


@conv.lowers
def _(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    **attrs: Any,
) -> Value | None:
    return _product(x, w, scale, bias, residual, table, 1, **attrs)


@depthwise.lowers
def _(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    **attrs: Any,
) -> Value | None:
    return _product(x, w, scale, bias, residual, table, x.shape[1], **attrs)


@matmul.lowers
def _(
    a: Value,
    b: Value,
    *,
    turned: bool,
    a_zero: int,
    b_zero: int,
    y_zero: int,
    factor: float,
    low: int,
    high: int,
    least: float,
    most: float,
    dtype: str,
) -> Value:
    left, right = (ops.reshape(v, shape=v.shape[:3]) for v in (b, a))
    left = ops.transpose(left, perm=(0, 2, 1)) if turned else left
    y: Value
    if dtype == "i32":
        y = ops.matmul_integer(
            left, right, *(_number(z, v.dtype) for z, v in ((b_zero, b), (a_zero, a)))
        )
        return ops.reshape(y, shape=(*y.shape, 1))  # type: ignore[no-any-return]
    if a.dtype in f16_arithmetic.TYPES:
        y = ops.mul(ops.matmul(_real(left), _real(right)), _factor(factor))
        y = _of_floats(y, dtype, y_zero, low, high, least, most)
        return ops.reshape(y, shape=(*y.shape, 1))  # type: ignore[no-any-return]
    given = (
        left,
        _factor(factor),
        _number(b_zero, b.dtype),
        right,
        _factor(1.0),
        _number(a_zero, a.dtype),
    )
    floats = dtype in (*f16_arithmetic.TYPES, "f32")
    end = () if floats else (_factor(1.0), _number(y_zero, dtype))
    y = ops.qlinear_matmul(*given, *end)
    y = _of_floats(y, dtype, y_zero, low, high, least, most) if floats else _bounded(y, low, high)
    made: Value = ops.reshape(y, shape=(*y.shape, 1))
    return made


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
    if x.dtype in f16_arithmetic.TYPES:
        pooled = ops.max_pool if kind == "max" else ops.avg_pool
        count: Any = {} if kind == "max" else {"count_include_pad": count_include_pad}
        t = pooled(_real(x), **window, **count)
        t = t if x_scale == y_scale else ops.mul(t, _factor(x_scale / y_scale))
        return _of_floats(t, dtype, y_zero, low, high, least, most)
    if kind == "max":
        return _bounded(ops.max_pool(x, **window), low, high)
    if dtype not in INTEGERS:
        return None
    of_x, of_y = (
        (_factor(x_scale), _number(x_zero, x.dtype)),
        (_factor(y_scale), _number(y_zero, dtype)),
    )
    y = ops.qlinear_avg_pool(x, *of_x, *of_y, **window, count_include_pad=count_include_pad)
    return _bounded(y, low, high)


@eltwise.lowers
def _(
    a: Value,
    b: Value,
    table: Value | None,
    *,
    kind: str,
    a_zero: int,
    b_zero: int,
    y_zero: int,
    a_factor: float,
    b_factor: float,
    low: int,
    high: int,
    base: int,
    least: float,
    most: float,
    dtype: str,
) -> Value | None:
    if a.dtype in f16_arithmetic.TYPES:
        left, right = _scaled(a, a_factor), _scaled(b, b_factor if kind == "add" else 1.0)
        t = ops.add(left, right) if kind == "add" else ops.mul(left, right)
        return _of_floats(t, dtype, y_zero, low, high, least, most, table)
    stored = _between((y_zero, low, high), dtype, table, INTEGERS)
    if stored not in INTEGERS:
        return None
    made = ops.qlinear_add if kind == "add" else ops.qlinear_mul
    y = made(
        a,
        _factor(a_factor),
        _number(a_zero, a.dtype),
        b,
        _factor(b_factor if kind == "add" else 1.0),
        _number(b_zero, b.dtype),
        _factor(1.0),
        _number(y_zero, stored),
    )
    return _bounded(y, low, high, table, base)


@lut.lowers
def _(x: Value, table: Value, *, base: int) -> Value:
    if x.dtype in f16_arithmetic.TYPES:
        return _on_curve(x, table)
    return _looked_up(x, table, base, *dtypes.limits(x.dtype))


@resize.lowers
def _(x: Value, *, factor: tuple[int, int]) -> Value:
    shape = tuple(n * f for n, f in zip(x.shape[2:], factor, strict=True))
    made: Value = ops.resize(
        x,
        axes=(2, 3),
        shape=shape,
        scales=tuple(map(float, factor)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return made


@concat.lowers
def _(*xs: Value) -> Value:
    made: Value = ops.concat(*xs, axis=1)
    return made


@slice_.lowers
def _(x: Value, *, first: int, count: int) -> Value:
    return ops.part(x, first, first + count, axis=1)
