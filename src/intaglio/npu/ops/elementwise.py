"""`npu.eltwise` and `npu.lut`: sums and products of two feature maps, and lookup tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Type, Value
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.ops.epilogue import Epilogue, check_f16_table, check_table
from intaglio.npu.ops.feature_maps import (
    FEATURES,
    check_feature_map,
    check_pair,
    without_zero_point,
)
from intaglio.ops.registry import op

ELTWISE = ("add", "mul")


def _eltwise_type(
    a: Value,
    b: Value,
    table: Value | None,
    *,
    kind: str,
    a_zero: int,
    b_zero: int,
    a_factor: float,
    b_factor: float,
    dtype: str,
    **epilogue: Any,
) -> Type:
    if kind not in ELTWISE:
        raise BadInput(f"kind is '{kind}'; it is one of {', '.join(ELTWISE)}")
    check_pair(a, a_zero, b, b_zero)
    if b.shape[0] != a.shape[0] or any(
        n not in (1, m) for n, m in zip(b.shape[1:], a.shape[1:], strict=True)
    ):
        raise BadInput(f"{b.type} does not broadcast to {a.type}")
    Epilogue(dtype, **epilogue).check(a.dtype, table)
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
    left, right = without_zero_point(a, a_zero), without_zero_point(b, b_zero)
    if kind == "mul":
        left = left if a.dtype == np.float16 else left.astype(np.int64)
        real = (left * right).astype(np.float32) * np.float32(a_factor)
    else:
        real = left.astype(np.float32) * np.float32(a_factor)
        real = real + right.astype(np.float32) * np.float32(b_factor)
    return Epilogue(dtype, y_zero, low, high, base, least, most).apply(real, table)


def _lut_type(x: Value, table: Value, *, base: int) -> Type:
    check_feature_map(x, FEATURES)
    if x.dtype in f16_arithmetic.TYPES:
        check_f16_table(table)
        return x.type
    check_table(table, FEATURES, base)
    return Type(table.dtype, x.shape)


@op(_lut_type, name="npu.lut")
def lut(x: Array, table: Array, *, base: int) -> Array:
    """table[x - base]; numbers outside the table take its first or its last entry.

    The table of f16 is piecewise linear: f16_arithmetic.py.
    """
    if x.dtype == np.float16:
        return f16_arithmetic.epilogue(x.astype(np.float32), "f16", -math.inf, math.inf, table)
    return np.asarray(table[np.clip(without_zero_point(x, base), 0, len(table) - 1)])
