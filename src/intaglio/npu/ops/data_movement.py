"""`npu.resize`, `npu.depth_to_space`, `npu.concat` and `npu.slice`: they only move elements."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.npu.ops.feature_maps import MOVED, check_feature_map
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints


def _resize_type(x: Value, *, factor: Ints) -> Type:
    check_feature_map(x, MOVED)
    if len(factor) != 2 or min(factor) < 1:
        raise BadInput(f"factor is {factor}; two whole factors from 1 up are needed")
    n, c, h, w = x.shape
    return Type(x.dtype, (n, c, h * factor[0], w * factor[1]))


@op(_resize_type, name="npu.resize")
def resize(x: Array, *, factor: Ints) -> Array:
    """Nearest-neighbour upsampling: repeats rows factor[0] times and columns factor[1] times."""
    return np.asarray(x.repeat(factor[0], 2).repeat(factor[1], 3))


def _depth_to_space_type(
    x: Value, *, blocksize: int, channels: int, first: Ints, shape: Ints
) -> Type:
    check_feature_map(x, MOVED)
    n, c, h, w = x.shape
    phases = blocksize * blocksize
    if blocksize < 1 or not 0 < channels * phases <= c or c % phases:
        raise BadInput(f"{x.type} has no {blocksize} x {blocksize} phases of {channels} channels")
    for start, size, extent in zip(first, shape, (h, w), strict=True):
        if not 0 <= start < start + size <= extent * blocksize:
            raise BadInput(
                f"the result has {extent * blocksize} rows or columns, not {start + size}"
            )
    return Type(x.dtype, (n, channels, *shape))


@op(_depth_to_space_type, name="npu.depth_to_space")
def depth_to_space(x: Array, *, blocksize: int, channels: int, first: Ints, shape: Ints) -> Array:
    """Phases of channels become pixels; the result is cropped.

    Row y and column x of phase p are row y * blocksize + p // blocksize and column
    x * blocksize + p % blocksize. Phases may have more channels than the result.
    """
    n, _, h, w = x.shape
    phases = x.reshape(n, blocksize, blocksize, -1, h, w)[:, :, :, :channels]
    turned = phases.transpose(0, 3, 4, 1, 5, 2).reshape(n, channels, h * blocksize, w * blocksize)
    (top, left), (high, wide) = first, shape
    return np.ascontiguousarray(turned[:, :, top : top + high, left : left + wide])


def _concat_type(*xs: Value) -> Type:
    for x in xs:
        check_feature_map(x, MOVED)
        if (x.dtype, x.shape[:1], x.shape[2:]) != (xs[0].dtype, xs[0].shape[:1], xs[0].shape[2:]):
            raise BadInput(f"{x.type} and {xs[0].type} differ in more than their channels")
    if not xs:
        raise BadInput("npu.concat has no inputs; at least one is needed")
    n, _, h, w = xs[0].shape
    return Type(xs[0].dtype, (n, sum(x.shape[1] for x in xs), h, w))


@op(_concat_type, name="npu.concat")
def concat(*xs: Array) -> Array:
    """Concatenates along the channel axis."""
    return np.concatenate(xs, 1)


def _slice_type(x: Value, *, first: int, count: int) -> Type:
    check_feature_map(x, MOVED)
    if not 0 <= first < first + count <= x.shape[1]:
        raise BadInput(f"channels {first} to {first + count} are not all in {x.type}")
    return Type(x.dtype, (x.shape[0], count, *x.shape[2:]))


@op(_slice_type, name="npu.slice")
def slice_(x: Array, *, first: int, count: int) -> Array:
    """Channels first to first + count - 1."""
    return np.ascontiguousarray(x[:, first : first + count])
