"""The target's integer arithmetic as differentiable PyTorch functions.

Integers are whole numbers in f32: sums stay exact below 2^24, and `exact` products use f64. Each
rounding is that of the target: one f32 factor, round half to even, clamp (see `rounding`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from intaglio.compress.twin.float_ops import conv, window_sums
from intaglio.compress.twin.rounding import rounded

EXACT = 1 << 24  # whole numbers below it are exact in f32
Ints = Sequence[int]


class _Lookup(torch.autograd.Function):
    """A table of consecutive integers; its gradient is the slope between the neighbours."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, low: int) -> Tensor:
        at = (x - low).long()
        ends = torch.cat([table[:1], table, table[-1:]])
        slope = (ends[2:] - ends[:-2]) / 2
        slope[0], slope[-1] = 2 * slope[0], 2 * slope[-1]
        ctx.save_for_backward(slope[at])
        return table[at]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None


def lookup(x: Tensor, table: Tensor, dtype: str) -> Tensor:
    """table[x], where the table is in the order of bit patterns."""
    low = -128 if dtype == "i8" else 0
    return lookup_between(x, torch.roll(table, 128) if low else table, low)


def lookup_between(x: Tensor, table: Tensor, low: int) -> Tensor:
    """table[x - low], where the table is in ascending order of x."""
    return _Lookup.apply(x, table, low)


def product(
    x: Tensor, w: Tensor, b: Tensor | None, window: dict[str, Any], largest: float, exact: bool
) -> Tensor:
    """Sums of products of whole numbers, as f32. `largest` bounds their size."""
    if exact and largest >= EXACT:
        wide = conv(x.double(), w.double(), None, **window)
        wide = wide if b is None else wide + b.double().reshape(-1, *[1] * (wide.dim() - 2))
        return wide.float()
    y = conv(x, w, None, **window)
    if b is None:
        return y
    shift = b.reshape(-1, *[1] * (y.dim() - 2))
    return (y.double() + shift.double()).float() if exact else y + shift.float()


# ---- results in units of the result's scale, before they are rounded ----
def qlinear_add(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor,
) -> Tensor:  # fmt: skip
    return (a - a_zero) * (a_scale / y_scale) + (b - b_zero) * (b_scale / y_scale)


def qlinear_mul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor,
) -> Tensor:  # fmt: skip
    return ((a - a_zero) * (b - b_zero)) * (a_scale * b_scale / y_scale)


def qlinear_mean(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, *, axes: Ints,
    keepdims: bool = True,
) -> Tensor:  # fmt: skip
    count = torch.tensor(float(math.prod(x.shape[a] for a in axes)))
    total = (x - x_zero).double().sum(tuple(axes), keepdim=bool(keepdims)).float()
    return total * (x_scale / (y_scale * count))


def qlinear_avg_pool(
    x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, *, kernel: Ints,
    stride: Ints, pad: Ints, dilation: Ints, count_include_pad: bool = False,
) -> Tensor:  # fmt: skip
    window = (kernel, stride, pad, dilation)
    total = rounded(window_sums((x - x_zero).double(), *window)).float()
    size = float(math.prod(kernel))
    if count_include_pad:
        count = torch.tensor(size)
    else:
        ones = torch.ones(1, 1, *x.shape[2:], dtype=torch.float64, device=x.device)
        count = window_sums(ones, *window).round().clamp_min(1.0).float()
    return total * (x_scale / (y_scale * count))
