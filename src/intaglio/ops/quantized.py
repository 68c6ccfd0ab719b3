"""Integer arithmetic on quantised tensors: real = scale * (stored - zero), one rounding each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Type, Value
from intaglio.ops.pool import avg_pool
from intaglio.ops.registry import broadcast_shapes, normalize_axis, op
from intaglio.ops.windows import Ints

BITS8 = ("i8", "u8")
INTEGERS = (*BITS8, "i16")  # element types of quantised tensors
MAX_ENTRIES = 4096  # of a lookup table


def _entries(x: Value, table: Value) -> Type:
    if x.dtype not in BITS8:
        raise BadInput(f"lookup by {x.dtype}; i8 or u8 is needed")
    if table.shape != (256,):
        raise BadInput(f"the table has shape {table.shape}, 256 entries are needed")
    return Type(table.dtype, x.shape)


@op(_entries)
def lookup(x: Array, table: Array) -> Array:
    """table[x] with the bytes of x as unsigned indices: any function of one quantised tensor."""
    return table[x.view(np.uint8)]


def _window(x: Value, table: Value, *, base: int) -> Type:
    if x.dtype != "i16":
        raise BadInput(f"lookup_wide by {x.dtype}; i16 is needed; use lookup for bytes")
    if table.type.rank != 1 or not 1 <= table.type.size <= MAX_ENTRIES:
        raise BadInput(
            f"the table is {table.type}; a vector of 1 to {MAX_ENTRIES} entries is needed"
        )
    low, high = dtypes.limits("i16")
    if not low <= base <= high:
        raise BadInput(f"base {base} is outside of the range of i16")
    return Type(table.dtype, x.shape)


@op(_window)
def lookup_wide(x: Array, table: Array, *, base: int) -> Array:
    """table[x - base], with x - base clamped to the entries of the table."""
    return table[np.clip(x.astype(np.int32) - base, 0, len(table) - 1)]


# ---- sums, products and means of quantised tensors -----------------------------------------------
def check_quant(
    q: Value | str, scale: Value, zero: Value, what: str, kinds: tuple[str, ...] = BITS8
) -> None:
    """BadInput unless a quantised tensor has one scale and one zero of its element type."""
    dtype = q if isinstance(q, str) else q.dtype
    if dtype not in kinds or zero.dtype != dtype:
        raise BadInput(
            f"{what} is {dtype} with a zero of {zero.dtype}; {', '.join(kinds[:-1])} "
            f"and {kinds[-1]} are needed"
        )
    if scale.type.size != 1 or zero.type.size != 1 or scale.dtype != "f32":
        raise BadInput(f"{what} has scale {scale.type} and zero {zero.type}; one of each is needed")


def _one_of(scale: Array) -> Any:
    return np.float32(scale.reshape(())[()])


def centred(x: Array, zero: Array) -> Array:
    """x - zero in i32."""
    return x.astype(np.int32) - zero.astype(np.int32).reshape(())


def rounded(real: Array, zero: Array) -> Array:
    """The rounding rule of all 8-bit arithmetic: clamp(rint(real) + zero)."""
    low, high = dtypes.limits(dtypes.name_of(zero.dtype))
    return np.clip(np.rint(real) + np.float32(zero.reshape(())), low, high).astype(zero.dtype)


def _pair(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Type:
    check_quant(a, a_scale, a_zero, "a", INTEGERS)
    check_quant(b, b_scale, b_zero, "b", INTEGERS)
    check_quant(y_zero.dtype, y_scale, y_zero, "the result", INTEGERS)
    return Type(y_zero.dtype, broadcast_shapes(a, b))


@op(_pair)
def qlinear_add(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
) -> Array:
    """f32(a - a_zero) * f32(a_scale / y_scale) + f32(b - b_zero) * f32(b_scale / y_scale)"""
    left, right = (_one_of(s) / _one_of(y_scale) for s in (a_scale, b_scale))
    x, y = (centred(*v).astype(np.float32) for v in ((a, a_zero), (b, b_zero)))
    return rounded(x * left + y * right, y_zero)


@op(_pair)
def qlinear_mul(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
) -> Array:
    """f32((a - a_zero) * (b - b_zero)) * f32(a_scale * b_scale / y_scale)"""
    product = (centred(a, a_zero).astype(np.int64) * centred(b, b_zero)).astype(np.float32)
    return rounded(product * (_one_of(a_scale) * _one_of(b_scale) / _one_of(y_scale)), y_zero)


def _factor(x_scale: Array, y_scale: Array, count: Any) -> Any:
    """The f32 factor that turns a sum of `count` numbers into their requantised mean."""
    return _one_of(x_scale) / (_one_of(y_scale) * np.asarray(count).astype(np.float32))


def _qlinear_mean(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y_scale: Value,
    y_zero: Value,
    *,
    axes: Ints,
    keepdims: bool,
) -> Type:
    check_quant(x, x_scale, x_zero, "x", INTEGERS)
    check_quant(y_zero.dtype, y_scale, y_zero, "the result", INTEGERS)
    if not axes or tuple(axes) != tuple(range(axes[0], axes[0] + len(axes))) or axes[0] < 0:
        raise BadInput(f"axes {axes} are not consecutive")
    if axes[-1] >= x.type.rank or not all(x.shape[a] for a in axes):
        raise BadInput(f"axes {axes} of {x.type} have no elements to reduce")
    kept = [1 if i in axes else d for i, d in enumerate(x.shape) if keepdims or i not in axes]
    return Type(y_zero.dtype, tuple(kept))


@op(_qlinear_mean)
def qlinear_mean(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y_scale: Array,
    y_zero: Array,
    *,
    axes: Ints,
    keepdims: bool = True,
) -> Array:
    """The exact sum of x - x_zero, times f32(x_scale / (y_scale * count)), rounded once."""
    total = centred(x, x_zero).sum(tuple(axes), np.int64, keepdims=bool(keepdims))
    factor = _factor(x_scale, y_scale, math.prod(x.shape[a] for a in axes))
    return rounded(total.astype(np.float32) * factor, y_zero)


def _qlinear_avg_pool(
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y_scale: Value,
    y_zero: Value,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool,
) -> Type:
    check_quant(x, x_scale, x_zero, "x", INTEGERS)
    check_quant(y_zero.dtype, y_scale, y_zero, "the result", INTEGERS)
    result = avg_pool.infer(
        x,
        kernel=kernel,
        stride=stride,
        pad=pad,
        dilation=dilation,
        count_include_pad=count_include_pad,
    )
    assert isinstance(result, Type)
    return result.but(dtype=y_zero.dtype)


@op(_qlinear_avg_pool)
def qlinear_avg_pool(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y_scale: Array,
    y_zero: Array,
    *,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool = False,
) -> Array:
    """The exact sum of each window, times f32(x_scale / (y_scale * count)), rounded once."""
    window = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation}
    size = math.prod(kernel)
    wide = centred(x, x_zero).astype(np.float64)  # sums of windows are exact in f64
    total = np.rint(avg_pool.body(wide, **window, count_include_pad=True) * size)
    ones = np.ones((1, 1, *x.shape[2:]))
    count = np.rint(avg_pool.body(ones, **window, count_include_pad=True) * size)
    count = np.full_like(count, size) if count_include_pad else np.maximum(count, 1)
    return rounded(total.astype(np.float32) * _factor(x_scale, y_scale, count), y_zero)


RESIZE_UNIT = 2048  # interpolation weights are integers in units of 1/2048


def _qlinear_resize(
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
) -> Type:
    check_quant(x, x_scale, x_zero, "x")
    check_quant(y_zero.dtype, y_scale, y_zero, "the result")
    axis, shape = normalize_axis(axis, x.type.rank), list(x.shape)
    if axis + 1 >= x.type.rank:
        raise BadInput(f"{x.type} has no axis after {axis}")
    for i, (index, weight) in enumerate(((row, row_weight), (column, column_weight))):
        want = Type("i32", (index.shape[0] if index.type.rank else 0, 2))
        if index.type != want or weight.type != want:
            raise BadInput(f"tables are {index.type} and {weight.type}; both must be outputs × 2")
        shape[axis + i] = index.shape[0]
    return Type(y_zero.dtype, tuple(shape))


@op(_qlinear_resize)
def qlinear_resize(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y_scale: Array,
    y_zero: Array,
    row: Array,
    row_weight: Array,
    column: Array,
    column_weight: Array,
    *,
    axis: int,
) -> Array:
    """Bilinear resize of `axis` and the next axis, with integer weights that add up to 2048 each.

    The exact sum is multiplied by f32(x_scale / (y_scale * 2048 * 2048)) and rounded once.
    """
    if any(
        i.size and not 0 <= i.min() <= i.max() < x.shape[axis + k]
        for k, i in enumerate((row, column))
    ):
        raise RunError("qlinear_resize: an index is outside of the image")
    wide = centred(x, x_zero).astype(np.int64)
    for at, index, weight in ((axis, row, row_weight), (axis + 1, column, column_weight)):
        along_axis = (-1, *[1] * (x.ndim - 1 - at))
        first, second = (
            wide.take(index[:, k], at) * weight[:, k].astype(np.int64).reshape(along_axis)
            for k in range(2)
        )
        wide = first + second
    factor = _factor(x_scale, y_scale, RESIZE_UNIT**2)
    return rounded(wide.astype(np.int32).astype(np.float32) * factor, y_zero)


def power_table(scale: float) -> Array:
    """exp(-scale * d) for d = 0 .. 255, in units of 2^-22."""
    return np.rint(np.exp(-float(scale) * np.arange(256)) * 2**22).astype(np.int32)


def _qlinear_softmax(x: Value, table: Value, y_scale: Value, y_zero: Value, *, axis: int) -> Type:
    check_quant(y_zero.dtype, y_scale, y_zero, "the result")
    if x.dtype not in BITS8 or table.type != Type("i32", (256,)):
        raise BadInput(
            f"qlinear_softmax of {x.type} with table {table.type}; i8 or u8 and i32[256] are needed"
        )
    normalize_axis(axis, x.type.rank)
    return Type(y_zero.dtype, x.shape)


@op(_qlinear_softmax)
def qlinear_softmax(
    x: Array, table: Array, y_scale: Array, y_zero: Array, *, axis: int = -1
) -> Array:
    """table[max - x] / (f32(exact sum of these) * y_scale); `power_table` makes the table."""
    wide = x.astype(np.int32)
    power = table[wide.max(axis, keepdims=True, initial=-128) - wide] if x.size else wide
    total = power.sum(axis, np.int64, keepdims=True).astype(np.float32)
    return rounded(power.astype(np.float32) / (total * _one_of(y_scale)), y_zero)
