"""cpu.conv, cpu.depthwise and cpu.conv_transpose: channels last, packed weights, fused epilogue.

The numpy body of each op is that of the neutral op in another layout. It defines the result that
the kernels must compute.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op
from intaglio.targets.cpu.channels_last import (
    channels_first,
    channels_last,
    channels_last_type,
    neutral_image,
)
from intaglio.targets.cpu.epilogue import (
    HALVES,
    Floats,
    check_epilogue,
    finish,
    made_type,
    rounds_to_made,
)
from intaglio.targets.cpu.packing import Ints, packed_shape, unpack


def _check_packed(x: Value, w: Value, channels: int, kernel: Ints, groups: int) -> None:
    if w.type.rank != 4 or x.dtype != w.dtype or groups < 1:
        raise BadInput(f"packed {x.dtype} weights in groups are needed, not {w.type}, {groups}")
    depth = math.prod(kernel) * (x.shape[-1] // groups)
    want = (groups, *packed_shape(x.dtype, depth, channels // groups))
    if channels % groups or x.shape[-1] % groups or w.shape != want:
        raise BadInput(
            f"weights {w.type} are not packed for {x.shape[-1]} -> {channels} channels "
            f"in {groups} groups with kernel {kernel}"
        )


def _conv_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int,
    act: str,
    act_args: Floats,
    add_last: bool,
    made: str,
) -> Type:
    image = neutral_image(x)
    _check_packed(x, w, channels, kernel, groups)
    neutral = Value(Type(w.dtype, (channels, x.shape[-1] // groups, *kernel)))
    y = ops.conv.infer(
        image, neutral, None, stride=stride, pad=pad, dilation=dilation, groups=groups
    )
    return check_epilogue(made_type(channels_last_type(y), made), bias, residual, slope, act)


def _conv_macs(node: Node) -> int:
    deep: int = node.inputs[0].shape[-1] // node.attrs["groups"]  # type: ignore[union-attr]
    return node.outputs[0].type.size * deep * math.prod(map(int, node.attrs["kernel"]))


@op(_conv_type, name="cpu.conv", macs=_conv_macs)
@rounds_to_made
def conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    groups: int = 1,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    made: str = "same",
) -> Array:
    """Convolution of an image [n, .., c]; `w` is cpu.pack of [groups, window * c / groups, m]."""
    deep, per = x.shape[-1] // groups, channels // groups
    neutral = np.moveaxis(
        unpack(w, math.prod(kernel) * deep, per).reshape(groups, *kernel, deep, per),
        (-1, -2),
        (1, 2),
    )
    neutral = neutral.reshape(channels, deep, *kernel)
    y = ops.conv.body(
        channels_first(x), neutral, stride=stride, pad=pad, dilation=dilation, groups=groups
    )
    return finish(channels_last(y), bias, residual, slope, act, act_args, add_last)


def _depthwise_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    act: str,
    act_args: Floats,
    add_last: bool,
    made: str,
) -> Type:
    image = neutral_image(x)
    small = "f32" if x.dtype in HALVES else x.dtype  # depthwise weights are few and stay f32
    if w.type.rank != x.type.rank - 1 or w.dtype != small or w.shape[-1] != x.shape[-1]:
        raise BadInput(f"cpu.depthwise takes an image and [window, c], not {x.type} and {w.type}")
    neutral = Value(Type(x.dtype, (w.shape[-1], 1, *w.shape[:-1])))
    y = ops.conv.infer(
        image, neutral, None, stride=stride, pad=pad, dilation=dilation, groups=w.shape[-1]
    )
    return check_epilogue(made_type(channels_last_type(y), made), bias, residual, slope, act)


def _depthwise_macs(node: Node) -> int:
    return node.outputs[0].type.size * math.prod(node.inputs[1].shape[:-1])  # type: ignore[union-attr]


@op(_depthwise_type, name="cpu.depthwise", macs=_depthwise_macs)
@rounds_to_made
def depthwise(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    dilation: Ints,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    made: str = "same",
) -> Array:
    """Depthwise convolution; `w` is [window.., c]."""
    y = ops.conv.body(
        channels_first(x),
        np.moveaxis(w, -1, 0)[:, None],
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=w.shape[-1],
    )
    return finish(channels_last(y), bias, residual, slope, act, act_args, add_last)


def _conv_transpose_type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int,
    act: str,
    act_args: Floats,
    add_last: bool,
    made: str,
) -> Type:
    image = neutral_image(x)
    _check_packed(x, w, channels, kernel, groups)
    neutral = Value(Type(w.dtype, (x.shape[-1], channels // groups, *kernel)))
    y = ops.conv_transpose.infer(
        image,
        neutral,
        None,
        stride=stride,
        pad=pad,
        output_pad=output_pad,
        dilation=dilation,
        groups=groups,
    )
    return check_epilogue(made_type(channels_last_type(y), made), bias, residual, slope, act)


def _conv_transpose_macs(node: Node) -> int:
    window = math.prod(node.attrs["kernel"]) * node.attrs["channels"] // node.attrs["groups"]
    return node.inputs[0].type.size * int(window)  # type: ignore[union-attr]


@op(_conv_transpose_type, name="cpu.conv_transpose", macs=_conv_transpose_macs)
@rounds_to_made
def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    channels: int,
    kernel: Ints,
    stride: Ints,
    pad: Ints,
    output_pad: Ints,
    dilation: Ints,
    groups: int = 1,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
    made: str = "same",
) -> Array:
    """Transposed convolution of an image [n, .., c]; `w` is packed as for cpu.conv."""
    deep, per = x.shape[-1] // groups, channels // groups
    neutral = np.moveaxis(
        unpack(w, math.prod(kernel) * deep, per).reshape(groups, *kernel, deep, per),
        (-2, -1),
        (1, 2),
    )
    neutral = neutral.reshape(groups * deep, per, *kernel)
    y = ops.conv_transpose.body(
        channels_first(x),
        neutral,
        stride=stride,
        pad=pad,
        output_pad=output_pad,
        dilation=dilation,
        groups=groups,
    )
    return finish(channels_last(y), bias, residual, slope, act, act_args, add_last)
