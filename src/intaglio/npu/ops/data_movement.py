"""`npu.resize`, `npu.concat` and `npu.slice`: ops that move elements and compute none."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.npu.ops.feature_maps import FEATURES, check_feature_map
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints


def _resize_type(x: Value, *, factor: Ints) -> Type:
    check_feature_map(x, FEATURES)
    if len(factor) != 2 or min(factor) < 1:
        raise BadInput(f"factor is {factor}; two whole factors from 1 up are needed")
    n, c, h, w = x.shape
    return Type(x.dtype, (n, c, h * factor[0], w * factor[1]))


@op(_resize_type, name="npu.resize")
def resize(x: Array, *, factor: Ints) -> Array:
    """Nearest-neighbour upsampling: repeats rows factor[0] times and columns factor[1] times."""
    return np.asarray(x.repeat(factor[0], 2).repeat(factor[1], 3))


def _concat_type(*xs: Value) -> Type:
    for x in xs:
        check_feature_map(x, FEATURES)
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
    check_feature_map(x, FEATURES)
    if not 0 <= first < first + count <= x.shape[1]:
        raise BadInput(f"channels {first} to {first + count} are not all in {x.type}")
    return Type(x.dtype, (x.shape[0], count, *x.shape[2:]))


@op(_slice_type, name="npu.slice")
def slice_(x: Array, *, first: int, count: int) -> Array:
    """Channels first to first + count - 1."""
    return np.ascontiguousarray(x[:, first : first + count])
