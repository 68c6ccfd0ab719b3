"""Precision: bodies compute small floats (f16, bf16, f8) in f32 and round once, as kernels do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array

SMALL = frozenset(d.numpy for d in dtypes.TABLE.values() if d.kind == "f" and d.bits < 32)


def widen(body: Callable[..., Any]) -> Callable[..., Any]:
    """Run a numpy body on f32 copies of small floats, and round f32 results to the small type."""

    @functools.wraps(body)
    def run(*arrays: Array | None, **attrs: Any) -> Any:
        small = next((a.dtype for a in arrays if a is not None and a.dtype in SMALL), None)
        if small is None:
            return body(*arrays, **attrs)
        wide = [a.astype(np.float32) if a is not None and a.dtype in SMALL else a for a in arrays]
        out = body(*wide, **attrs)
        if isinstance(out, tuple):
            return tuple(_narrow(o, small) for o in out)
        return _narrow(out, small)

    return run


def _narrow(a: Any, small: np.dtype[Any]) -> Any:
    return np.asarray(a).astype(small) if np.asarray(a).dtype == np.float32 else a


def to_dtype(x: Array, dtype: str, saturate: bool = True) -> Array:
    """Convert elements as ONNX Cast does.

    Integers keep their low bits. Floats become integers by truncation towards zero (NaN is 0):
    types of 32 and 64 bits saturate; narrower ones keep the low bits of the 32-bit result.
    `saturate` affects 8-bit floats only; e8m0 rounds up to a power of two.
    """
    to = dtypes.TABLE[dtype]
    source = dtypes.TABLE[dtypes.name_of(x.dtype)]
    if to.name == "f8e8m0fnu":
        return _to_e8m0(x.astype(np.float32), saturate)
    if to.kind == "f" and to.bits <= 8:
        x = x if source.name in ("f32", "f64") else x.astype(np.float32)
        top = np.array(_largest(to.numpy) if saturate else np.inf, x.dtype)
        return np.clip(x, -top, top).astype(to.numpy)
    if source.kind == "f" and to.kind in "iu":
        return _float_to_integer(x, to)
    if source.kind in "iu" and to.kind in "iu" and to.bits < 8:
        return x.astype(np.int64).astype(to.numpy)
    return x.astype(to.numpy)


def _float_to_integer(x: Array, to: dtypes.DType) -> Array:
    through = to.name if to.bits >= 32 else "i32"
    low, high = dtypes.limits(through)
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    over, under = wide >= float(high) + (high < 2**53), wide < float(low)
    whole = np.where(over | under, 0.0, wide).astype(dtypes.numpy_of(through))
    whole = np.where(over, np.array(high, whole.dtype), whole)
    whole = np.where(under, np.array(low, whole.dtype), whole)
    return whole if through == to.name else whole.astype(to.numpy)


def _to_e8m0(x: Array, saturate: bool) -> Array:
    bits = x.view(np.uint32)
    field, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    exponent = field.astype(np.int64) + np.where(field == 0, fraction > 0x400000, fraction != 0)
    lost = (exponent >= 255) if saturate else (exponent >= 255) | (x == 0)
    code = np.where(lost, 254 if saturate else 255, exponent)
    return np.where(np.isnan(x), 255, code).astype(np.uint8).view(dtypes.numpy_of("f8e8m0fnu"))


def _largest(dtype: np.dtype[Any]) -> float:
    codes = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    return float(codes[np.isfinite(codes)].max())
