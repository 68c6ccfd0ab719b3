"""Importers of Caffe layers: convolution, pooling, activations, normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.caffe.file import Layer, Message
from intaglio.ir import Array, Value
from intaglio.ops.registry import Op, named

Build = Callable[..., Any]  # (layer, operands...) -> Value or list of Values
LAYERS: dict[str, Build] = {}


def layer(*names: str) -> Callable[[Build], Build]:
    def define(build: Build) -> Build:
        LAYERS.update(dict.fromkeys(names, build))
        return build

    return define


def blob(of: Layer, k: int, *shape: int) -> Array:
    """Blob `k` of the layer's weights in the given shape; BadFile if it does not fit."""
    count = 1
    for extent in shape:
        count *= extent
    if k >= len(of.blobs) or of.blobs[k].size != count:
        there = of.blobs[k].shape if k < len(of.blobs) else "absent"
        raise BadFile(f"caffe: {of}: blob {k} is {there}; {shape} is needed")
    return of.blobs[k].reshape(shape)


def _pair(p: Message, name: str, short: str, default: int) -> tuple[int, int]:
    """A height and a width: `name` once or twice, or `short`_h and `short`_w."""
    both = p.wholes(name) or [default]
    pair = p.whole(f"{short}_h", both[0]), p.whole(f"{short}_w", both[-1])
    if min(pair) < 0 or max(pair) > 1 << 16:
        raise BadFile(f"caffe: {name} is {pair}, which is out of range")
    return pair


def _window(p: Message) -> dict[str, tuple[int, int]]:
    window = {
        "kernel": _pair(p, "kernel_size", "kernel", 0),
        "stride": _pair(p, "stride", "stride", 1),
        "pad": _pair(p, "pad", "pad", 0),
        "dilation": _pair(p, "dilation", "dilation", 1),
    }
    if min(window["stride"] + window["dilation"]) < 1:
        raise BadFile(
            f"caffe: stride {window['stride']}, dilation {window['dilation']}; both must be above 0"
        )
    return window


