"""Convolution in groups with windows three wide, f32: packing, meaning and when it applies.

A vector of the kernel holds 16 output channels of one pixel. Groups of 4 or 8 channels lie side by
side in it, so no lane multiplies zeros.
"""

from __future__ import annotations

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
from intaglio.targets.cpu.epilogue import Floats, check_epilogue, finish
from intaglio.targets.cpu.packing import PANEL, Ints

WIDTH = 3  # of the windows that the kernel unrolls
STRIDES = (1, 2)  # along a line


def why_not_grouped(node: Node) -> str | None:
    """Why the kernel does not take a neutral convolution; None if it does."""
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None
    assert w is not None
    groups, channels, deep = node.attrs["groups"], w.shape[0], w.shape[1]
    if groups == 1 or x.dtype != "f32" or w.data is None:
        return "it has one group, another type than f32, or weights known only at run time"
    if x.type.rank != 4 or w.shape[-1] != WIDTH:
        return f"the window {w.shape[2:]} is not one of two axes and {WIDTH} wide"
    if set(node.attrs["dilation"]) != {1} or node.attrs["stride"][1] not in STRIDES:
        return f"dilation {node.attrs['dilation']}, stride {node.attrs['stride']}"
    per = channels // groups
    if per > PANEL and node.attrs["stride"][1] > 1:
        return f"groups of {per} channels with a stride share their input between panels"
    if channels % PANEL or (per % PANEL and (per != deep or PANEL % per)):
        return f"groups of {deep} -> {per} channels do not fill vectors of {PANEL}"
    return None


def pack_groups(w: Array) -> Array:
    """Weights [m, channel, line, 3] as [panel, line, channel, 3, 16]."""
    m, deep, lines, width = w.shape
    split = w.reshape(m // PANEL, PANEL, deep, lines, width)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 4, 1))


def _unpack(w: Array) -> Array:
    panels, lines, deep, width, tile = w.shape
    return w.transpose(0, 4, 2, 1, 3).reshape(panels * tile, deep, lines, width)


def _type(
    x: Value,
    w: Value,
    bias: Value | None,
    residual: Value | None,
    slope: Value | None,
    *,
    stride: Ints,
    pad: Ints,
    act: str,
    act_args: Floats,
    add_last: bool,
) -> Type:
    if x.type.rank != 4 or w.type.rank != 5 or {x.dtype, w.dtype} != {"f32"}:
        raise BadInput(
            f"cpu.grouped_conv takes f32 [n, h, w, c] and panels, not {x.type}, {w.type}"
        )
    panels, lines, deep, width, tile = w.shape
    if width != WIDTH or tile != PANEL or deep < 1 or x.shape[3] % deep or x.shape[3] < 1:
        raise BadInput(f"weights {w.type} are not packed for groups of {x.shape[3]} channels")
    groups, channels = x.shape[3] // deep, panels * tile
    if stride[1] not in STRIDES:
        raise BadInput(f"cpu.grouped_conv has stride 1 or 2 along a line, not {stride[1]}")
    per = channels // groups
    if channels % groups or (per % PANEL and (per != deep or PANEL % per)):
        raise BadInput(f"groups of {deep} -> {per} channels do not fill vectors of {PANEL}")
    image = neutral_image(x)
    weights = Value(Type("f32", (channels, deep, lines, width)))
    y = ops.conv.infer(image, weights, None, stride=stride, pad=pad, dilation=(1, 1), groups=groups)
    return check_epilogue(channels_last_type(y), bias, residual, slope, act)


def _macs(node: Node) -> int:
    _, lines, deep, width, _ = node.inputs[1].shape  # type: ignore[union-attr]
    return node.outputs[0].type.size * lines * deep * width


@op(_type, name="cpu.grouped_conv", macs=_macs)
def grouped_conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    stride: Ints,
    pad: Ints,
    act: str = "none",
    act_args: Floats = (),
    add_last: bool = False,
) -> Array:
    """Convolution of an image [n, h, w, c] in groups; `w` comes from `pack_groups`."""
    weights = _unpack(w)
    groups = x.shape[-1] // weights.shape[1]
    y = ops.conv.body(
        channels_first(x), weights, stride=stride, pad=pad, dilation=(1, 1), groups=groups
    )
    return finish(channels_last(y), bias, residual, slope, act, act_args, add_last)
