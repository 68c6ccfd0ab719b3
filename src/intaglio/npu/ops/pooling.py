"""`npu.pool`: max and average pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.ops.epilogue import Epilogue
from intaglio.npu.ops.feature_maps import (
    FEATURES,
    check_feature_map,
    check_zero_point,
    without_zero_point,
)
from intaglio.ops.registry import op
from intaglio.ops.windows import Ints, check_windows, window_counts

POOLS = ("max", "avg")


def _type(
    x: Value,
    *,
    kind: str,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    count_include_pad: bool,
    x_zero: int,
    x_scale: float,
    y_scale: float,
    dtype: str,
    **epilogue: Any,
) -> Type:
    check_feature_map(x, FEATURES)
    if kind not in POOLS:
        raise BadInput(f"pooling is '{kind}'; it is one of {', '.join(POOLS)}")
    if kind == "max" and dtype != x.dtype:
        raise BadInput(f"max pooling of {x.dtype} makes {dtype}; it keeps the element type")
    check_zero_point(x_zero, x.dtype, "x_zero")
    Epilogue(dtype, **epilogue).check(x.dtype)
    check_windows(x, kernel, stride, pad, dilation)
    counts = window_counts(x.shape[2:], kernel, stride, pad, dilation)
    return Type(dtype, (*x.shape[:2], *counts))


@op(_type, name="npu.pool")
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

    n is the number of elements under the window; with `count_include_pad` it is the window's size.
    Padding has the value x_zero, and is never the largest number.
    """
    window: dict[str, Any] = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation}
    epilogue = Epilogue(dtype, y_zero, low, high, least=least, most=most)
    if kind == "max":
        if dtype in f16_arithmetic.TYPES:
            return epilogue.apply(f16_arithmetic.window_max(x, **window))
        return np.asarray(np.clip(ops.max_pool.body(x, **window), low, high))
    total, count = f16_arithmetic.window_sums(without_zero_point(x, x_zero), **window)
    many = np.float32(math.prod(kernel)) if count_include_pad else np.maximum(count, 1)
    factor = np.float32(x_scale) / (np.float32(y_scale) * many.astype(np.float32))
    return epilogue.apply(total.astype(np.float32) * factor)
