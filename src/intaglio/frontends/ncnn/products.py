"""Importers of ncnn's convolutions, dense layers and pools."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.ncnn.file import Layer, Weights
from intaglio.frontends.ncnn.layers import SAME_LOWER, SAME_UPPER, _image, fused, layer
from intaglio.ir import Value

Pair = tuple[int, int]


def _pair(of: Layer, across: int, down: int, default: int, least: int = 1) -> Pair:
    """(height, width) of two settings; the height is the width by default."""
    width = of.count(across, default, least)
    return of.count(down, width, least), width


def _window(of: Layer) -> tuple[Pair, Pair, Pair]:
    """Kernel, dilation and stride."""
    return _pair(of, 1, 11, 0), _pair(of, 2, 12, 1), _pair(of, 3, 13, 1)


def _pads(
    of: Layer, keys: tuple[int, int, int, int], x: Value, reach: Pair, stride: Pair
) -> tuple[int, ...]:
    """Top, left, bottom and right; `keys` are those of left, top, right and bottom."""
    left = of.whole(keys[0], 0)
    if left in (SAME_UPPER, SAME_LOWER):
        sides = zip(x.shape[2:], reach, stride, strict=True)
        whole = [max(0, -(-d // s) * s - s + r - d) for d, r, s in sides]
        less = [p // 2 for p in whole]
        more = [p - q for p, q in zip(whole, less, strict=True)]
        before, after = (less, more) if left == SAME_UPPER else (more, less)
        return (*before, *after)
    top = of.whole(keys[1], left)
    found = (top, left, of.whole(keys[3], top), of.whole(keys[2], left))
    if min(found) < 0:
        raise BadFile(f"ncnn: {of}: a padding is {min(found)}; it is at least 0")
    return found


def _weights(of: Layer, weights: Weights, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    if of.whole(6, size) != size:
        raise BadFile(f"ncnn: {of} has {of.whole(6, size)} weights; its input needs {size}")
    if of.whole(8, 0):
        raise Unsupported(f"ncnn: {of} is quantised; import the model before quantisation")
    return weights.typed(size, of).reshape(shape)


@layer("Convolution", "ConvolutionDepthWise")
def convolution(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x = _image(of, xs[0])
    kernel, dilation, stride = _window(of)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads = _pads(of, (4, 14, 15, 16), x, (reach[0], reach[1]), stride)
    groups = of.count(7, 1) if of.kind == "ConvolutionDepthWise" else 1
    outs, ins = of.count(0, 0), x.shape[1]
    if ins % groups or outs % groups:
        raise BadFile(f"ncnn: {of}: {groups} groups of {ins} and {outs} channels")
    w = _weights(of, weights, (outs, ins // groups, *kernel))
    b = weights.plain(outs, of) if of.whole(5, 0) else None
    if any(pads) and of.number(18, 0.0):
        value = of.number(18, 0.0)
        x = ops.pad(x, before=(0, 0, *pads[:2]), after=(0, 0, *pads[2:]), value=value)
        pads = (0, 0, 0, 0)
    y: Value = ops.conv(x, w, b, stride=stride, pad=pads, dilation=dilation, groups=groups)
    return fused(of, y)


@layer("Deconvolution", "DeconvolutionDepthWise")
def deconvolution(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x = _image(of, xs[0])
    kernel, dilation, stride = _window(of)
    pads = _pads(of, (4, 14, 15, 16), x, kernel, (1, 1))
    if of.whole(4, 0) < 0 or of.whole(20, 0) or of.whole(21, 0):
        raise Unsupported(f"ncnn: {of}: a given size of the result is not supported; give pads")
    groups = of.count(7, 1) if of.kind == "DeconvolutionDepthWise" else 1
    outs, ins = of.count(0, 0), x.shape[1]
    if ins % groups or outs % groups:
        raise BadFile(f"ncnn: {of}: {groups} groups of {ins} and {outs} channels")
    w = _weights(of, weights, (groups, outs // groups, ins // groups, *kernel))
    turned = np.ascontiguousarray(w.transpose(0, 2, 1, 3, 4))
    b = weights.plain(outs, of) if of.whole(5, 0) else None
    right = of.count(18, 0, least=0)
    y: Value = ops.conv_transpose(
        x,
        turned.reshape(ins, outs // groups, *kernel),
        b,
        stride=stride,
        pad=pads,
        output_pad=(of.count(19, right, least=0), right),
        dilation=dilation,
        groups=groups,
    )
    return fused(of, y)


@layer("InnerProduct")
def inner_product(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x, outs = xs[0], of.count(0, 0)
    size = of.count(2, 0)
    if size % outs:
        raise BadFile(f"ncnn: {of} has {size} weights for {outs} outputs")
    if of.whole(8, 0):
        raise Unsupported(f"ncnn: {of} is quantised; import the model before quantisation")
    ins = size // outs
    if not (x.type.rank == 3 and x.shape[-1] == ins):  # rows of a matrix stay rows
        x = ops.reshape(x, shape=(x.shape[0], -1))
    if x.shape[-1] != ins:
        raise BadFile(f"ncnn: {of} takes {ins} numbers, its input {xs[0].type} has others")
    w = weights.typed(size, of).reshape(outs, ins)
    y: Value = ops.matmul(x, np.ascontiguousarray(w.T))
    if of.whole(1, 0):
        y = ops.add(y, weights.plain(outs, of))
    return fused(of, y)


@layer("Pooling")
def pooling(of: Layer, xs: list[Value], weights: Weights) -> Value:
    x, average = _image(of, xs[0]), of.whole(0, 0) == 1
    if of.whole(4, 0):
        reduce = ops.reduce_mean if average else ops.reduce_max
        return reduce(x, axes=(2, 3), keepdims=False)
    if of.whole(7, 0):
        raise Unsupported(f"ncnn: {of}: adaptive pooling is not supported; give kernel and stride")
    kernel, stride = _pair(of, 1, 11, 0), _pair(of, 2, 12, 1)
    mode = of.whole(5, 0)
    if mode in (2, 3):
        same = SAME_UPPER if mode == 2 else SAME_LOWER
        of = Layer(of.kind, of.name, of.inputs, of.outputs, {**of.settings, 3: (float(same),)})
    pads = _pads(of, (3, 13, 14, 15), x, kernel, stride)
    counted, more = pads, [0, 0]
    if mode == 0:  # a window that reaches over the end counts
        for i, (d, k, s) in enumerate(zip(x.shape[2:], kernel, stride, strict=True)):
            tail = (d + pads[i] + pads[2 + i] - k) % s
            more[i] = s - tail if tail else 0
    pads = (*pads[:2], pads[2] + more[0], pads[3] + more[1])
    window = {"kernel": kernel, "stride": stride, "pad": pads, "dilation": (1, 1)}
    if not average:
        return ops.max_pool(x, **window)  # type: ignore[arg-type]
    if (of.whole(6, 0) or mode in (2, 3)) and any(counted):
        if any(more):
            raise Unsupported(
                f"ncnn: {of}: an average over padding and beyond is not supported; use pad_mode=1"
            )
        return ops.avg_pool(x, count_include_pad=True, **window)  # type: ignore[arg-type]
    return ops.avg_pool(x, **window)  # type: ignore[arg-type]
