"""The ops that the KPU computes, with their meaning in numpy: the bits of the chip.

Batch norm is i64 [3, O]: multiplier, shift and addend. A curve is i64 [4, 16]: start, multiplier,
shift and bias of its segments.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.npu.chips.k210 import kpu
from intaglio.npu.chips.k210.arithmetic import POOLS, Terms
from intaglio.npu.chips.k210.fields import SEGMENTS, Curve, Norm
from intaglio.ops.registry import op


def _check(x: Value, w: Value, norm: Value, curve: Value, deep: int) -> None:
    if x.type.rank != 4 or x.dtype != "u8":
        raise BadInput(f"the map is {x.type}; u8 of rank 4 is needed")
    kernel = w.shape[2:]
    if w.dtype != "u8" or w.type.rank != 4 or w.shape[1] != deep or kernel not in ((1, 1), (3, 3)):
        raise BadInput(f"weights are {w.type}; u8 [O, {deep}, 1 or 3, 1 or 3] is needed")
    if norm.type != Type("i64", (3, w.shape[0])) or curve.type != Type("i64", (4, SEGMENTS)):
        raise BadInput(f"batch norm is {norm.type}, the curve {curve.type}")


def _conv(
    x: Value,
    w: Value,
    norm: Value,
    curve: Value,
    *,
    pad: int,
    arg_x: int,
    arg_w: int,
    arg_add: int,
    pool: int,
    depthwise: bool,
) -> Type:
    _check(x, w, norm, curve, 1 if depthwise else x.shape[1])
    if pool not in POOLS or not 0 <= pad <= 255 or (depthwise and w.shape[0] != x.shape[1]):
        raise BadInput(f"pooling mode {pool}, pad {pad}, weights {w.type} of {x.type}")
    stride = POOLS[pool].stride
    return Type("u8", (x.shape[0], w.shape[0], x.shape[2] // stride, x.shape[3] // stride))


def _macs(node: Node) -> int:
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    return math.prod(x.shape[2:]) * x.shape[0] * w.type.size


@op(_conv, name="k210.conv", macs=_macs)
def conv(
    x: Array,
    w: Array,
    norm: Array,
    curve: Array,
    *,
    pad: int,
    arg_x: int,
    arg_w: int,
    arg_add: int,
    pool: int = 0,
    depthwise: bool = False,
) -> Array:
    """A layer of the KPU: convolution, batch norm, curve, pooling (arithmetic.py)."""
    terms = Terms(arg_x, 0, arg_w, 0, arg_add)
    last = Norm(*norm), Curve(*curve), pad, terms, depthwise, pool
    return np.stack([kpu.compute(one, w, *last) for one in x])


def _linear(
    x: Value, w: Value, norm: Value, curve: Value, *, arg_x: int, arg_w: int, arg_add: int
) -> Type:
    _check(x, w, norm, curve, x.shape[1])
    if x.shape[2:] != (1, 1) or w.shape[2:] != (1, 1):
        raise BadInput(f"a linear layer reads {x.type} with weights {w.type}; both have one pixel")
    return Type("u8", (x.shape[0], w.shape[0], 1, 1))


@op(_linear, name="k210.linear", macs=_macs)
def linear(
    x: Array, w: Array, norm: Array, curve: Array, *, arg_x: int, arg_w: int, arg_add: int
) -> Array:
    """A linear layer: a convolution of one pixel, which the KPU computes in maps of 4x4."""
    made = conv.body(x, w, norm, curve, pad=0, arg_x=arg_x, arg_w=arg_w, arg_add=arg_add)
    return np.asarray(made)


def _global_mean(x: Value, w: Value, norm: Value, curve: Value, *, arg_w: int) -> Type:
    pixels = math.prod(x.shape[2:])
    if x.type.rank != 4 or x.dtype != "u8" or w.type != Type("u8", (1, pixels, 1, 1)):
        raise BadInput(f"a global mean of {x.type} has weights {w.type}; one per pixel is needed")
    return Type("u8", (*x.shape[:2], 1, 1))


@op(_global_mean, name="k210.global_mean")
def global_mean(x: Array, w: Array, norm: Array, curve: Array, *, arg_w: int) -> Array:
    """The mean of each channel: a 1x1 convolution whose channels are the pixels of `x`."""
    n, c = x.shape[:2]
    turned = x.reshape(n, c, -1, 1).transpose(0, 2, 1, 3)
    means = conv.body(turned, w, norm, curve, pad=0, arg_x=0, arg_w=arg_w, arg_add=0)
    return np.asarray(means).reshape(n, c, 1, 1)


def _upsample(x: Value) -> Type:
    n, c, h, w = x.shape
    return Type("u8", (n, c, 2 * h, 2 * w))


@op(_upsample, name="k210.upsample")
def upsample(x: Array) -> Array:
    """Every pixel twice in both directions: copies in main memory, then an upload."""
    return x.repeat(2, 2).repeat(2, 3)


def _border(x: Value, fill: Value, *, keep: tuple[int, int], size: tuple[int, int]) -> Type:
    n, c, h, w = x.shape
    if fill.dtype != "u8" or keep[0] > min(h, size[0]) or keep[1] > min(w, size[1]):
        raise BadInput(f"{keep} pixels of {x.type} in a map of {size} filled by {fill.type}")
    return Type("u8", (n, c, *size))


@op(_border, name="k210.border")
def border(x: Array, fill: Array, *, keep: tuple[int, int], size: tuple[int, int]) -> Array:
    """The top left pixels of a map in a larger one; `fill`, whose pixels are equal, is the rest."""
    n, c = x.shape[:2]
    (high, wide), pixel = keep, fill.reshape(-1)[0]
    made = np.full((n, c, *size), pixel)
    made[:, :, :high, :wide] = x[:, :, :high, :wide]
    return made


def _crop(x: Value, *, keep: tuple[int, int]) -> Type:
    n, c, h, w = x.shape
    if keep[0] > h or keep[1] > w:
        raise BadInput(f"{keep} pixels of {x.type}")
    return Type("u8", (n, c, *keep))


@op(_crop, name="k210.crop")
def crop(x: Array, *, keep: tuple[int, int]) -> Array:
    """The top left pixels of a map: copies in main memory."""
    return np.ascontiguousarray(x[:, :, : keep[0], : keep[1]])
