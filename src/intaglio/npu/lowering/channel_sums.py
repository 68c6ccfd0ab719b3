"""Ops that become convolutions before a float model is quantised for an NPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value, constant
from intaglio.rewrite import P, rule

x, factors, offsets = P["x factors! offsets!"]
POINT: dict[str, Any] = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}


@rule(P.reduce_sum(x))
def channel_sum_as_conv(node: Node, x: Value) -> Any:
    """Replace a sum over the channels of a feature map by a 1x1 convolution with weights of 1."""
    if x.type.rank != 4 or x.type.dynamic or x.dtype != "f32" or x.data is not None:
        return None
    if tuple(a % 4 for a in node.attrs["axes"]) != (1,):
        return None
    ones = constant(np.ones((1, x.shape[1], 1, 1), np.float32))
    y = ops.conv(x, ones, None, groups=1, **POINT)
    return ops.reshape(y, shape=node.outputs[0].shape)


@rule(P.add(P.mul(x, factors), offsets))
def normalisation_as_conv(node: Node, x: Value, factors: Value, offsets: Value) -> Any:
    """Replace factors and offsets of channels, as of a batch norm, by a 1x1 depthwise convolution.

    Batch norms behind a convolution are part of it; these stand behind sums and concats.
    """
    if x.type.rank != 4 or x.type.dynamic or x.dtype != "f32" or x.data is not None:
        return None
    channels = x.shape[1]
    parts = [_by_channel(v, channels) for v in (factors, offsets)]
    if any(p is None for p in parts) or node.outputs[0].shape != x.shape:
        return None
    w, b = parts
    assert w is not None
    w = constant(w.data.reshape(channels, 1, 1, 1))  # type: ignore[union-attr]
    return ops.conv(x, w, b, groups=channels, **POINT)


def _by_channel(v: Value, channels: int) -> Value | None:
    """A constant with one number for each channel, as weights or offsets; None if it has others."""
    shape = (1,) * (4 - v.type.rank) + v.shape
    if v.data is None or channels == 1 or shape != (1, channels, 1, 1):
        return None
    return constant(np.ascontiguousarray(v.data.reshape(channels)))


BEFORE_QUANTISATION = (channel_sum_as_conv, normalisation_as_conv)
