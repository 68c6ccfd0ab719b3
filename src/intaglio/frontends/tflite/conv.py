"""Importers of convolution, pooling, FULLY_CONNECTED and blocks of pixels; images are NHWC."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.space_to_batch import batch_to_space, space_to_batch
from intaglio.frontends.tflite.node import TfliteNode, importer, real, stored
from intaglio.ir import Quant, Value

SAME, VALID = 0, 1


def _padding(
    n: TfliteNode,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """(begin.., end..); SAME puts an odd pixel at the end."""
    if min(*kernel, *stride, *dilation) < 1:
        n.unsupported(
            f"kernel {kernel}, stride {stride}, dilation {dilation}: all must be positive"
        )
    if n.option("Padding", SAME) == VALID:
        return (0,) * (2 * len(extents))
    total = []
    for d, k, s, step in zip(extents, kernel, stride, dilation, strict=True):
        count = -(-d // s)
        total.append(max((count - 1) * s + (k - 1) * step + 1 - d, 0))
    return (*(t // 2 for t in total), *(t - t // 2 for t in total))


def _window(n: TfliteNode, x: Value, kernel: tuple[int, ...], dilated: bool) -> dict[str, Any]:
    stride = (n.option("StrideH", 1), n.option("StrideW", 1))
    dilation = (1, 1)
    if dilated:
        dilation = (n.option("DilationHFactor", 1) or 1, n.option("DilationWFactor", 1) or 1)
    pad = _padding(n, x.shape[1:3], kernel, stride, dilation)
    return {"stride": stride, "pad": pad, "dilation": dilation}


def image(n: TfliteNode) -> Value:
    x = n.required(0)
    if x.type.rank != 4:
        n.unsupported(f"its input is {x.type}; images of rank 4 are supported")
    return x


@importer("CONV_2D")
def conv_2d(n: TfliteNode) -> Value:
    """Weights are [out, h, w, in of the group]."""
    x, w = image(n), n.required(1)
    if w.type.rank != 4 or not w.shape[3] or x.shape[3] % w.shape[3]:
        n.unsupported(f"weights {w.type} do not fit {x.type}")
    window = _window(n, x, w.shape[1:3], dilated=True)
    turned = n.weights(1, (0, 3, 1, 2))
    alone = w.shape[1:3] == (1, 1) and set(window["stride"]) == {
        1
    }  # a 1x1 convolution is a linear layer per pixel
    x = n.dynamic(x, 1, 3 if alone else 1)
    y = ops.conv(
        ops.channels_first(x), turned, n.bias(2), groups=x.shape[3] // w.shape[3], **window
    )
    return n.activated(ops.channels_last(y))


@importer("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(n: TfliteNode) -> Value:
    """Weights are [1, h, w, channels * multiplier]."""
    x, w = image(n), n.required(1)
    if w.type.rank != 4 or w.shape[0] != 1 or not x.shape[3] or w.shape[3] % x.shape[3]:
        n.unsupported(f"weights {w.type} do not fit {x.type}")
    window = _window(n, x, w.shape[1:3], dilated=True)
    turned = n.weights(1, (3, 0, 1, 2))
    y = ops.conv(ops.channels_first(x), turned, n.bias(2), groups=x.shape[3], **window)
    return n.activated(ops.channels_last(y))


@importer("TRANSPOSE_CONV")
def transpose_conv(n: TfliteNode) -> Value:
    """Operands are the shape of the result, weights [out, h, w, in], image, optional bias."""
    shape, w, x = n.ints(0), n.required(1), n.required(2)
    if len(shape) != 4 or w.type.rank != 4 or x.type.rank != 4:
        n.unsupported(f"a result of shape {shape} does not fit {x.type} and weights {w.type}")
    stride, kernel = (n.option("StrideH", 1), n.option("StrideW", 1)), w.shape[1:3]
    pad = _padding(n, shape[1:3], kernel, stride, (1, 1))
    full = [(d - 1) * s + k for d, s, k in zip(x.shape[1:3], stride, kernel, strict=True)]
    more = tuple(shape[1 + i] - (full[i] - pad[i] - pad[2 + i]) for i in range(2))
    if min(more) < 0:
        n.unsupported(f"a result of shape {shape} is smaller than the area of the windows")
    y = ops.conv_transpose(
        ops.channels_first(x),
        n.weights(1, (3, 0, 1, 2)),
        n.bias(3, 2, 1),
        stride=stride,
        pad=pad,
        output_pad=more,
        dilation=(1, 1),
        groups=1,
    )
    return n.activated(ops.channels_last(y))


@importer("Convolution2DTransposeBias", custom=True)
def transpose_conv_bias(n: TfliteNode) -> Value:
    """Convolution2DTransposeBias of MediaPipe: image, weights, bias; the shape is in the file."""
    x, w, shape = image(n), n.required(1), n.out().shape
    if len(n.op.custom_options) != 12 or w.type.rank != 4 or len(shape) != 4:
        n.unsupported(f"its options have {len(n.op.custom_options)} bytes; only 12 are known")
    _, across, down = struct.unpack("<3i", n.op.custom_options)
    stride, kernel = (down, across), w.shape[1:3]
    if min(stride) < 1:
        n.unsupported(f"its stride is {stride}; it must be above 0")
    over = [
        (d - 1) * s + k - out
        for d, s, k, out in zip(x.shape[1:3], stride, kernel, shape[1:3], strict=True)
    ]
    if min(over) < 0:
        n.unsupported(f"a result of shape {shape} is larger than the area of the windows")
    pad = (*(o // 2 for o in over), *(o - o // 2 for o in over))
    y = ops.conv_transpose(
        ops.channels_first(x),
        n.weights(1, (3, 0, 1, 2)),
        n.bias(2),
        stride=stride,
        pad=pad,
        output_pad=(0, 0),
        dilation=(1, 1),
        groups=1,
    )
    return ops.channels_last(y)


@importer("FULLY_CONNECTED")
def fully_connected(n: TfliteNode) -> Value:
    """Weights are [out, in]; the input becomes a matrix unless keep_num_dims is set."""
    x, w, b = n.required(0), n.required(1), n.bias(2)
    if w.type.rank != 2 or not w.shape[1] or x.type.size % w.shape[1]:
        n.unsupported(f"weights {w.type} do not fit {x.type}")
    if n.option("WeightsFormat", 0):
        n.unsupported("its weights are in a shuffled format; only the default format is supported")
    rows = x.type.size // w.shape[1]
    flat = n.dynamic(ops.reshape(x, shape=(rows, w.shape[1])), 1, 1)
    y = ops.gemm(flat, w, b, trans_b=True)
    if n.option("KeepNumDims", False):
        y = ops.reshape(y, shape=(*x.shape[:-1], w.shape[0]))
    return n.activated(y)


@importer("BATCH_MATMUL")
def batch_matmul(n: TfliteNode) -> Value:
    a, b = n.required(0), n.required(1)

    def swapped(v: Value) -> Value:
        r = v.type.rank
        return ops.transpose(v, perm=(*range(r - 2), r - 1, r - 2))

    a = swapped(a) if n.option("AdjX", False) else a
    b = swapped(b) if n.option("AdjY", False) else b
    result: Value = ops.matmul(a, b)
    return result


@importer("CONV_3D")
def conv_3d(n: TfliteNode) -> Value:
    """Weights are [depth, h, w, in of the group, out]."""
    x, w = n.required(0), n.required(1)
    if x.type.rank != 5 or w.type.rank != 5 or not w.shape[3] or x.shape[4] % w.shape[3]:
        n.unsupported(f"weights {w.type} do not fit {x.type}")
    stride, dilation = (
        (
            n.option(f"{what}D{end}", 1) or 1,
            n.option(f"{what}H{end}", 1) or 1,
            n.option(f"{what}W{end}", 1) or 1,
        )
        for what, end in (("Stride", ""), ("Dilation", "Factor"))
    )
    pad = _padding(n, x.shape[1:4], w.shape[:3], stride, dilation)
    y = ops.conv(
        ops.channels_first(x),
        n.weights(1, (4, 3, 0, 1, 2)),
        n.bias(2),
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=x.shape[4] // w.shape[3],
    )
    return n.activated(ops.channels_last(y))


@importer("L2_POOL_2D")
def l2_pool_2d(n: TfliteNode) -> Value:
    """Root of the mean of squares of every window."""
    x, kernel = image(n), (n.option("FilterHeight", 1), n.option("FilterWidth", 1))
    squares = ops.mul(x, x)
    y = ops.avg_pool(
        ops.channels_first(squares), kernel=kernel, **_window(n, x, kernel, dilated=False)
    )
    return n.activated(ops.channels_last(ops.sqrt(y)))


@importer("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(n: TfliteNode) -> Value:
    """Our lrn divides alpha by the size of the window."""
    radius = n.option("Radius", 0)
    size = 2 * radius + 1
    x = ops.channels_first(image(n))
    y = ops.lrn(
        x,
        size=size,
        alpha=float(n.option("Alpha", 0.0)) * size,
        beta=float(n.option("Beta", 0.0)),
        bias=float(n.option("Bias", 0.0)),
    )
    return ops.channels_last(y)


STEP_JUST_BELOW_1 = 1 - 2.0**-23  # makes a value halfway between two steps round up


@importer("AVERAGE_POOL_2D", stored=True)
def average_pool_2d(n: TfliteNode) -> Value:
    """Means of stored integers; ties, which are frequent, are rounded away from a stored 0."""
    x, kernel = image(n), (n.option("FilterHeight", 1), n.option("FilterWidth", 1))
    window = {"kernel": kernel, **_window(n, x, kernel, dilated=False)}
    given, t = n.tensor(0), n.out()
    if given is None or t.dtype not in ("i8", "u8") or given.quant != t.quant or t.quant is None:
        y = ops.avg_pool(ops.channels_first(n.real(0) or x), **window)
        return stored(n.activated(ops.channels_last(y)), t)
    y = ops.avg_pool(ops.channels_first(real(x, Quant((1.0,), (0,)))), **window)
    result = stored(ops.channels_last(y), replace(t, quant=Quant((STEP_JUST_BELOW_1,), (0,))))
    ends = {1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
    kind = n.option("FusedActivationFunction", 0)
    if not kind:
        return result
    if kind not in ends:
        n.unsupported(f"fused activation {kind} of the schema is not supported")
    low, high = dtypes.limits(t.dtype)
    scale, zero = np.float32(t.quant.scale[0]), t.quant.zero[0]
    lo, hi = (float(np.clip(np.rint(np.float32(e) / scale) + zero, low, high)) for e in ends[kind])
    bounded: Value = ops.clip(result, lo=lo, hi=hi)
    return bounded


@importer("MAX_POOL_2D")
def max_pool_2d(n: TfliteNode) -> Value:
    x, kernel = image(n), (n.option("FilterHeight", 1), n.option("FilterWidth", 1))
    y = ops.max_pool(ops.channels_first(x), kernel=kernel, **_window(n, x, kernel, dilated=False))
    return n.activated(ops.channels_last(y[0] if isinstance(y, list) else y))


@importer("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", stored=True)
def blocks(n: TfliteNode) -> Value:
    x, size = image(n), n.option("BlockSize", 1)
    move = ops.depth_to_space if n.op.op == "DEPTH_TO_SPACE" else ops.space_to_depth
    return ops.channels_last(move(ops.channels_first(x), blocksize=size))


@importer("L2_NORMALIZATION")
def l2_normalization(n: TfliteNode) -> Value:
    y: Value = n.activated(ops.lp_norm(n.required(0), axis=-1, p=2, epsilon=1e-6))
    return y


@importer("SPACE_TO_BATCH_ND")
def space_to_batch_nd(n: TfliteNode) -> Value:
    return space_to_batch(n.required(0), n.ints(1), n.ints(2))


@importer("BATCH_TO_SPACE_ND", stored=True)
def batch_to_space_nd(n: TfliteNode) -> Value:
    return batch_to_space(n.required(0), n.ints(1), n.ints(2))
