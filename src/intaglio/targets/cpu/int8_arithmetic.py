"""The arithmetic that all int8 convolutions of the CPU share: sums, requantisation and checks.

`sum = Σ x · w + bias` runs over whole windows; padding is read as the image's zero point. The zero
point's share is then one number per channel and is part of the bias. An i8 image is read as u8
(x + 128), which is part of the bias too. The result is
`y = clamp(rint(f32(sum) · scale) + y_zero, lo, hi)`.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np

from intaglio import dtypes, native, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.quantized import MAX_ENTRIES
from intaglio.targets.cpu.piecewise_tables import PIECES, table_of


def shifted_zero(x_zero: int, dtype: str) -> int:
    """The image's zero point as the sums see it."""
    return x_zero + 128 if dtype == "i8" else x_zero


@functools.cache
def _library() -> ctypes.CDLL:
    lib = native.compiler_library()
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    lib.itg_signed_sums.argtypes = [pointer, u64, u64, pointer, pointer]
    lib.itg_signed_sums.restype = None
    return lib


def signed_sums(w: Array) -> tuple[Array, Array]:
    """The sums of the positive and of the negative weights of each output channel."""
    rows = np.ascontiguousarray(w.reshape(w.shape[0], math.prod(w.shape[1:])), np.int8)
    above, below = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    _library().itg_signed_sums(rows.ctypes.data, *rows.shape, above.ctypes.data, below.ctypes.data)
    return above, below


def zero_share(w: Array, x_zero: int, dtype: str) -> Array:
    """The contribution of the image's zero point to the sum of each output channel."""
    sums = w.reshape(w.shape[0], -1).sum(axis=1, dtype=np.int64)
    return np.asarray(sums * shifted_zero(x_zero, dtype))


def wrapped(a: Array) -> Array:
    """Sums modulo 2^32, as i32."""
    return a.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)


def check_parameters(
    x: Value,
    bias: Value,
    scale: Value,
    channels: int,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
) -> None:
    if x.dtype not in ("u8", "i8") or dtype not in ("u8", "i8"):
        raise BadInput(f"8-bit images and results are needed, not {x.type} and {dtype}")
    if bias.type != Type("i32", (channels,)) or scale.type != Type("f32", (channels,)):
        raise BadInput(f"one i32 and one f32 per channel are needed, not {bias.type}, {scale.type}")
    first, last = dtypes.limits(dtype)
    if not (first <= lo <= hi <= last and first <= y_zero <= last):
        raise BadInput(f"zero point {y_zero} or bounds {lo}, {hi} exceed {dtype}")
    first, last = dtypes.limits(x.dtype)
    if not first <= x_zero <= last:
        raise BadInput(f"zero point {x_zero} exceeds {x.dtype}")


def check_operands(
    x: Value,
    bias: Value,
    scale: Value | None,
    table: Value | None,
    channels: int,
    x_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
) -> None:
    """Raise BadInput if image, bias, scale or bounds do not fit each other."""
    like = scale if scale is not None else Value(Type("f32", (channels,)))
    if dtype in ("u8", "i8") and table is None:
        check_parameters(x, bias, like, channels, x_zero, y_zero, lo, hi, dtype)
    else:
        check_parameters(x, bias, like, channels, x_zero, 0, 0, 0, "u8")


def _image(x: Value) -> Value:
    if not 3 <= x.type.rank <= 5:
        raise BadInput(
            f"a channels-last image with one to three spatial axes is needed, not {x.type}"
        )
    return Value(Type("i8", (x.shape[0], x.shape[-1], *x.shape[1:-1])))


def image_result(x: Value, w: tuple[int, ...], dtype: str, **window: Any) -> Type:
    """The result type of a convolution with weights of shape `w`."""
    result = ops.conv_integer.infer(_image(x), Value(Type("i8", w)), None, None, **window)
    assert isinstance(result, Type)
    return Type(dtype, (result.shape[0], *result.shape[2:], result.shape[1]))


