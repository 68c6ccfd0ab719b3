"""NPU ops in neutral ones, bit by bit: for those that are better left to the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Value, constant
from intaglio.ops.quantized import BITS8
from intaglio.targets.npu.ops import (
    FEATURES,
    concat,
    conv,
    depthwise,
    eltwise,
    lut,
    matmul,
    pool,
    resize,
    slice_,
)


def _number(n: int, dtype: str) -> Value:
    return constant(n, dtype=dtype)


def _factor(f: float) -> Value:
    return constant(f, dtype="f32")


def _between(numbers: tuple[int, ...], dtype: str, table: Value | None,
             kinds: tuple[str, ...] = FEATURES) -> str | None:  # fmt: skip
    """The element type in which the numbers before a table are stored."""
    if table is None:
        return dtype
    return next((k for k in kinds if dtypes.limits(k)[0] <= min(numbers) <= max(numbers)
                 <= dtypes.limits(k)[1]), None)  # fmt: skip


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


def _product(x: Value, w: Value, scale: Value, bias: Value, residual: Value | None,
             table: Value | None, groups: int, *, x_zero: int, y_zero: int, low: int, high: int,
             r_zero: int, r_factor: float, base: int, dtype: str, **window: Any
             ) -> Value | None:  # fmt: skip
    one, zeros = _factor(1.0), constant(np.zeros(w.shape[0], np.int8))
    given = x, one, _number(x_zero, x.dtype), w, scale, zeros
    of_r = () if residual is None else (_factor(r_factor), _number(r_zero, residual.dtype))
    y: Value
    if dtype == "i32":
        y = ops.conv_integer(x, w, _number(x_zero, x.dtype), **window, groups=groups)
        return ops.add(y, constant(bias.data.reshape(-1, 1, 1)))  # type: ignore[union-attr, no-any-return]
    if dtype == "f32":
        real = None if residual is None else ops.dequantize_linear(residual, *of_r)
        y = ops.qlinear_conv(*given, None, None, bias, real, **window, groups=groups)
        return y
    kind = _between((y_zero, low, high), dtype, table)
    if kind is None:
        return None
    y = ops.qlinear_conv(*given, one, _number(y_zero, kind), bias, residual, *of_r, **window,
                         groups=groups)  # fmt: skip
    return _bounded(y, low, high, table, base)


@conv.lowers
def _(x: Value, w: Value, scale: Value, bias: Value, residual: Value | None, table: Value | None,
      **attrs: Any) -> Value | None:  # fmt: skip
    return _product(x, w, scale, bias, residual, table, 1, **attrs)


@depthwise.lowers
def _(x: Value, w: Value, scale: Value, bias: Value, residual: Value | None, table: Value | None,
      **attrs: Any) -> Value | None:  # fmt: skip
    return _product(x, w, scale, bias, residual, table, x.shape[1], **attrs)


@matmul.lowers
def _(a: Value, b: Value, *, turned: bool, a_zero: int, b_zero: int, y_zero: int, factor: float,
      low: int, high: int, dtype: str) -> Value:  # fmt: skip
    left, right = (ops.reshape(v, shape=v.shape[:3]) for v in (b, a))
    left = ops.transpose(left, perm=(0, 2, 1)) if turned else left
    if dtype == "i32":
        y = ops.matmul_integer(
            left, right, *(_number(z, v.dtype) for z, v in ((b_zero, b), (a_zero, a)))
        )
        return ops.reshape(y, shape=(*y.shape, 1))  # type: ignore[no-any-return]
    given = (left, _factor(factor), _number(b_zero, b.dtype), right, _factor(1.0),
             _number(a_zero, a.dtype))  # fmt: skip
    end = () if dtype == "f32" else (_factor(1.0), _number(y_zero, dtype))
    y = ops.qlinear_matmul(*given, *end)
    y = y if dtype == "f32" else _bounded(y, low, high)
    made: Value = ops.reshape(y, shape=(*y.shape, 1))
    return made


@pool.lowers
def _(x: Value, *, kind: str, count_include_pad: bool, x_zero: int, y_zero: int, x_scale: float,
      y_scale: float, low: int, high: int, dtype: str, **window: Any) -> Value:  # fmt: skip
    if kind == "max":
        return _bounded(ops.max_pool(x, **window), low, high)
    of_x, of_y = (_factor(x_scale), _number(x_zero, x.dtype)), (
        _factor(y_scale), _number(y_zero, dtype))  # fmt: skip
    y = ops.qlinear_avg_pool(x, *of_x, *of_y, **window, count_include_pad=count_include_pad)
    return _bounded(y, low, high)


@eltwise.lowers
def _(a: Value, b: Value, table: Value | None, *, kind: str, a_zero: int, b_zero: int, y_zero: int,
      a_factor: float, b_factor: float, low: int, high: int, base: int, dtype: str
      ) -> Value | None:  # fmt: skip
    stored = _between((y_zero, low, high), dtype, table, BITS8)
    if stored not in BITS8:
        return None
    made = ops.qlinear_add if kind == "add" else ops.qlinear_mul
    y = made(a, _factor(a_factor), _number(a_zero, a.dtype),
             b, _factor(b_factor if kind == "add" else 1.0), _number(b_zero, b.dtype),
             _factor(1.0), _number(y_zero, stored))  # fmt: skip
    return _bounded(y, low, high, table, base)


@lut.lowers
def _(x: Value, table: Value, *, base: int) -> Value:
    return _looked_up(x, table, base, *dtypes.limits(x.dtype))


@resize.lowers
def _(x: Value, *, factor: tuple[int, int]) -> Value:
    shape = tuple(n * f for n, f in zip(x.shape[2:], factor, strict=True))
    made: Value = ops.resize(
        x, axes=(2, 3), shape=shape, scales=tuple(map(float, factor)), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    return made


@concat.lowers
def _(*xs: Value) -> Value:
    made: Value = ops.concat(*xs, axis=1)
    return made


@slice_.lowers
def _(x: Value, *, first: int, count: int) -> Value:
    return ops.part(x, first, first + count, axis=1)
