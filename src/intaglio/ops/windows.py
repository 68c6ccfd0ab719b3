"""Sliding windows over the spatial axes of N×C×… tensors, for convolution and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from intaglio.errors import BadInput
from intaglio.ir import Array, Value
from intaglio.symint import bound

Ints = tuple[int, ...]


def check_windows(x: Value, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints) -> None:
    """BadInput if the window's attributes do not fit the spatial axes of x."""
    n = x.type.rank - 2
    if n < 1:
        raise BadInput(f"the tensor is {x.type}; a batch, a channel and a spatial axis are needed")
    given = {"kernel": (kernel, n), "stride": (stride, n), "pad": (pad, 2 * n)}
    for name, (values, count) in {**given, "dilation": (dilation, n)}.items():
        if len(values) != count:
            raise BadInput(f"{name} {values} must have {count} entries for {x.type}")
        if any(v < (name != "pad") for v in values):
            raise BadInput(f"{name} {values} is too small")


def window_counts(
    extents: Sequence[int], kernel: Ints, stride: Ints, pad: Ints, dilation: Ints
) -> Ints:
    """The number of windows along each spatial axis."""
    n = len(kernel)
    counts = tuple(
        (extents[i] + pad[i] + pad[n + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(n)
    )
    if any(bound(c) < 1 for c in counts):  # smaller sizes are refused at run time
        raise BadInput(f"a window of {kernel} does not fit into {tuple(extents)} padded by {pad}")
    return counts


def padded(x: Array, pad: Ints, value: float = 0) -> Array:
    """x with its spatial axes padded by `pad` (begin…, end…)."""
    n = len(pad) // 2
    if not any(pad):
        return x
    shape = [d + pad[i] + pad[n + i] for i, d in enumerate(x.shape[2:])]
    out = np.full((*x.shape[:2], *shape), value, x.dtype)
    cropped(out, pad, x.shape[2:])[...] = x
    return out


def windows(x: Array, kernel: Ints, stride: Ints, dilation: Ints) -> Array:
    """A view of a padded tensor: N, C, kernel position…, window…"""
    counts = window_counts(x.shape[2:], kernel, stride, (0, 0) * len(kernel), dilation)
    step = x.strides[2:]
    strides = (
        *x.strides[:2],
        *(s * d for s, d in zip(step, dilation, strict=True)),
        *(s * d for s, d in zip(step, stride, strict=True)),
    )
    return as_strided(x, (*x.shape[:2], *kernel, *counts), strides, writeable=False)


def taps(kernel: Ints, counts: Ints, stride: Ints, dilation: Ints) -> Iterator[tuple[slice, ...]]:
    """For every kernel position, in row-major order: the elements of all windows at it."""
    for at in itertools.product(*map(range, kernel)):
        yield tuple(
            slice(k * d, k * d + (c - 1) * s + 1, s)
            for k, c, s, d in zip(at, counts, stride, dilation, strict=True)
        )


def add_windows(columns: Array, extents: Ints, kernel: Ints, stride: Ints, dilation: Ints) -> Array:
    """The adjoint of `windows`: N, C, kernel position, window… summed into N, C, extents…"""
    counts = columns.shape[3:]
    out = np.zeros((*columns.shape[:2], *extents), columns.dtype)
    for i, at in enumerate(taps(kernel, counts, stride, dilation)):
        out[:, :, *at] += columns[:, :, i]
    return out


def cropped(x: Array, pad: Ints, extents: Ints) -> Array:
    """A view of x without its padding."""
    return x[:, :, *(slice(p, p + d) for p, d in zip(pad, extents, strict=False))]
