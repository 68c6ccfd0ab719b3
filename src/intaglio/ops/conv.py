"""Convolution, its transpose, its integer and deformable relatives. Everything is N×C×spatial."""

from __future__ import annotations

import math

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.precision import widen
from intaglio.ops.registry import op
from intaglio.ops.windows import (
    Ints,
    add_windows,
    check_windows,
    cropped,
    padded,
    window_counts,
    windows,
)


def _weights(x: Value, w: Value, groups: int, b: Value | None = None) -> None:
    if w.type.rank != x.type.rank:
        raise BadInput(f"the tensor is {x.type}, the weights {w.type}; their ranks must be equal")
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise BadInput(f"weights {w.type} in {groups} groups do not fit the channels of {x.type}")
    if b is not None and b.shape != w.shape[:1]:
        raise BadInput(
            f"the bias is {b.type}, one value per output channel ({w.shape[0]}) is needed"
        )


def _conv_shape(x: Value, w: Value, stride: Ints, pad: Ints, dilation: Ints) -> Ints:
    check_windows(x, w.shape[2:], stride, pad, dilation)
    counts = window_counts(x.shape[2:], w.shape[2:], stride, pad, dilation)
    return (x.shape[0], w.shape[0], *counts)


def _conv_macs(node: Node) -> int:
    w = node.inputs[1]
    return node.outputs[0].type.size * math.prod(w.shape[1:])  # type: ignore[union-attr]


def _same_floats(*values: Value | None) -> None:
    kinds = {v.dtype for v in values if v is not None}
    if len(kinds) > 1 or not all(map(dtypes.is_float, kinds)):
        raise BadInput(f"operands must be floats of one type, they are {', '.join(sorted(kinds))}")


def _columns(x: Array, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints, groups: int) -> Array:
    """im2col: batch, group, channel of the group × place in the kernel, window."""
    view = windows(padded(x, pad), kernel, stride, dilation)
    rows = x.shape[1] // groups * math.prod(kernel)
    return view.reshape(x.shape[0], groups, rows, math.prod(view.shape[2 + len(kernel) :]))


def _convolve(x: Array, w: Array, stride: Ints, pad: Ints, dilation: Ints, groups: int) -> Array:
    kernel = w.shape[2:]
    counts = window_counts(x.shape[2:], kernel, stride, pad, dilation)
    columns = _columns(x, kernel, stride, pad, dilation, groups)
    out = w.reshape(groups, w.shape[0] // groups, columns.shape[2]) @ columns
    return out.reshape(x.shape[0], w.shape[0], *counts)


def _add_bias(y: Array, b: Array | None) -> Array:
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))


# ---- conv ----------------------------------------------------------------------------------------
def _conv(
    x: Value, w: Value, b: Value | None, *, stride: Ints, pad: Ints, dilation: Ints, groups: int
) -> Type:
    _same_floats(x, w, b)
    _weights(x, w, groups, b)
    return Type(x.dtype, _conv_shape(x, w, stride, pad, dilation))


@op(_conv, macs=_conv_macs)
@widen
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """Weights are output channel × input channel of the group × kernel; pad is (begin…, end…)."""
    return _add_bias(_convolve(x, w, stride, pad, dilation, groups), b)


# ---- conv_transpose ------------------------------------------------------------------------------
def _transposed_extents(
    x: Ints, kernel: Ints, stride: Ints, pad: Ints, output_pad: Ints, dilation: Ints
) -> Ints:
    n = len(kernel)
    return tuple(
        stride[i] * (x[i] - 1)
        + output_pad[i]
        + (kernel[i] - 1) * dilation[i]
        + 1
        - pad[i]
        - pad[n + i]
        for i in range(n)
    )


