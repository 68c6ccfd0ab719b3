"""Reciprocal square roots and quotients, as the chip approximates them in f32."""

from __future__ import annotations

import numpy as np

from intaglio.ir import Array

GUESS = 0x5F3759DF  # of 1 / sqrt(x) from the bits of x
HALF_GUESS = 0x59BA  # the same of f16
SMALLEST = np.finfo(np.float32).tiny  # smaller numbers count as 0


def rsqrt(x: Array, steps: int) -> Array:
    """1 / sqrt(x) by a guess and some steps of Newton's method, in f32."""
    x = np.ascontiguousarray(x, np.float32)
    guess = np.uint32(GUESS) - (x.view(np.uint32) >> np.uint32(1))
    y = guess.view(np.float32)
    half = np.float32(0.5) * x
    with np.errstate(all="ignore"):
        for _ in range(steps):
            y = y * (np.float32(1.5) - half * y * y)
    return y


def divide(a: Array, b: Array, steps: int) -> Array:
    """a / b = a * rsqrt(|b|) ** 2, with the sign of b."""
    b = np.ascontiguousarray(b, np.float32)
    root = rsqrt(np.abs(b), steps)
    with np.errstate(all="ignore"):
        inverse = root * root
        inverse = np.where(np.abs(inverse) < SMALLEST, np.float32(0), inverse)
        edge = (np.abs(b) < SMALLEST) | np.isinf(b)
        inverse = np.where(edge, np.float32(np.inf), inverse)
        return np.asarray(a * np.copysign(inverse, b), np.float32)


def divide_halves(a: Array, b: Array, steps: int) -> Array:
    """The same in f16, each step rounded, as SG2260 does it."""
    b = np.ascontiguousarray(b, np.float16)
    size = np.abs(b)
    y = (np.uint16(HALF_GUESS) - (size.view(np.uint16) >> np.uint16(1))).view(np.float16)
    half, whole = np.float16(0.5), np.float16(1.5)
    with np.errstate(all="ignore"):
        for _ in range(steps):
            y = y * (whole - half * size * y * y)
        return np.asarray(a.astype(np.float16) * np.copysign(y * y, b))