def _check_table(made: Type, table: Value, y_zero: int, lo: int, hi: int) -> None:
    shapes = [(hi - lo + 1,), *((3, n) for n in PIECES)]
    if made.dtype not in ("u8", "i8") or table.type not in [Type(made.dtype, s) for s in shapes]:
        raise BadInput(f"a table of {hi - lo + 1} {made.dtype} is needed, not {table.type}")
    if not (-32768 <= lo <= hi <= 65535 and hi - lo < MAX_ENTRIES and -32768 <= y_zero <= 65535):
        raise BadInput(
            f"zero point {y_zero} or bounds {lo}, {hi} exceed 16 bits, or the table is too large"
        )


def check_result(
    made: Type,
    scale: Value | None,
    residual: Value | None,
    table: Value | None,
    r_zero: int,
    y_zero: int,
    lo: int,
    hi: int,
) -> None:
    """Raise BadInput if scale, residual or table do not fit a result of this type."""
    dtype = made.dtype
    if table is not None:
        _check_table(made, table, y_zero, lo, hi)
    elif dtype == "i32" and (scale is not None or residual is not None):
        raise BadInput("i32 results have no scale and no residual")
    if dtype != "i32" and scale is None:
        raise BadInput(f"results of {dtype} need a scale")
    if residual is None:
        return
    like = ("f32",) if dtype == "f32" else ("u8", "i8")
    if residual.shape != made.shape or residual.dtype not in like:
        raise BadInput(f"the residual {residual.type} does not fit the result {made}")
    first, last = dtypes.limits(residual.dtype) if dtype != "f32" else (r_zero, r_zero)
    if not first <= r_zero <= last:
        raise BadInput(f"zero point {r_zero} exceeds {residual.dtype}")


def accumulate(
    x: Array,
    w: Array,
    bias: Array,
    window: dict[str, Any],
    x_zero: int,
    w_zero: Array | None = None,
) -> Array:
    """The kernels' sums, channels last; `w` is [m, c, window..], `w_zero` its negated zero
    points.
    """
    zero = None if w_zero is None else -w_zero
    sums = ops.conv_integer.body(np.moveaxis(x, -1, 1), w, np.array(x_zero, x.dtype), **window)
    share = zero_share(w, x_zero, dtypes.name_of(x.dtype)) + bias
    wide = np.moveaxis(sums, 1, -1).astype(np.int64) + share
    if zero is not None:  # the sum of all bytes of a window, with padding
        ones = np.ones((w.shape[0], *w.shape[1:]), np.int8)
        seen = ops.conv_integer.body(
            np.moveaxis(x, -1, 1), ones, np.array(x_zero, x.dtype), **window
        )
        seen = np.moveaxis(seen, 1, -1).astype(np.int64)
        seen = seen + zero_share(ones, x_zero, dtypes.name_of(x.dtype))
        wide = wide - seen * zero
    return wrapped(wide)


def round_and_clamp(real: Array, y_zero: int, lo: int, hi: int, dtype: str) -> Array:
    y = np.clip(real, lo - y_zero, hi - y_zero)
    return np.ascontiguousarray((np.rint(y) + y_zero).astype(dtypes.numpy_of(dtype)))


def requantize(
    sums: Array,
    scale: Array,
    residual: Array | None,
    table: Array | None,
    y_zero: int,
    lo: int,
    hi: int,
    dtype: str,
    r_zero: int,
    r_scale: float,
) -> Array:
    """The result for given sums: scaled, with residual and table, rounded and clamped."""
    real = sums.astype(np.float32) * scale
    if dtype == "f32":
        return np.ascontiguousarray(real if residual is None else real + residual)
    if residual is not None:
        shifted = residual.astype(np.int32) - r_zero
        real = real + shifted.astype(np.float32) * np.float32(r_scale)
    if table is None:
        return round_and_clamp(real, y_zero, lo, hi, dtype)
    entries = table if table.ndim == 1 else table_of(table, hi - lo + 1)
    return np.asarray(entries[round_and_clamp(real, y_zero, lo, hi, "i32") - lo])
