"""What NPU units compute, on images N x C x H x W; every number beside is an attribute.

Integers are rounded once: `clamp(rint(t) + y_zero, low, high)`, and where there is a `table` that
number v becomes `table[clamp(v - base, 0, entries - 1)]`. Factors are f32, products and sums of
them too. Each op says the same as the neutral op that it comes from, to the bit.

Images of f16 have no zeros. Their sums are f32 in one order, and a result of floats is
`clamp(t, least, most)`, rounded to f16; a `table` of these is a curve (f16_arithmetic.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Graph, Node, Type, Value
from intaglio.npu.ops import f16_arithmetic
from intaglio.ops.control import body_macs, check_inputs
from intaglio.ops.quantized import BITS8, ENTRIES
from intaglio.ops.registry import evaluate, op
from intaglio.ops.windows import Ints, check_windows, window_counts

FEATURES = ("i8", "u8", "i16")  # element types of images of integers
IMAGES = (*FEATURES, *f16_arithmetic.TYPES)
WEIGHTS = {"i8": ("i8",), "u8": ("i8",), "i16": ("i8", "i16"), "f16": ("f16",)}  # by image
DEEPEST = 1 << 21  # products of 16 bits whose sum is exact wherever it is computed
SUMS = "i32"  # results of products besides: the sums themselves
POOLS = ("max", "avg")
ELTWISE = ("add", "mul")


# ---- checks --------------------------------------------------------------------------------------
def _image(x: Value, kinds: tuple[str, ...] = BITS8) -> None:
    if x.type.rank != 4 or x.dtype not in kinds or x.type.dynamic:
        raise BadInput(
            f"an image of {' or '.join(kinds)} and fixed extents is needed, not {x.type}"
        )


def _fits(zero: int, dtype: str, what: str) -> None:
    if dtype in f16_arithmetic.TYPES and zero == 0:
        return
    low, high = dtypes.limits(dtype)
    if not low <= zero <= high:
        raise BadInput(f"{what} is {zero}, which is no number of {dtype}")


def _both(a: Value, a_zero: int, b: Value, b_zero: int) -> None:
    """Two images of integers, or two of one type of floats."""
    for v, zero, what in ((a, a_zero, "a_zero"), (b, b_zero, "b_zero")):
        _image(v, IMAGES)
        _fits(zero, v.dtype, what)
    if a.dtype != b.dtype and {a.dtype, b.dtype} & set(f16_arithmetic.TYPES):
        raise BadInput(f"{a.type} and {b.type} are of different kinds")


def _ending(
    dtype: str,
    y_zero: int,
    low: int,
    high: int,
    table: Value | None,
    base: int,
    least: float,
    most: float,
    of: str,
) -> None:
    """Refuse zeros, bounds and tables that do not make `dtype` of images of `of`."""
    if dtype in (*f16_arithmetic.TYPES, "f32"):
        if not least <= most:
            raise BadInput(f"bounds {least} and {most} are not in order")
        if table is not None and (of not in f16_arithmetic.TYPES or dtype != of):
            raise BadInput(f"a result of {dtype} of {of} has no table")
        if table is not None and table.type != f16_arithmetic.CURVE:
            raise BadInput(f"the table is {table.type}; {f16_arithmetic.CURVE} is needed")
        return
    if dtype not in FEATURES:
        raise BadInput(f"a result of {dtype}; {', '.join(IMAGES)} are possible")
    if table is not None and of in f16_arithmetic.TYPES:
        raise BadInput(f"a table makes {dtype} of {of}; it makes {of}")
    between = dtype if table is None else "i16"
    _fits(y_zero, between, "y_zero")
    first, last = dtypes.limits(between)
    if not first <= low <= high <= last:
        raise BadInput(f"bounds {low} and {high} are not in order or not within {first}, {last}")
    if table is None:
        return
    if table.type.rank != 1 or not 1 <= table.type.size <= ENTRIES or table.dtype != dtype:
        raise BadInput(f"the table is {table.type}; a row of up to {ENTRIES} {dtype} is needed")
    _fits(base, "i16", "the number of the table's first entry")


def _rounded(
    real: Array,
    y_zero: int,
    low: int,
    high: int,
    dtype: str,
    table: Array | None,
    base: int,
    least: float,
    most: float,
) -> Array:
    """What `_ending` lets through."""
    if dtype in (*f16_arithmetic.TYPES, "f32"):
        return f16_arithmetic.ended(real, dtype, least, most, table)
    real = np.where(np.isnan(real), np.float32(low) - np.float32(y_zero), real)
    whole = np.clip(np.rint(real) + np.float32(y_zero), low, high)
    if table is None:
        return whole.astype(dtypes.numpy_of(dtype))
    return table[np.clip(whole.astype(np.int32) - base, 0, len(table) - 1)]


def _apart(x: Array, zero: int) -> Array:
    """Integers less their zero; real numbers as f32."""
    return x.astype(np.float32) if x.dtype == np.float16 else x.astype(np.int32) - zero


# ---- products ------------------------------------------------------------------------------------
def _product_type(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    channels: int,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    y_zero: int,
    r_zero: int,
    low: int,
    high: int,
    base: int,
    least: float,
    most: float,
    dtype: str,
) -> Type:
    _image(x, IMAGES)
    kinds = WEIGHTS[x.dtype]
    if w.type.rank != 4 or w.dtype not in kinds or w.shape[1] != channels:
        raise BadInput(
            f"weights {w.type} do not fit {x.type}; {channels} deep {' or '.join(kinds)} are needed"
        )
    if x.dtype == "i16" and math.prod(w.shape[1:]) > DEEPEST:
        raise BadInput(
            f"{math.prod(w.shape[1:])} products of 16 bits are summed up; the sums of "
            f"{DEEPEST} are exact"
        )
    _fits(x_zero, x.dtype, "x_zero")
    many, added = w.shape[:1], "f32" if x.dtype in f16_arithmetic.TYPES else "i32"
    if scale.type != Type("f32", many) or bias.type != Type(added, many):
        raise BadInput(
            f"one f32 and one {added} per channel are needed, not {scale.type}, {bias.type}"
        )
    check_windows(x, w.shape[2:], stride, pad, dilation)
    counts = window_counts(x.shape[2:], w.shape[2:], stride, pad, dilation)
    made = Type(dtype, (x.shape[0], *many, *counts))
    if residual is not None:
        if residual.shape != made.shape or residual.dtype not in IMAGES:
            raise BadInput(f"the residual {residual.type} does not fit the result {made}")
        _fits(r_zero, residual.dtype, "r_zero")
    if dtype == SUMS and (table is not None or residual is not None or x.dtype not in BITS8):
        raise BadInput(f"sums of {x.dtype} with a table or a residual; those of bytes have neither")
    if dtype != SUMS:
        _ending(dtype, y_zero, low, high, table, base, least, most, x.dtype)
    return made


def _conv_type(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    *,
    r_factor: float,
    **attrs: Any,
) -> Type:
    channels = x.shape[1] if x.type.rank == 4 else 0
    return _product_type(x, w, scale, bias, residual, table, channels, **attrs)


def _depthwise_type(
    x: Value,
    w: Value,
    scale: Value,
    bias: Value,
    residual: Value | None,
    table: Value | None,
    *,
    r_factor: float,
    **attrs: Any,
) -> Type:
    if x.type.rank == 4 and w.shape[:1] != x.shape[1:2]:
        raise BadInput(f"weights {w.type} have not one window for each channel of {x.type}")
    if attrs["dtype"] == "i32":
        raise BadInput("depthwise products have no results of i32")
    return _product_type(x, w, scale, bias, residual, table, 1, **attrs)


def _product_macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(node.inputs[1].shape[1:])  # type: ignore[union-attr]


def _product(
    x: Array,
    w: Array,
    scale: Array,
    bias: Array,
    residual: Array | None,
    table: Array | None,
    deep: bool,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
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
) -> Array:
    window: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation}
    bias, scale = bias.reshape(-1, 1, 1), scale.reshape(-1, 1, 1)
    if x.dtype == np.float16:
        real = f16_arithmetic.sums(x, w, deep, **window) * scale + bias
    else:
        zero = np.array(x_zero, x.dtype)
        sums = ops.conv_integer.body(x, w, zero, **window, groups=1 if deep else x.shape[1])
        if dtype == SUMS:
            return np.asarray(sums + bias)
        real = (sums + bias).astype(np.float32) * scale
    if residual is not None:
        real = real + _apart(residual, r_zero).astype(np.float32) * np.float32(r_factor)
    return _rounded(real, y_zero, low, high, dtype, table, base, least, most)


@op(_conv_type, name="npu.conv", macs=_product_macs)
def conv(
    x: Array,
    w: Array,
    scale: Array,
    bias: Array,
    residual: Array | None = None,
    table: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    y_zero: int = 0,
    low: int = 0,
    high: int = 0,
    r_zero: int = 0,
    r_factor: float = 0.0,
    base: int = 0,
    least: float = -math.inf,
    most: float = math.inf,
    dtype: str,
) -> Array:
    """t = f32(sum of (x - x_zero) * w + bias) * scale + f32(residual - r_zero) * r_factor

    `w` is [OC, IC, KH, KW] of i8, with images of i16 of i8 or i16; scale and bias have one number
    per output channel, padding counts as x_zero. Sums have 32 bits, those of i16 have 64. With
    dtype "f32" the result is t, not rounded, with "i32" the sum itself.

    Images of f16 have weights of f16, and t = f32(sum of x * w) * scale + bias + the same.
    """
    return _product(
        x,
        w,
        scale,
        bias,
        residual,
        table,
        True,
        stride=stride,
        pad=pad,
        dilation=dilation,
        x_zero=x_zero,
        y_zero=y_zero,
        low=low,
        high=high,
        r_zero=r_zero,
        r_factor=r_factor,
        base=base,
        least=least,
        most=most,
        dtype=dtype,
    )


@op(_depthwise_type, name="npu.depthwise", macs=_product_macs)
def depthwise(
    x: Array,
    w: Array,
    scale: Array,
    bias: Array,
    residual: Array | None = None,
    table: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    x_zero: int,
    y_zero: int = 0,
    low: int = 0,
    high: int = 0,
    r_zero: int = 0,
    r_factor: float = 0.0,
    base: int = 0,
    least: float = -math.inf,
    most: float = math.inf,
    dtype: str,
) -> Array:
    """npu.conv in which each channel has a window of its own: `w` is [C, 1, KH, KW]."""
    return _product(
        x,
        w,
        scale,
        bias,
        residual,
        table,
        False,
        stride=stride,
        pad=pad,
        dilation=dilation,
        x_zero=x_zero,
        y_zero=y_zero,
        low=low,
        high=high,
        r_zero=r_zero,
        r_factor=r_factor,
        base=base,
        least=least,
        most=most,
        dtype=dtype,
    )


def _matmul_type(
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
) -> Type:
    _both(a, a_zero, b, b_zero)
    if "i16" in (a.dtype, b.dtype) and a.shape[1] > DEEPEST:
        raise BadInput(f"{a.shape[1]} products of 16 bits are summed up; {DEEPEST} can be")
    deep, many = (1, 2) if turned else (2, 1)
    if (a.shape[0], a.shape[1], 1, 1) != (b.shape[0], b.shape[deep], a.shape[3], b.shape[3]):
        raise BadInput(f"{a.type} and {b.type} are no product over a's channels")
    if dtype == SUMS and not {a.dtype, b.dtype} <= set(BITS8):
        raise BadInput(f"sums of {a.dtype} and {b.dtype}; those of bytes are i32")
    if dtype != SUMS:
        _ending(dtype, y_zero, low, high, None, 0, least, most, a.dtype)
    return Type(dtype, (a.shape[0], b.shape[many], a.shape[2], 1))


def _matmul_macs(node: Node) -> int:
    return node.outputs[0].type.size * node.inputs[0].shape[1]  # type: ignore[union-attr]


@op(_matmul_type, name="npu.matmul", macs=_matmul_macs)
def matmul(
    a: Array,
    b: Array,
    *,
    turned: bool = False,
    a_zero: int,
    b_zero: int,
    y_zero: int = 0,
    factor: float,
    low: int = 0,
    high: int = 0,
    least: float = -math.inf,
    most: float = math.inf,
    dtype: str,
) -> Array:
    """t = f32(sum over k of (a[k, m] - a_zero) * (b[c, k] - b_zero)) * factor, as [N, C, M, 1]

    `a` is [N, K, M, 1], `b` [N, C, K, 1] or, turned, [N, K, C, 1]. Sums are those of npu.conv; with
    dtype "i32" they are the result.
    """
    left, right = _apart(b[..., 0], b_zero), _apart(a[..., 0], a_zero)
    left = left.transpose(0, 2, 1) if turned else left
    if a.dtype == np.float16:
        total = f16_arithmetic.matmul(left, right)
    else:
        exact = np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64)
        wide = np.int16 in (a.dtype, b.dtype)
        exact = exact if wide else exact.astype(np.int32)
        if dtype == SUMS:
            return np.asarray(exact[..., None])
        total = exact.astype(np.float32)
    real = (total * np.float32(factor))[..., None]
    return _rounded(real, y_zero, low, high, dtype, None, 0, least, most)


# ---- pooling -------------------------------------------------------------------------------------
def _pool_type(
    x: Value,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
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
) -> Type:
    _image(x, IMAGES)
    if kind not in POOLS:
        raise BadInput(f"pooling is '{kind}'; it is one of {', '.join(POOLS)}")
    if kind == "max" and dtype != x.dtype:
        raise BadInput(f"the largest of {x.dtype} is no {dtype}")
    _fits(x_zero, x.dtype, "x_zero")
    _ending(dtype, y_zero, low, high, None, 0, least, most, x.dtype)
    check_windows(x, kernel, stride, pad, dilation)
    counts = window_counts(x.shape[2:], kernel, stride, pad, dilation)
    return Type(dtype, (*x.shape[:2], *counts))


@op(_pool_type, name="npu.pool")
def pool(
    x: Array,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool = False,
    x_zero: int = 0,
    y_zero: int = 0,
    x_scale: float = 1.0,
    y_scale: float = 1.0,
    low: int = 0,
    high: int = 0,
    least: float = -math.inf,
    most: float = math.inf,
    dtype: str,
) -> Array:
    """The largest number of each window, or t = f32(sum of x - x_zero) * (x_scale / (y_scale * n))

    n is how many numbers there are, with `count_include_pad` the size of the window. Padding is
    never the largest and counts as x_zero.
    """
    window: dict[str, Any] = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation}
    if kind == "max":
        if dtype in f16_arithmetic.TYPES:
            return f16_arithmetic.ended(
                f16_arithmetic.window_max(x, **window), dtype, least, most, None
            )
        made = ops.max_pool.body(x, **window)
        return np.asarray(np.clip(made, low, high))
    total, count = f16_arithmetic.window_sums(_apart(x, x_zero), **window)
    many = np.float32(math.prod(kernel)) if count_include_pad else np.maximum(count, 1)
    factor = np.float32(x_scale) / (np.float32(y_scale) * many.astype(np.float32))
    real = total.astype(np.float32) * factor
    return _rounded(real, y_zero, low, high, dtype, None, 0, least, most)


# ---- two images ----------------------------------------------------------------------------------
def _eltwise_type(
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
) -> Type:
    if kind not in ELTWISE:
        raise BadInput(f"images are joined by '{kind}'; it is one of {', '.join(ELTWISE)}")
    _both(a, a_zero, b, b_zero)
    if b.shape[0] != a.shape[0] or any(
        n not in (1, m) for n, m in zip(b.shape[1:], a.shape[1:], strict=True)
    ):
        raise BadInput(f"{b.type} does not spread to {a.type}")
    _ending(dtype, y_zero, low, high, table, base, least, most, a.dtype)
    return Type(dtype, a.shape)


@op(_eltwise_type, name="npu.eltwise")
def eltwise(
    a: Array,
    b: Array,
    table: Array | None = None,
    *,
    kind: str,
    a_zero: int,
    b_zero: int,
    y_zero: int = 0,
    a_factor: float,
    b_factor: float = 0.0,
    low: int = 0,
    high: int = 0,
    base: int = 0,
    least: float = -math.inf,
    most: float = math.inf,
    dtype: str,
) -> Array:
    """ "add": t = f32(a - a_zero) * a_factor + f32(b - b_zero) * b_factor

    "mul": t = f32((a - a_zero) * (b - b_zero)) * a_factor. `b` may have extent 1 in C, H and W.
    """
    left, right = _apart(a, a_zero), _apart(b, b_zero)
    if kind == "mul":
        left = left if a.dtype == np.float16 else left.astype(np.int64)
        real = (left * right).astype(np.float32) * np.float32(a_factor)
    else:
        real = left.astype(np.float32) * np.float32(a_factor)
        real = real + right.astype(np.float32) * np.float32(b_factor)
    return _rounded(real, y_zero, low, high, dtype, table, base, least, most)


# ---- one image -----------------------------------------------------------------------------------
def _lut_type(x: Value, table: Value, *, base: int) -> Type:
    _image(x, IMAGES)
    if x.dtype in f16_arithmetic.TYPES:
        _ending(x.dtype, 0, 0, 0, table, base, 0, 0, x.dtype)
        return x.type
    if table.dtype not in IMAGES or table.type.rank != 1 or not 1 <= table.type.size <= ENTRIES:
        raise BadInput(f"the table is {table.type}; a row of up to {ENTRIES} is needed")
    _fits(base, "i16", "the number of the table's first entry")
    return Type(table.dtype, x.shape)


@op(_lut_type, name="npu.lut")
def lut(x: Array, table: Array, *, base: int) -> Array:
    """table[x - base], with the first and the last entry for all that lies outside.

    Of f16 the table is a curve: f16_arithmetic.py.
    """
    if x.dtype == np.float16:
        return f16_arithmetic.ended(x.astype(np.float32), "f16", -math.inf, math.inf, table)
    return np.asarray(table[np.clip(_apart(x, base), 0, len(table) - 1)])


def _resize_type(x: Value, *, factor: Ints) -> Type:
    _image(x, IMAGES)
    if len(factor) != 2 or min(factor) < 1:
        raise BadInput(f"an image grows by two whole factors, not by {factor}")
    n, c, h, w = x.shape
    return Type(x.dtype, (n, c, h * factor[0], w * factor[1]))


@op(_resize_type, name="npu.resize")
def resize(x: Array, *, factor: Ints) -> Array:
    """Every pixel becomes factor[0] rows and factor[1] columns of itself."""
    return np.asarray(x.repeat(factor[0], 2).repeat(factor[1], 3))


def _concat_type(*xs: Value) -> Type:
    for x in xs:
        _image(x, IMAGES)
        if (x.dtype, x.shape[:1], x.shape[2:]) != (xs[0].dtype, xs[0].shape[:1], xs[0].shape[2:]):
            raise BadInput(f"{x.type} cannot stand beside {xs[0].type}")
    if not xs:
        raise BadInput("there is nothing to put side by side")
    n, _, h, w = xs[0].shape
    return Type(xs[0].dtype, (n, sum(x.shape[1] for x in xs), h, w))


@op(_concat_type, name="npu.concat")
def concat(*xs: Array) -> Array:
    """The channels of all, one image after the other."""
    return np.concatenate(xs, 1)


def _slice_type(x: Value, *, first: int, count: int) -> Type:
    _image(x, IMAGES)
    if not 0 <= first < first + count <= x.shape[1]:
        raise BadInput(f"channels {first} to {first + count} are not all in {x.type}")
    return Type(x.dtype, (x.shape[0], count, *x.shape[2:]))


@op(_slice_type, name="npu.slice")
def slice_(x: Array, *, first: int, count: int) -> Array:
    """Channels first to first + count - 1."""
    return np.ascontiguousarray(x[:, first : first + count])


# ---- programs ------------------------------------------------------------------------------------
def _program_type(*inputs: Value, body: Graph) -> list[Type]:
    check_inputs("the NPU program", body, [v.type for v in inputs])
    return [v.type for v in body.outputs]


def _program_macs(node: Node) -> int:
    return body_macs(node.attrs["body"])


@op(_program_type, name="npu.program", foldable=False, macs=_program_macs)
def program(*inputs: Array, body: Graph) -> tuple[Array, ...]:
    """What the NPU does in one go: the outputs of `body`, a graph of npu ops."""
    return tuple(evaluate(body, inputs))
