"""`npu.matmul`: the product of two activations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.ops.epilogue import Epilogue
from intaglio.npu.ops.feature_maps import (
    ACCUMULATOR,
    MAX_I16_PRODUCTS,
    check_pair,
    without_zero_point,
)
from intaglio.ops.quantized import BITS8
from intaglio.ops.registry import op


def _type(
    a: Value,
    b: Value,
    *,
    turned: bool,
    a_zero: int,
    b_zero: int,
    factor: float,
    dtype: str,
    **epilogue: Any,
) -> Type:
    check_pair(a, a_zero, b, b_zero)
    if "i16" in (a.dtype, b.dtype) and a.shape[1] > MAX_I16_PRODUCTS:
        raise BadInput(
            f"{a.shape[1]} products of 16 bits are summed up; "
            f"the sum is exact for at most {MAX_I16_PRODUCTS}"
        )
    k_axis, c_axis = (1, 2) if turned else (2, 1)
    if (a.shape[0], a.shape[1], 1, 1) != (b.shape[0], b.shape[k_axis], a.shape[3], b.shape[3]):
        raise BadInput(f"{a.type} and {b.type} do not form a matrix product over a's channels")
    if dtype != ACCUMULATOR:
        Epilogue(dtype, **epilogue).check(a.dtype)
    elif not {a.dtype, b.dtype} <= set(BITS8):
        raise BadInput(
            f"an {ACCUMULATOR} result of {a.dtype} and {b.dtype}; "
            "only 8-bit operands return their sums"
        )
    return Type(dtype, (a.shape[0], b.shape[c_axis], a.shape[2], 1))


def _macs(node: Node) -> int:
    return node.outputs[0].type.size * node.inputs[0].shape[1]  # type: ignore[union-attr]


@op(_type, name="npu.matmul", macs=_macs)
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

    `a` is [N, K, M, 1]. `b` is [N, C, K, 1], or [N, K, C, 1] if `turned`. Sums are as wide as those
    of npu.conv; with dtype "i32" they are the result.
    """
    left, right = without_zero_point(b[..., 0], b_zero), without_zero_point(a[..., 0], a_zero)
    left = left.transpose(0, 2, 1) if turned else left
    if a.dtype == np.float16:
        total = f16_arithmetic.matmul(left, right)
    else:
        exact = np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64)
        exact = exact if np.int16 in (a.dtype, b.dtype) else exact.astype(np.int32)
        if dtype == ACCUMULATOR:
            return np.asarray(exact[..., None])
        total = exact.astype(np.float32)
    real = (total * np.float32(factor))[..., None]
    return Epilogue(dtype, y_zero, low, high, least=least, most=most).apply(real)
