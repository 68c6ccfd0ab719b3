"""The element types. `code` is the number in package files and in the C runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: its name, numpy dtype and code in a file."""

    name: str
    code: int
    numpy: np.dtype[Any]
    kind: str  # "f" float, "i" signed, "u" unsigned, "b" bool
    bits: int  # used; every element is stored in whole bytes


def _row(name: str, code: int, numpy: Any, kind: str, bits: int) -> DType:
    return DType(name, code, np.dtype(numpy), kind, bits)


TABLE: dict[str, DType] = {
    d.name: d
    for d in [
        _row("f32", 1, np.float32, "f", 32),
        _row("f64", 2, np.float64, "f", 64),
        _row("f16", 3, np.float16, "f", 16),
        _row("bf16", 4, ml_dtypes.bfloat16, "f", 16),
        _row("i8", 5, np.int8, "i", 8),
        _row("i16", 6, np.int16, "i", 16),
        _row("i32", 7, np.int32, "i", 32),
        _row("i64", 8, np.int64, "i", 64),
        _row("u8", 9, np.uint8, "u", 8),
        _row("u16", 10, np.uint16, "u", 16),
        _row("u32", 11, np.uint32, "u", 32),
        _row("u64", 12, np.uint64, "u", 64),
        _row("bool", 13, np.bool_, "b", 1),
        _row("i4", 14, ml_dtypes.int4, "i", 4),
        _row("u4", 15, ml_dtypes.uint4, "u", 4),
        _row("f8e4m3fn", 16, ml_dtypes.float8_e4m3fn, "f", 8),
        _row("f8e4m3fnuz", 17, ml_dtypes.float8_e4m3fnuz, "f", 8),
        _row("f8e5m2", 18, ml_dtypes.float8_e5m2, "f", 8),
        _row("f8e5m2fnuz", 19, ml_dtypes.float8_e5m2fnuz, "f", 8),
        _row("f4e2m1fn", 20, ml_dtypes.float4_e2m1fn, "f", 4),
        _row("f8e8m0fnu", 21, ml_dtypes.float8_e8m0fnu, "f", 8),
        _row("i2", 22, ml_dtypes.int2, "i", 2),
        _row("u2", 23, ml_dtypes.uint2, "u", 2),
    ]
}
BY_CODE: dict[int, DType] = {d.code: d for d in TABLE.values()}
_BY_NUMPY: dict[np.dtype[Any], str] = {d.numpy: d.name for d in TABLE.values()}


def numpy_of(name: str) -> np.dtype[Any]:
    """The numpy dtype that stores element type `name`."""
    return TABLE[name].numpy


def name_of(dtype: Any) -> str:
    """The element type of a numpy dtype; KeyError for strings, objects and complex numbers."""
    return _BY_NUMPY[np.dtype(dtype).newbyteorder("=")]


def known(dtype: np.dtype[Any]) -> bool:
    """Whether a numpy dtype is one of the element types."""
    return dtype.newbyteorder("=") in _BY_NUMPY


def itemsize(name: str) -> int:
    """Bytes that one element takes in memory."""
    return TABLE[name].numpy.itemsize


def is_float(name: str) -> bool:
    return TABLE[name].kind == "f"


def is_integer(name: str) -> bool:
    return TABLE[name].kind in "iu"


def limits(name: str) -> tuple[int, int]:
    """Smallest and largest value of an integer element type."""
    d = TABLE[name]
    return (
        (-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1) if d.kind == "i" else (0, (1 << d.bits) - 1)
    )
