"""The chip's number types: reading, rounding and saturating them."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array

I8, F16, F32, I16, I32, BF16, I4 = range(7)
NAMES = {I8: "i8", F16: "f16", F32: "f32", I16: "i16", I32: "i32", BF16: "bf16", I4: "i4"}
BYTES = {I8: 1, F16: 2, F32: 4, I16: 2, I32: 4, BF16: 2}
FLOATS = (F16, F32, BF16)
INTEGERS = (I8, I16, I32)
_SIGNED = {I8: np.int8, I16: np.int16, I32: np.int32}
_UNSIGNED = {I8: np.uint8, I16: np.uint16, I32: np.uint32}
EVEN, AWAY, ZERO, DOWN, UP, HALF_UP, HALF_DOWN = range(7)  # ways of rounding
MOST_SHIFT = 62


def dtype(code: int, signed: int | bool) -> np.dtype:
    """How numpy reads a type; bf16 is read as u16."""
    match code:
        case 1:
            return np.dtype(np.float16)
        case 2:
            return np.dtype(np.float32)
        case 5:
            return np.dtype(np.uint16)
    table = _SIGNED if signed else _UNSIGNED
    if code not in table:
        raise Unsupported(f"type {NAMES.get(code, code)} is not simulated")
    return np.dtype(table[code])


def from_bits(raw: Array, code: int) -> Array:
    """Numbers to compute with, as read from memory: bf16 becomes f32."""
    if code == BF16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw


def to_bf16(x: Array) -> Array:
    """The bits of f32 numbers rounded to bf16, halves to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    odd = bits >> 16 & 1
    rounded = (bits + 0x7FFF + odd) >> 16
    return np.where(np.isnan(x), np.uint32(0x7FFF), rounded).astype(np.uint16)


def constant(bits: int, code: int, signed: int | bool) -> Array:
    """A number from the bits in a command."""
    raw = np.array([bits & 0xFFFFFFFF], np.uint32).view(np.uint8)[: BYTES.get(code, 1)]
    return from_bits(raw.view(dtype(code, signed)), code).reshape(1, 1, 1, 1)


def limits(code: int, signed: int | bool) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    if code not in INTEGERS:
        raise Unsupported(f"integers as {NAMES.get(code, code)} are not simulated")
    info = np.iinfo(dtype(code, signed))
    return int(info.min), int(info.max)


def saturate(x: Array, code: int, signed: int | bool) -> Array:
    """Integers clamped to a type."""
    return np.clip(x, *limits(code, signed)).astype(dtype(code, signed))


def wrap(x: Array, code: int, signed: int | bool) -> Array:
    """The low bits of integers."""
    limits(code, signed)
    bits = 8 * BYTES[code]
    return (x & ((1 << bits) - 1)).astype(_UNSIGNED[code]).view(dtype(code, signed))


def shift(x: Array, by: Array | int, mode: int) -> Array:
    """i64 numbers times 2 ** by, rounded."""
    by = np.clip(np.asarray(by, np.int64), -MOST_SHIFT, MOST_SHIFT)
    if not by.any():
        return x
    left = np.left_shift(x, np.maximum(by, 0))
    right = np.maximum(-by, 0)
    if not right.any():
        return np.asarray(left)
    down = left >> right
    rest = left - (down << right)  # 0 .. 2 ** right - 1
    twice, whole = rest * 2, np.left_shift(np.int64(1), right)
    return np.asarray(down + round_up(twice, whole, down, left < 0, mode) * (right > 0))


def round_up(twice: Array, whole: Array, down: Array, negative: Array, mode: int) -> Any:
    """Whether a quotient that was rounded down is one more; `twice` is 2 * rest, of `whole`."""
    match mode:
        case 0:
            return (twice > whole) | ((twice == whole) & (down & 1 == 1))
        case 1:
            return (twice > whole) | ((twice == whole) & ~negative)
        case 2:
            return negative & (twice > 0)
        case 3:
            return np.zeros(np.shape(twice), bool)
        case 4:
            return twice > 0
        case 5:
            return twice >= whole
        case 6:
            return twice > whole
    raise Unsupported(f"rounding mode {mode} is not simulated")


def round_float(x: Array, mode: int) -> Array:
    """Floats rounded to integers."""
    match mode:
        case 0:
            return np.rint(x)
        case 1:
            whole = np.trunc(x)
            return np.asarray(whole + np.sign(x) * (np.abs(x - whole) >= 0.5))
        case 2:
            return np.trunc(x)
        case 3:
            return np.floor(x)
        case 4:
            return np.ceil(x)
        case 5 | 6:
            low = np.floor(x)
            rest = x - low
            up = rest >= 0.5 if mode == HALF_UP else rest > 0.5
            return np.asarray(np.copysign(low + up, x))
    raise Unsupported(f"rounding mode {mode} is not simulated")


def to_narrow(x: Array, kind: type[np.floating], mode: int) -> Array:
    """f64 numbers as f32 or f16, rounded in one of the chip's ways."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = x.astype(kind)
        if mode == EVEN:
            return near
        low = np.where(near.astype(np.float64) > x, np.nextafter(near, kind(-np.inf)), near)
        high = np.nextafter(low, kind(np.inf))
        tie = x == (low.astype(np.float64) + high.astype(np.float64)) / 2
    above = np.where(low.astype(np.float64) == x, low, high)
    ways = {
        AWAY: np.where(tie, np.where(x > 0, high, low), near),
        ZERO: np.where(x > 0, low, above),
        DOWN: low,
        UP: above,
        HALF_UP: np.where(tie, high, near),
        HALF_DOWN: np.where(tie, low, near),
    }
    if mode not in ways:
        raise Unsupported(f"rounding mode {mode} is not simulated")
    return np.where(np.isnan(x), near, ways[mode])


def to_integer(x: Array, mode: int, code: int, signed: int | bool) -> Array:
    """Floats rounded to integers of a type, saturated."""
    low, high = limits(code, signed)
    with np.errstate(invalid="ignore"):
        rounded = round_float(x.astype(np.float64), mode)
        return np.clip(rounded, low, high).astype(np.int64).astype(dtype(code, signed))
