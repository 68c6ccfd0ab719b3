"""The chip's rounding, and the numbers that it takes: weights and biases for shifts to the right.

A convolution's result is `sum >> shift`. A scale that is no power of two goes into the weights:
they are multiplied by a factor of at most 1, and rounded again. Channels may have shifts of their
own: the chip then rounds its sums to 16 bits first, and shifts each channel by the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node

MOST_SHIFT = 31
MOST_MORE = 8  # shift of a channel beyond the common one: 16 bits hold a byte shifted so far
LARGEST = 127  # of weights and multipliers
BIAS = 32767
NEAR = 1e-6  # a scale that is so close to a power of two is one


def rounded(x: Array, shift: int | Array) -> Array:
    """x / 2**shift, rounded; halves towards plus infinity."""
    half = np.where(np.asarray(shift) > 0, 1 << np.maximum(np.asarray(shift) - 1, 0), 0)
    return np.asarray((x + half) >> shift)


def saturated(x: Array, dtype: str, low: int | None = None, high: int | None = None) -> Array:
    """x as a type of integers, between its limits and these bounds."""
    first, last = dtypes.limits(dtype)
    least = first if low is None else max(first, low)
    most = last if high is None else min(last, high)
    return np.clip(x, least, most).astype(dtypes.numpy_of(dtype))


def shifted(sums: Array, shifts: Array, dtype: str, low: int, high: int) -> Array:
    """What the chip makes of sums [N, C, H, W] with one shift for each channel."""
    if (shifts == shifts[0]).all():
        return saturated(rounded(sums, int(shifts[0])), dtype, low, high)
    common = common_shift(shifts)
    wide = np.clip(rounded(sums, common), -BIAS - 1, BIAS)
    return saturated(rounded(wide, (shifts - common).reshape(-1, 1, 1)), dtype, low, high)


def common_shift(shifts: Array) -> int:
    """The shift of the command where channels differ: each is shifted by at least 1 more."""
    return int(shifts.min()) if (shifts == shifts[0]).all() else int(shifts.min()) - 1


@dataclass(frozen=True, slots=True)
class Product:
    """The constants of a convolution: weights, biases of 16 bits, shifts of the channels."""

    weights: Array
    bias: Array
    shifts: Array


def of_scales(w: Array, scale: Array, bias: Array) -> Product:
    """The constants whose results are nearest to (sums + bias) * scale; BadInput if none are."""
    real, exact = scale.astype(np.float64), bias.astype(np.float64)
    largest = np.abs(w.reshape(len(w), -1).astype(np.float64)).max(1)
    with np.errstate(divide="ignore"):
        most = np.log2((LARGEST + 0.5) / (largest * real))
        by_bias = np.log2(BIAS / (np.abs(exact) * real))
    if not (real > 0).all():
        raise BadInput("a scale is not positive; results are only shifted")
    shifts = np.floor(np.minimum(np.minimum(most, by_bias) + NEAR, MOST_SHIFT))
    least = shifts.min()
    if least < 0:
        raise BadInput(
            f"its results are {2.0**-least:.3g} times as large as its sums of products; "
            "sums are only shifted to the right"
        )
    shifts = np.minimum(shifts, least + MOST_MORE - 1) if least else np.zeros_like(shifts)
    factor = real * 2.0**shifts
    factor[np.abs(factor - 1) < NEAR] = 1
    by_channel = factor.reshape(-1, *[1] * (w.ndim - 1))
    weights = np.clip(np.rint(w * by_channel), -LARGEST - 1, LARGEST).astype(np.int8)
    biases = np.clip(np.rint(exact * factor), -BIAS - 1, BIAS).astype(np.int64)
    return Product(weights, biases, shifts.astype(np.int64))


def of_convolution(node: Node) -> Product:
    """The same of an npu.conv or npu.depthwise."""
    w, scale, bias = (v.data for v in node.inputs[1:4] if v is not None)
    assert w is not None
    assert scale is not None
    assert bias is not None
    return of_scales(w, scale, bias)


def of_mean(node: Node) -> tuple[int, int]:
    """Weight and shift of an average pool, which becomes a depthwise convolution."""
    kernel = node.attrs["kernel"]
    factor = node.attrs["x_scale"] / (node.attrs["y_scale"] * kernel[0] * kernel[1])
    weight, shift = _multiplier(factor)
    if not weight:
        raise BadInput(f"its windows of {kernel[0]} x {kernel[1]} are too large for shifts")
    return weight, shift


@dataclass(frozen=True, slots=True)
class Sum:
    """y = (a * left + b * right) >> shift."""

    left: int
    right: int
    shift: int


def of_sum(node: Node) -> Sum:
    """The multipliers nearest to the factors of a sum."""
    factors = node.attrs["a_factor"], node.attrs["b_factor"]
    _, shift = _multiplier(max(map(abs, factors)))
    left, right = (round(f * 2.0**shift) for f in factors)
    return Sum(left, right, shift)


WHOLE = 128  # a multiplier that changes nothing


@dataclass(frozen=True, slots=True)
class Scaled:
    """y = (a * c) >> shift with c = (b * multiplier) >> 7; b itself if the multiplier is 128."""

    multiplier: int
    shift: int


def of_scaled(node: Node) -> Scaled:
    """The numbers of a product of two maps."""
    factor = node.attrs["a_factor"]
    if not 0 < factor <= 1:
        raise BadInput(f"the factor of its products is {factor:.3g}; 1 is the largest")
    shift = int(np.floor(np.log2(WHOLE / factor) + NEAR))
    multiplier = round(factor * 2.0**shift)
    if not 0 <= shift - 7 <= MOST_SHIFT:
        raise BadInput(f"the factor of its products is {factor:.3g}, which shifts do not reach")
    return Scaled(min(multiplier, WHOLE), shift - 7)


def _multiplier(factor: float) -> tuple[int, int]:
    """m and s: factor is about m / 2**s, with m of 7 bits."""
    if not 0 < factor <= LARGEST:
        raise BadInput(f"a factor is {factor:.3g}; {LARGEST} is the largest")
    shift = min(int(np.floor(np.log2((LARGEST + 0.5) / factor) + NEAR)), MOST_SHIFT)
    found = round(factor * 2.0**shift)
    if found > LARGEST:
        found, shift = round(factor * 2.0 ** (shift - 1)), shift - 1
    return found, shift
