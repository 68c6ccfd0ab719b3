"""Convolution, transposed convolution and col2im. Tensors are N×C×spatial."""

from __future__ import annotations

import math

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.precision import widen
from intaglio.ops.registry import op
from intaglio.ops.windows import (
    Ints,
    add_windows,
    check_windows,
    cropped,
    padded,
    window_counts,
    windows,
)
from intaglio.symint import bound


def check_weights(x: Value, w: Value, groups: int, b: Value | None = None) -> None:
    if w.type.rank != x.type.rank:
        raise BadInput(
            f"the input is {x.type}, the weights are {w.type}; their ranks must be equal"
        )
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise BadInput(f"weights {w.type} in {groups} groups do not fit the channels of {x.type}")
    if b is not None and b.shape != w.shape[:1]:
        raise BadInput(
            f"the bias is {b.type}, one value per output channel ({w.shape[0]}) is needed"
        )


def conv_shape(x: Value, w: Value, stride: Ints, pad: Ints, dilation: Ints) -> Ints:
    check_windows(x, w.shape[2:], stride, pad, dilation)
    counts = window_counts(x.shape[2:], w.shape[2:], stride, pad, dilation)
    return (x.shape[0], w.shape[0], *counts)


def conv_macs(node: Node) -> int:
    w = node.inputs[1]
    return node.outputs[0].type.size * math.prod(w.shape[1:])  # type: ignore[union-attr]


def check_floats(*values: Value | None) -> None:
    kinds = {v.dtype for v in values if v is not None}
    if len(kinds) > 1 or not all(map(dtypes.is_float, kinds)):
        raise BadInput(f"operands must be floats of one type, they are {', '.join(sorted(kinds))}")


def _columns(x: Array, kernel: Ints, stride: Ints, pad: Ints, dilation: Ints, groups: int) -> Array:
    """im2col: batch, group, channel of the group × kernel position, window."""
    view = windows(padded(x, pad), kernel, stride, dilation)
    rows = x.shape[1] // groups * math.prod(kernel)
    return view.reshape(x.shape[0], groups, rows, math.prod(view.shape[2 + len(kernel) :]))


def convolve(x: Array, w: Array, stride: Ints, pad: Ints, dilation: Ints, groups: int) -> Array:
    kernel = w.shape[2:]
    counts = window_counts(x.shape[2:], kernel, stride, pad, dilation)
    columns = _columns(x, kernel, stride, pad, dilation, groups)
    out = w.reshape(groups, w.shape[0] // groups, columns.shape[2]) @ columns
    return out.reshape(x.shape[0], w.shape[0], *counts)


def add_bias(y: Array, b: Array | None) -> Array:
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))


# ---- conv ----------------------------------------------------------------------------------------
def _conv(
    x: Value, w: Value, b: Value | None, *, stride: Ints, pad: Ints, dilation: Ints, groups: int
) -> Type:
    check_floats(x, w, b)
    check_weights(x, w, groups, b)
    return Type(x.dtype, conv_shape(x, w, stride, pad, dilation))


@op(_conv, macs=conv_macs)
@widen
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """Weights are output channel × input channel of the group × kernel; pad is (begin…, end…)."""
    return add_bias(convolve(x, w, stride, pad, dilation, groups), b)


# ---- conv_transpose ------------------------------------------------------------------------------
def _transposed_extents(
    x: Ints, kernel: Ints, stride: Ints, pad: Ints, output_pad: Ints, dilation: Ints
) -> Ints:
    n = len(kernel)
    return tuple(
        stride[i] * (x[i] - 1)
        + output_pad[i]
        + (kernel[i] - 1) * dilation[i]
        + 1
        - pad[i]
        - pad[n + i]
        for i in range(n)
    )


def _conv_transpose(
    x: Value,
    w: Value,
    b: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int,
) -> Type:
    check_floats(x, w, b)
    check_windows(x, w.shape[2:], stride, pad, dilation)
    if w.type.rank != x.type.rank or groups < 1 or w.shape[0] != x.shape[1] or w.shape[0] % groups:
        raise BadInput(f"weights {w.type} in {groups} groups do not fit the channels of {x.type}")
    channels = w.shape[1] * groups
    if b is not None and b.shape != (channels,):
        raise BadInput(f"the bias is {b.type}, one value per output channel ({channels}) is needed")
    if len(output_pad) != len(stride) or any(p < 0 for p in output_pad):
        raise BadInput(f"output_pad {output_pad} must have {len(stride)} entries, none negative")
    extents = _transposed_extents(x.shape[2:], w.shape[2:], stride, pad, output_pad, dilation)
    if any(bound(e) < 1 for e in extents):
        raise BadInput(f"pad {pad} gives an empty output: {extents}")
    return Type(x.dtype, (x.shape[0], channels, *extents))


def _transpose_macs(node: Node) -> int:
    x, w = node.inputs[:2]
    return x.type.size * math.prod(w.shape[1:])  # type: ignore[union-attr]


@op(_conv_transpose, macs=_transpose_macs)
@widen
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int = 1,
) -> Array:
    """Weights are input channel × output channel of the group × kernel; pad crops the result."""
    n, kernel = x.shape[0], w.shape[2:]
    none = (0,) * len(pad)
    extents = _transposed_extents(x.shape[2:], kernel, stride, pad, output_pad, dilation)
    full = _transposed_extents(x.shape[2:], kernel, stride, none, none, dilation)
    by_group = w.reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:])).transpose(0, 2, 1)
    columns = by_group @ x.reshape(n, groups, w.shape[0] // groups, math.prod(x.shape[2:]))
    columns = columns.reshape(n, groups * w.shape[1], math.prod(kernel), *x.shape[2:])
    reach = tuple(max(f, p + e) for f, p, e in zip(full, pad, extents, strict=False))
    y = add_windows(columns, reach, kernel, stride, dilation)
    return add_bias(cropped(y, pad, extents), b)


# ---- col2im --------------------------------------------------------------------------------------
def _col2im(x: Value, *, image: Ints, block: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Type:
    if x.type.rank != 3 or x.shape[1] % max(math.prod(block), 1):
        raise BadInput(
            f"col2im of {x.type} with block {block}; batch × (channels · block) × windows is needed"
        )
    channels = x.shape[1] // math.prod(block)
    picture = Value(Type(x.dtype, (x.shape[0], channels, *image)))
    check_windows(picture, block, stride, pad, dilation)
    counts = window_counts(image, block, stride, pad, dilation)
    if math.prod(counts) != x.shape[2]:
        raise BadInput(
            f"image {image} has {math.prod(counts)} windows of {block}, not {x.shape[2]}"
        )
    return picture.type


@op(_col2im)
@widen
def col2im(x: Array, *, image: Ints, block: Ints, stride: Ints, pad: Ints, dilation: Ints) -> Array:
    """The adjoint of im2col: sum the columns of all windows into an image."""
    counts = window_counts(image, block, stride, pad, dilation)
    columns = x.reshape(x.shape[0], x.shape[1] // math.prod(block), math.prod(block), *counts)
    n = len(image)
    reach = tuple(d + pad[i] + pad[n + i] for i, d in enumerate(image))
    return cropped(add_windows(columns, reach, block, stride, dilation), pad, image)
