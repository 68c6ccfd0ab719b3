"""ONNX's dynamically quantised products (ConvInteger, MatMulInteger) in int8 with f32 results.

The exporter writes `f32(sums + bias) * scale`, where scale and zero point of the image are computed
at run time. cpu.qconv computes all of it, to the same bits. Weights may be u8 with a zero point.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.ops import channels_first, channels_last, expand, reshape
from intaglio.ops.dynamic_matmul import MAX_DEPTH
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.qconv_choice import convolution
from intaglio.targets.cpu.weight_zeros import differences

x, w, z, wz, b, s = P["x w! z wz!? b s"]


def _per_channel(v: Value, channels: int, axis: int, rank: int) -> bool:
    """Whether `v` has one number, or one per channel along `axis` of a result of that rank."""
    shape = (1,) * (rank - v.type.rank) + v.shape
    return v.type.size == 1 or (
        len(shape) == rank and shape[axis] == channels == math.prod(v.shape)
    )


def _scales(s: Value, channels: int, axis: int, rank: int) -> tuple[Array, Value] | None:
    """A factor per channel known now, and one for all known at run time, whose product `s` is."""
    one = np.ones(channels, np.float32)
    if s.dtype != "f32":
        return None
    if s.type.size == 1:
        return one, s
    factors = s.producer.inputs if s.producer is not None and s.producer.op == "mul" else []
    known = [v for v in factors if v is not None and v.data is not None]
    others = [v for v in factors if v is not None and v.data is None]
    if len(known) != 1 or len(others) != 1 or others[0].type.size != 1:
        return None
    if not _per_channel(known[0], channels, axis, rank):
        return None
    assert known[0].data is not None
    return one * known[0].data.reshape(-1), others[0]


def _product(
    image: Value,
    weights: Array,
    z: Value,
    s: Value,
    b: Value | None,
    axis: int,
    rank: int,
    **window: Any,
) -> Value | No:
    """cpu.qconv of a channels-last image; bias and scales lie along `axis` of the neutral result,
    which has `rank` axes.
    """
    channels = len(weights)
    found = _scales(s, channels, axis, rank)
    if found is None:
        return no(f"{s.type} is not one f32 scale, or one per channel of constant weights")
    if b is not None and not (b.dtype == "i32" and _per_channel(b, channels, axis, rank)):
        return no(f"{b.type} is not one i32 bias per channel")
    scale, by = found
    images = image.shape[0]
    sums = weights.reshape(channels, -1).sum(1, dtype=np.int64)
    bias = constant(np.zeros(channels, np.int32))
    if b is not None:
        bias = expand(reshape(b, shape=(b.type.size,)), shape=(channels,))
    at_run_time = [expand(reshape(v, shape=(1,)), shape=(images,)) for v in (z, by)]
    return convolution(
        image,
        weights,
        bias,
        constant(scale),
        image_scale=(*at_run_time, constant(sums.astype(np.int32))),
        x_zero=0,
        dtype="f32",
        **window,
    )


def _why_not(x: Value, z: Value, w: Value, depth: int) -> str | None:
    if z.data is not None:
        return "the zero point of the image is constant"
    if x.type.dynamic or not x.type.size or z.type.size != 1 or z.dtype != x.dtype:
        return f"an image {x.type} with zero points {z.type}; a static size and one are needed"
    if x.dtype not in ("i8", "u8") or w.dtype not in ("i8", "u8") or depth > MAX_DEPTH // 2:
        return f"sums of {depth} products of {x.dtype} and {w.dtype} may exceed i32"
    return None


conv = P.conv_integer(x, w, z, wz) @ "conv"


@rule(P.mul(P.cast(P.one_of(P.add(conv, b), conv), dtype="f32"), s))
def scaled_conv_integer(
    x: Value, w: Value, z: Value, wz: Value | None, b: Value | None, s: Value, conv: Node
) -> Value | No:
    """Lower ONNX's dynamic quantisation (conv_integer, bias, cast, scale) to cpu.qconv."""
    assert w.data is not None
    if why := _why_not(x, z, w, math.prod(w.shape[1:])):
        return no(why)
    if x.type.rank > 5 or conv.attrs["groups"] == x.shape[1] > 1:
        return no("the kernel supports one to three spatial axes and no depthwise convolutions")
    if wz is not None and wz.type.size not in (1, w.shape[0]):
        return no(f"there are {wz.type.size} zero points for {w.shape[0]} channels")
    weights = differences(w.data, None if wz is None else wz.data)
    y = _product(channels_last(x), weights, z, s, b, 1, x.type.rank, **conv.attrs)
    return y if isinstance(y, No) else channels_first(y)


matmul = P.matmul_integer(x, w, z, wz) @ "matmul"


@rule(P.mul(P.cast(P.one_of(P.add(matmul, b), matmul), dtype="f32"), s))
def scaled_matmul_with_zeros(
    x: Value, w: Value, z: Value, wz: Value | None, b: Value | None, s: Value, matmul: Node
) -> Value | No:
    """Lower matmul_integer with zero points of the weights, cast and scale to cpu.qconv on an
    image of one line.
    """
    assert w.data is not None
    if w.type.rank != 2 or x.type.rank < 2:
        return no(f"{x.type} @ {w.type} is not one matrix product")
    if why := _why_not(x, z, w, w.shape[0]):
        return no(why)
    (depth, channels), shape = w.shape, matmul.outputs[0].shape
    if wz is not None and wz.type.size not in (1, channels):
        return no(f"there are {wz.type.size} zero points for {channels} columns")
    columns = np.ascontiguousarray(w.data.T)
    weights = differences(columns, None if wz is None else wz.data).reshape(channels, depth, 1)
    line = reshape(x, shape=(1, x.type.size // depth, depth))
    point = {"stride": (1,), "pad": (0, 0), "dilation": (1,), "groups": 1}
    y = _product(line, weights, z, s, b, len(shape) - 1, len(shape), **point)
    if isinstance(y, No):
        return y
    result: Value = reshape(y, shape=shape)
    return result


INTEGER_PRODUCTS: tuple[Rule, ...] = (scaled_conv_integer, scaled_matmul_with_zeros)
