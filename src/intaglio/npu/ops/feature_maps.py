"""Element types of NPU ops, and the checks that their operands have in common."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Value
from intaglio.npu.ops import f16_arithmetic
from intaglio.ops.quantized import BITS8

INTEGER_FEATURES = ("i8", "u8", "i16")  # element types of quantised feature maps
FEATURES = (*INTEGER_FEATURES, *f16_arithmetic.TYPES)  # element types of feature maps
MOVED = (*FEATURES, "f32", "bf16")  # element types of feature maps that are only moved
WEIGHTS = {  # element types of weights, by the feature map's
    "i8": ("i8",),
    "u8": ("i8",),
    "i16": ("i8", "i16"),
    "f16": ("f16",),
}
MAX_I16_PRODUCTS = 1 << 21  # 16-bit products whose sum is exact in i64 and in f64
ACCUMULATOR = "i32"  # result type with which a product returns its sums, not requantised


def check_feature_map(x: Value, dtypes_allowed: tuple[str, ...] = BITS8) -> None:
    """BadInput unless `x` is a feature map N x C x H x W of fixed shape and an allowed type."""
    if x.type.rank != 4 or x.dtype not in dtypes_allowed or x.type.dynamic:
        raise BadInput(
            f"{x.type} is no feature map of fixed shape; "
            f"rank 4 and {' or '.join(dtypes_allowed)} are needed"
        )


def check_zero_point(zero: int, dtype: str, name: str) -> None:
    """BadInput unless `zero` is a number of `dtype`; feature maps of floats have zero point 0."""
    if dtype in f16_arithmetic.TYPES and zero == 0:
        return
    low, high = dtypes.limits(dtype)
    if not low <= zero <= high:
        raise BadInput(f"{name} is {zero}; {dtype} holds {low} to {high}")


def check_pair(a: Value, a_zero: int, b: Value, b_zero: int) -> None:
    """BadInput unless both operands are integer feature maps, or both have one float type."""
    for v, zero, name in ((a, a_zero, "a_zero"), (b, b_zero, "b_zero")):
        check_feature_map(v, FEATURES)
        check_zero_point(zero, v.dtype, name)
    if a.dtype != b.dtype and {a.dtype, b.dtype} & set(f16_arithmetic.TYPES):
        raise BadInput(f"{a.type} and {b.type} mix integers and floats")


def without_zero_point(x: Array, zero: int) -> Array:
    """Integers minus their zero point, as i32; floats as f32."""
    return x.astype(np.float32) if x.dtype == np.float16 else x.astype(np.int32) - zero
