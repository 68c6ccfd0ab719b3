"""Deformable convolution: every tap is moved by an offset and sampled bilinearly."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.ops.conv import add_bias, check_floats, check_weights, conv_macs, conv_shape
from intaglio.ops.precision import widen
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints


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
    check_floats(x, w, offset, b, mask)
    check_weights(x, w, groups, b)
    if x.type.rank != 4:
        raise BadInput(f"deform_conv needs images (rank 4), the tensor is {x.type}")
    shape = conv_shape(x, w, stride, pad, dilation)
    points = offset_groups * w.shape[2] * w.shape[3]
    if offset_groups < 1 or x.shape[1] % offset_groups:
        raise BadInput(f"{x.shape[1]} channels cannot be split into {offset_groups} offset groups")
    if offset.shape != (shape[0], 2 * points, *shape[2:]):
        raise BadInput(f"offset is {offset.type}, {(shape[0], 2 * points, *shape[2:])} is needed")
    if mask is not None and mask.shape != (shape[0], points, *shape[2:]):
        raise BadInput(f"mask is {mask.type}, {(shape[0], points, *shape[2:])} is needed")
    return Type(x.dtype, shape)


@op(_deform_conv, macs=conv_macs)
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
    return add_bias(out.reshape(n, w.shape[0], oh, ow), b)