def _conv_transpose(
    x: Value,
    w: Value,
    b: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int,
) -> Type:
    _same_floats(x, w, b)
    check_windows(x, w.shape[2:], stride, pad, dilation)
    if w.type.rank != x.type.rank or groups < 1 or w.shape[0] != x.shape[1] or w.shape[0] % groups:
        raise BadInput(f"weights {w.type} in {groups} groups do not fit the channels of {x.type}")
    channels = w.shape[1] * groups
    if b is not None and b.shape != (channels,):
        raise BadInput(f"the bias is {b.type}, one value per output channel ({channels}) is needed")
    if len(output_pad) != len(stride) or min(output_pad) < 0:
        raise BadInput(f"output_pad {output_pad} must have {len(stride)} entries, none negative")
    extents = _transposed_extents(x.shape[2:], w.shape[2:], stride, pad, output_pad, dilation)
    if min(extents) < 1:
        raise BadInput(f"pad {pad} leaves nothing of the output: {extents}")
    return Type(x.dtype, (x.shape[0], channels, *extents))


def _transpose_macs(node: Node) -> int:
    x, w = node.inputs[:2]
    return x.type.size * math.prod(w.shape[1:])  # type: ignore[union-attr]


@op(_conv_transpose, macs=_transpose_macs)
@widen
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """Weights are input channel × output channel of the group × kernel; pad cuts the result."""
    n, kernel = x.shape[0], w.shape[2:]
    none = (0,) * len(pad)
    extents = _transposed_extents(x.shape[2:], kernel, stride, pad, output_pad, dilation)
    full = _transposed_extents(x.shape[2:], kernel, stride, none, none, dilation)
    by_group = w.reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:])).transpose(0, 2, 1)
    columns = by_group @ x.reshape(n, groups, w.shape[0] // groups, math.prod(x.shape[2:]))
    columns = columns.reshape(n, groups * w.shape[1], math.prod(kernel), *x.shape[2:])
    reach = tuple(max(f, p + e) for f, p, e in zip(full, pad, extents, strict=False))
    y = add_windows(columns, reach, kernel, stride, dilation)
    return _add_bias(cropped(y, pad, extents), b)


# ---- integers ------------------------------------------------------------------------------------
def _bytes(*values: Value) -> None:
    for v in values:
        if v.dtype not in ("i8", "u8"):
            raise BadInput(f"operands must be i8 or u8, one is {v.type}")


def _quantized(*values: Value) -> None:
    for v in values:
        if v.dtype not in ("i8", "u8", "i16"):
            raise BadInput(f"operands must be i8, u8 or i16, one is {v.type}")


def _parameter(v: Value | None, of: Value, channels: int, what: str) -> None:
    if v is not None and v.type.size not in (1, channels):
        raise BadInput(f"{what} is {v.type}: one value or {channels} are needed")
    if v is not None and dtypes.is_integer(v.dtype) and v.dtype != of.dtype:
        raise BadInput(f"{what} is {v.dtype}, its tensor {of.dtype}; they must be equal")


def _exact(
    x: Array,
    w: Array,
    x_zero: Array | None,
    w_zero: Array | None,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    """The accumulators, computed in f64: sums of products are exact there and fast.

    They are i32, which wraps, or i64 where an operand has 16 bits.
    """
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    if x_zero is not None:
        wide_x -= x_zero.reshape(-1)[0]
    if w_zero is not None:
        wide_w -= w_zero.reshape(-1, *[1] * (w.ndim - 1))
    sums = np.int64 if np.int16 in (x.dtype, w.dtype) else np.int32
    return _convolve(wide_x, wide_w, stride, pad, dilation, groups).astype(sums)


def _conv_integer(
    x: Value,
    w: Value,
    x_zero: Value | None,
    w_zero: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
) -> Type:
    _bytes(x, w)
    _weights(x, w, groups)
    _parameter(x_zero, x, 1, "x_zero")
    _parameter(w_zero, w, w.shape[0], "w_zero")
    return Type("i32", _conv_shape(x, w, stride, pad, dilation))


@op(_conv_integer, macs=_conv_macs)
def conv_integer(
    x: Array,
    w: Array,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """Convolution of (x - x_zero) with (w - w_zero) in i32; padding counts as x_zero."""
    return _exact(x, w, x_zero, w_zero, stride, pad, dilation, groups)


def _qlinear_conv(
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
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
) -> Type:
    _quantized(x, w, *[] if y_zero is None else [y_zero])
    _weights(x, w, groups, b)
    if (y_scale is None) != (y_zero is None):
        raise BadInput("the result has a scale and a zero, or neither (then it is f32)")
    for v, of, channels, what in (
        (x_scale, x, 1, "x_scale"),
        (x_zero, x, 1, "x_zero"),
        (w_scale, w, w.shape[0], "w_scale"),
        (w_zero, w, w.shape[0], "w_zero"),
        (y_scale, x, 1, "y_scale"),
        (y_zero, y_zero, 1, "y_zero"),
    ):
        _parameter(v, of, channels, what)  # type: ignore[arg-type]
    if b is not None and b.dtype not in (
        ("i32", "i64") if "i16" in (x.dtype, w.dtype) else ("i32",)
    ):
        raise BadInput(f"the bias must be i32 (or i64 with 16 bits), it is {b.type}")
    dtype = "f32" if y_zero is None else y_zero.dtype
    made = Type(dtype, _conv_shape(x, w, stride, pad, dilation))
    _check_residual(made, residual, r_scale, r_zero)
    return made


def _check_residual(made: Type, r: Value | None, scale: Value | None, zero: Value | None) -> None:
    whole = r is not None and made.dtype != "f32"
    if (scale is not None) != whole or (zero is not None) != whole:
        raise BadInput("a residual of bytes has a scale and a zero, no other has")
    if r is None:
        return
    if r.shape != made.shape or r.dtype not in (("i8", "u8", "i16") if whole else ("f32",)):
        raise BadInput(f"the residual is {r.type}, it must fit the result {made}")
    _parameter(scale, r, 1, "r_scale")
    _parameter(zero, r, 1, "r_zero")


def _qlinear_macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(node.inputs[3].shape[1:])  # type: ignore[union-attr]


@op(_qlinear_conv, macs=_qlinear_macs)
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
    b: Array | None = None,
    residual: Array | None = None,
    r_scale: Array | None = None,
    r_zero: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """clamp(rint(f32(acc + b) · f32(x_scale · w_scale / y_scale) + real) + y_zero)

    acc is i32, or i64 where x or w is i16. `real` is f32(residual - r_zero) · f32(r_scale /
    y_scale). Without y_scale and y_zero the result is f32(acc + b) · f32(x_scale · w_scale) +
    residual, in f32.
    """
    acc = _add_bias(_exact(x, w, x_zero, w_zero, stride, pad, dilation, groups), b)
    one = np.float32(1)
    scale = (one * x_scale.reshape(-1)) * (one * w_scale.reshape(-1))
    scale = scale if y_scale is None else scale / (one * y_scale.reshape(-1))
    real = acc.astype(np.float32) * scale.reshape(-1, *[1] * (x.ndim - 2))
    if y_scale is None or y_zero is None:
        return real if residual is None else real + residual
    if residual is not None and r_scale is not None and r_zero is not None:
        apart = residual.astype(np.int32) - r_zero.astype(np.int32).reshape(())
        factor = (one * r_scale.reshape(())) / (one * y_scale.reshape(()))
        real = real + apart.astype(np.float32) * factor
    limits = np.iinfo(y_zero.dtype)
    wide = np.rint(real) + np.float32(y_zero.reshape(-1)[0])
    return np.clip(wide, limits.min, limits.max).astype(y_zero.dtype)


# ---- deformable ----------------------------------------------------------------------------------
def _deform_conv(
    x: Value,
    w: Value,
    offset: Value,
    b: Value | None,
    mask: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
    offset_groups: int,
) -> Type:
    _same_floats(x, w, offset, b, mask)
    _weights(x, w, groups, b)
    if x.type.rank != 4:
        raise BadInput(f"deform_conv needs images (rank 4), the tensor is {x.type}")
    shape = _conv_shape(x, w, stride, pad, dilation)
    points = offset_groups * w.shape[2] * w.shape[3]
    if offset_groups < 1 or x.shape[1] % offset_groups:
        raise BadInput(f"{x.shape[1]} channels cannot be split into {offset_groups} offset groups")
    if offset.shape != (shape[0], 2 * points, *shape[2:]):
        raise BadInput(f"offset is {offset.type}, {(shape[0], 2 * points, *shape[2:])} is needed")
    if mask is not None and mask.shape != (shape[0], points, *shape[2:]):
        raise BadInput(f"mask is {mask.type}, {(shape[0], points, *shape[2:])} is needed")
    return Type(x.dtype, shape)


@op(_deform_conv, macs=_conv_macs)
@widen
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    offset_groups: int = 1,
) -> Array:
    """Convolution whose taps are moved by `offset` (y, x), sampled bilinearly, scaled by `mask`."""
    (n, channels, height, width), (kh, kw) = x.shape, w.shape[2:]
    oh, ow = offset.shape[2:]
    by_group = offset.reshape(n, offset_groups, kh, kw, 2, oh, ow)
    ky, kx, oy, ox = np.ogrid[:kh, :kw, :oh, :ow]
    y = by_group[:, :, :, :, 0] + (oy * stride[0] - pad[0] + ky * dilation[0])
    z = by_group[:, :, :, :, 1] + (ox * stride[1] - pad[1] + kx * dilation[1])
    pixels = x.reshape(n, offset_groups, channels // offset_groups, height * width)
    sampled = np.zeros((*pixels.shape[:3], kh, kw, oh, ow), x.dtype)
    low_y, low_x = np.floor(y), np.floor(z)
    for dy in (0, 1):
        for dx in (0, 1):
            row, column = low_y + dy, low_x + dx
            weight = (1 - np.abs(y - row)) * (1 - np.abs(z - column))
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = np.where(inside, row * width + column, 0).astype(np.int64)
            picked = np.take_along_axis(
                pixels, at.reshape(n, offset_groups, 1, kh * kw * oh * ow), 3
            )
            picked = picked.reshape(sampled.shape)
            sampled += np.where(inside, weight, 0).astype(x.dtype)[:, :, None] * picked
    if mask is not None:
        sampled *= mask.reshape(n, offset_groups, 1, kh, kw, oh, ow)
    columns = sampled.reshape(n, groups, channels // groups * kh * kw, oh * ow)
    out = w.reshape(groups, w.shape[0] // groups, columns.shape[2]) @ columns
    return _add_bias(out.reshape(n, w.shape[0], oh, ow), b)


# ---- col2im --------------------------------------------------------------------------------------
def _col2im(x: Value, *, image: Ints, block: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Type:
    if x.type.rank != 3 or x.shape[1] % max(math.prod(block), 1):
        raise BadInput(
            f"col2im needs batch × (channels · block) × windows: {x.type}, block {block}"
        )
    channels = x.shape[1] // math.prod(block)
    picture = Value(Type(x.dtype, (x.shape[0], channels, *image)))
    check_windows(picture, block, stride, pad, dilation)
    counts = window_counts(image, block, stride, pad, dilation)
    if math.prod(counts) != x.shape[2]:
        raise BadInput(
            f"image {image} has {math.prod(counts)} windows of {block}, not {x.shape[2]}"
        )
    return picture.type


@op(_col2im)
@widen
def col2im(x: Array, *, image: Ints, block: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Array:
    """Sum columns of blocks back into the image that they were cut from."""
    counts = window_counts(image, block, stride, pad, dilation)
    columns = x.reshape(x.shape[0], x.shape[1] // math.prod(block), math.prod(block), *counts)
    n = len(image)
    reach = tuple(d + pad[i] + pad[n + i] for i, d in enumerate(image))
    return cropped(add_windows(columns, reach, block, stride, dilation), pad, image)