@layer("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution", "Deconvolution")
def convolution(of: Layer, x: Value) -> Value:
    p = of.settings.inner("convolution_param")
    out, w = p.whole("num_output", 0), _window(p)
    groups = p.whole("group", out if "epthwise" in of.type else 1)
    if out < 1 or groups < 1 or x.type.rank != 4 or x.shape[1] % groups or out % groups:
        raise BadFile(f"caffe: {of}: {out} outputs in {groups} groups do not fit {x.type}")
    turned = of.type == "Deconvolution"
    ins = x.shape[1]
    shape = (ins, out // groups) if turned else (out, ins // groups)
    weights = blob(of, 0, *shape, *w["kernel"])
    bias = blob(of, 1, out) if p.flag("bias_term", True) else None
    op = ops.conv_transpose if turned else ops.conv
    more: dict[str, Any] = {"output_pad": (0, 0)} if turned else {}
    return op(
        x,
        weights,
        bias,
        stride=w["stride"],
        pad=w["pad"] * 2,
        dilation=w["dilation"],
        groups=groups,
        **more,
    )


@layer("InnerProduct")
def inner_product(of: Layer, x: Value) -> Value:
    p = of.settings.inner("inner_product_param")
    out, axis = p.whole("num_output", 0), p.whole("axis", 1) % x.type.rank
    rows, deep = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    turned = p.flag("transpose", False)
    w = blob(of, 0, *((deep, out) if turned else (out, deep)))
    bias = blob(of, 1, out) if p.flag("bias_term", True) else None
    y = ops.gemm(ops.reshape(x, shape=(rows, deep)), w, bias, trans_b=not turned)
    return ops.reshape(y, shape=(*x.shape[:axis], out))


@layer("Pooling")
def pooling(of: Layer, x: Value) -> Value:
    p = of.settings.inner("pooling_param")
    kind = str(p.one("pool", "MAX")).upper()
    if kind not in ("MAX", "AVE", "0", "1") or x.type.rank != 4:
        raise Unsupported(
            f"caffe: {of}: pool {kind} of {x.type}; MAX and AVE of images are supported"
        )
    average = kind in ("AVE", "1")
    if p.flag("global_pooling", False):
        reduce = ops.reduce_mean if average else ops.reduce_max
        return reduce(x, axes=(2, 3), keepdims=True)
    w = _window(p)
    up = str(p.one("round_mode", "CEIL")).upper() in ("CEIL", "0") and p.flag("ceil_mode", True)
    after, shares = [], []
    for i in (0, 1):
        size, kernel, stride, pad = x.shape[2 + i], w["kernel"][i], w["stride"][i], w["pad"][i]
        reach = size + 2 * pad - kernel
        if reach < 0 or kernel < 1:
            raise BadFile(f"caffe: {of}: a kernel of {w['kernel']} does not fit {x.type}")
        out = (-(-reach // stride) if up else reach // stride) + 1
        if pad and (out - 1) * stride >= size + pad:
            out -= 1  # the last window would start outside
        after.append(max(0, (out - 1) * stride + kernel - size - pad))
        starts = np.arange(out) * stride - pad
        shares.append(np.minimum(starts + kernel, size + pad) - starts)
    pads = (*w["pad"], *after)
    window = {"kernel": w["kernel"], "stride": w["stride"], "dilation": (1, 1)}
    if not average:
        y: Value = ops.max_pool(x, pad=pads, **window)  # type: ignore[arg-type]
    else:
        y = ops.avg_pool(x, pad=pads, count_include_pad=True, **window)  # type: ignore[arg-type]
        counted = shares[0][:, None] * shares[1]  # positions beyond the padding do not count
        whole = w["kernel"][0] * w["kernel"][1]
        if (counted != whole).any():
            y = ops.mul(y, (whole / counted).astype(np.float32))
    return _cropped_windows(y, len(shares[0]), len(shares[1]))


def _cropped_windows(y: Value, height: int, width: int) -> Value:
    """Crop the extra windows of a longer padding."""
    if y.shape[2:] == (height, width):
        return y
    return ops.part(ops.part(y, 0, height, axis=2), 0, width, axis=3)


# ---- elementwise ---------------------------------------------------------------------------------
@layer("ReLU")
def relu(of: Layer, x: Value) -> Value:
    slope = of.settings.inner("relu_param").number("negative_slope", 0.0)
    return ops.leaky_relu(x, alpha=slope) if slope else ops.relu(x)


@layer("ReLU6")
def relu6(of: Layer, x: Value) -> Value:
    return ops.clip(x, lo=0.0, hi=6.0)


@layer("PReLU")
def prelu(of: Layer, x: Value) -> Value:
    shared = of.settings.inner("prelu_param").flag("channel_shared", False)
    slope = blob(of, 0, 1) if shared else blob(of, 0, x.shape[1])
    return ops.prelu(x, slope.reshape(-1, *[1] * (x.type.rank - 2)))


@layer("ELU")
def elu(of: Layer, x: Value) -> Value:
    return ops.elu(x, alpha=of.settings.inner("elu_param").number("alpha", 1.0))


LAYERS |= {
    "Dropout": lambda of, x: x,
    "Split": lambda of, x: [x] * len(of.tops),
    "Swish": lambda of, x: ops.swish(x, alpha=of.settings.inner("swish_param").number("beta", 1.0)),
}


def _same(op: Op, of: Layer, x: Value) -> Value:
    """A layer without settings that we have one to one."""
    result: Value = op(x)
    return result


LAYERS |= {name: partial(_same, op) for name, op in named("caffe").items()}


@layer("Power")
def power(of: Layer, x: Value) -> Value:
    p = of.settings.inner("power_param")
    scale, shift, power = p.number("scale", 1.0), p.number("shift", 0.0), p.number("power", 1.0)
    y = ops.add(ops.mul(x, np.float32(scale)), np.float32(shift))
    return y if power == 1.0 else ops.pow(y, np.float32(power))


@layer("Exp")
def exp(of: Layer, x: Value) -> Value:
    p = of.settings.inner("exp_param")
    base, scale, shift = p.number("base", -1.0), p.number("scale", 1.0), p.number("shift", 0.0)
    factor = 1.0 if base <= 0 else float(np.log(base))
    return ops.exp(ops.add(ops.mul(x, np.float32(factor * scale)), np.float32(factor * shift)))


@layer("Eltwise")
def eltwise(of: Layer, *xs: Value) -> Value:
    p = of.settings.inner("eltwise_param")
    kind = str(p.one("operation", "SUM")).upper()
    names = {
        "PROD": ops.mul,
        "0": ops.mul,
        "SUM": ops.add,
        "1": ops.add,
        "MAX": ops.maximum,
        "2": ops.maximum,
    }
    if kind not in names or len(xs) < 2:
        raise BadFile(
            f"caffe: {of}: operation {kind} of {len(xs)} operands; PROD, SUM or MAX of two or "
            "more is needed"
        )
    factors = [float(c) for c in p.words("coeff")]
    if factors and (len(factors) != len(xs) or names[kind] is not ops.add):
        raise BadFile(f"caffe: {of}: {len(factors)} factors for {len(xs)} operands")
    parts = [
        x if f == 1.0 else ops.mul(x, np.float32(f))
        for x, f in zip(xs, factors or [1.0] * len(xs), strict=True)
    ]
    y = parts[0]
    for x in parts[1:]:
        y = names[kind](y, x)
    return y


@layer("Axpy")
def axpy(of: Layer, a: Value, x: Value, y: Value) -> Value:
    """a * x + y with one factor per channel, [N, C] or [N, C, 1, 1]."""
    spread = ops.reshape(a, shape=(*a.shape[:2], *[1] * (x.type.rank - 2)))
    return ops.add(ops.mul(spread, x), y)


# ---- normalisation -------------------------------------------------------------------------------
@layer("BatchNorm")
def batch_norm(of: Layer, x: Value) -> Value:
    """With `use_global_stats: false` the batch's own mean and variance, in inference too."""
    p, c = of.settings.inner("batch_norm_param"), x.shape[1]
    if not p.flag("use_global_stats", True):
        return _normalized_by_batch(x, p.number("eps", 1e-5))
    mean, var, count = blob(of, 0, c), blob(of, 1, c), float(blob(of, 2, 1)[0])
    factor = np.float32(1 / count if count else 0.0)
    ones = np.ones(c, np.float32)
    return ops.batch_norm(
        x, ones, 0 * ones, mean * factor, var * factor, epsilon=p.number("eps", 1e-5)
    )


def _normalized_by_batch(x: Value, epsilon: float) -> Value:
    axes = tuple(i for i in range(x.type.rank) if i != 1)
    y = ops.sub(x, ops.reduce_mean(x, axes=axes, keepdims=True))
    variance = ops.reduce_mean(ops.mul(y, y), axes=axes, keepdims=True)
    return ops.div(y, ops.sqrt(ops.add(variance, np.float32(epsilon))))


@layer("Scale", "Bias")
def scale(of: Layer, x: Value, *others: Value) -> Value:
    p = of.settings.inner("scale_param" if of.type == "Scale" else "bias_param")
    axis = p.whole("axis", 1) % x.type.rank

    def spread(v: Any, shape: tuple[int, ...]) -> Any:
        full = (*shape, *[1] * (x.type.rank - axis - len(shape)))
        return ops.reshape(v, shape=full) if isinstance(v, Value) else v.reshape(full)

    op = ops.mul if of.type == "Scale" else ops.add
    if others:
        y = op(x, spread(others[0], others[0].shape))
        rest = of.blobs
    else:
        if not of.blobs:
            raise BadFile(f"caffe: {of} has no weights")
        y, rest = op(x, spread(of.blobs[0], of.blobs[0].shape)), of.blobs[1:]
    if of.type == "Scale" and p.flag("bias_term", False):
        if not rest:
            raise BadFile(f"caffe: {of} has no bias")
        y = ops.add(y, spread(rest[0], rest[0].shape))
    return y


@layer("LRN")
def lrn(of: Layer, x: Value) -> Value:
    p = of.settings.inner("lrn_param")
    if str(p.one("norm_region", "ACROSS_CHANNELS")) in ("WITHIN_CHANNEL", "1"):
        size = p.whole("local_size", 5)
        if not 1 <= size <= 1 << 8 or not size % 2 or x.type.rank != 4:
            raise BadFile(f"caffe: {of}: a window of {size} does not fit {x.type}")
        window: dict[str, Any] = {"kernel": (size, size), "stride": (1, 1), "dilation": (1, 1)}
        near = ops.avg_pool(ops.mul(x, x), pad=(size // 2,) * 4, count_include_pad=True, **window)
        sums = ops.add(ops.mul(near, np.float32(p.number("alpha", 1.0))), np.float32(1))
        return ops.mul(x, ops.pow(sums, np.float32(-p.number("beta", 0.75))))
    return ops.lrn(
        x,
        size=p.whole("local_size", 5),
        alpha=p.number("alpha", 1.0),
        beta=p.number("beta", 0.75),
        bias=p.number("k", 1.0),
    )


@layer("Normalize")
def normalize(of: Layer, x: Value) -> Value:
    """Normalize of SSD: divide by the L2 norm over channels, or over the whole image."""
    p = of.settings.inner("norm_param")
    axes = (1, 2, 3) if p.flag("across_spatial", True) else (1,)
    squares = ops.reduce_sum(ops.mul(x, x), axes=axes, keepdims=True)
    length = ops.sqrt(ops.add(squares, np.float32(p.number("eps", 1e-10))))
    shared = p.flag("channel_shared", True)
    factor = blob(of, 0, 1) if shared else blob(of, 0, x.shape[1])
    return ops.mul(ops.div(x, length), factor.reshape(1, -1, 1, 1))


@layer("Softmax")
def softmax(of: Layer, x: Value) -> Value:
    return ops.softmax(x, axis=of.settings.inner("softmax_param").whole("axis", 1))
