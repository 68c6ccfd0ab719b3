"""Importers of rare Caffe layers and of layers of well-known forks."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.caffe.file import Layer
from intaglio.frontends.caffe.layers import blob, layer
from intaglio.ir import Value


@layer("ArgMax")
def arg_max(of: Layer, x: Value) -> Value:
    """Indices of the largest values along an axis, as floats, and optionally the values."""
    p = of.settings.inner("argmax_param")
    count, both = p.whole("top_k", 1), p.flag("out_max_val", False)
    if "axis" not in p:  # over all elements of a batch entry: [N, 1, k] or [N, 2, k]
        flat = ops.reshape(x, shape=(x.shape[0], 1, x.type.size // x.shape[0]))
        values, at = ops.topk(flat, k=count, axis=2)
        places = ops.cast(at, dtype="f32")
        return ops.concat(places, values, axis=1) if both else places
    values, at = ops.topk(x, k=count, axis=p.whole("axis", 1) % x.type.rank)
    return values if both else ops.cast(at, dtype="f32")


@layer("MVN")
def mean_variance(of: Layer, x: Value) -> Value:
    """MVN: normalise each channel, or each image, to mean 0 and optionally variance 1."""
    p = of.settings.inner("mvn_param")
    axes = (1, 2, 3) if p.flag("across_channels", False) else (2, 3)
    if x.type.rank != 4:
        raise BadFile(f"caffe: {of} has an input {x.type}; an image is needed")
    y = ops.sub(x, ops.reduce_mean(x, axes=axes, keepdims=True))
    if not p.flag("normalize_variance", True):
        return y
    spread = ops.sqrt(ops.reduce_mean(ops.mul(y, y), axes=axes, keepdims=True))
    return ops.div(y, ops.add(spread, np.float32(p.number("eps", 1e-9))))


@layer("Threshold")
def threshold(of: Layer, x: Value) -> Value:
    limit = of.settings.inner("threshold_param").number("threshold", 0.0)
    return ops.cast(ops.greater(x, np.float32(limit)), dtype="f32")


@layer("Log")
def log(of: Layer, x: Value) -> Value:
    p = of.settings.inner("log_param")
    base, scale, shift = p.number("base", -1.0), p.number("scale", 1.0), p.number("shift", 0.0)
    y = ops.log(ops.add(ops.mul(x, np.float32(scale)), np.float32(shift)))
    return y if base <= 0 else ops.mul(y, np.float32(1 / np.log(base)))


@layer("Clip")
def clip(of: Layer, x: Value) -> Value:
    p = of.settings.inner("clip_param")
    return ops.clip(x, lo=p.number("min", 0.0), hi=p.number("max", 0.0))


@layer("Tile")
def tile(of: Layer, x: Value) -> Value:
    p = of.settings.inner("tile_param")
    count = p.whole("tiles", 1)
    if not 1 <= count <= 1 << 16:
        raise BadFile(f"caffe: {of}: {count} tiles")
    return ops.concat(*[x] * count, axis=p.whole("axis", 1) % x.type.rank)


@layer("BN")
def folded_norm(of: Layer, x: Value) -> Value:
    """BN of PSPNet and SegNet, with scale and shift: four blobs, or two if folded."""
    c = x.shape[1]
    scale, shift = blob(of, 0, c), blob(of, 1, c)
    if len(of.blobs) == 2:
        along = (1, c, *[1] * (x.type.rank - 2))
        return ops.add(ops.mul(x, scale.reshape(along)), shift.reshape(along))
    p = of.settings.inner("bn_param")
    return ops.batch_norm(
        x, scale, shift, blob(of, 2, c), blob(of, 3, c), epsilon=p.number("eps", 1e-5)
    )


@layer("ROIPooling")
def roi_pooling(of: Layer, x: Value, rois: Value) -> Value:
    p = of.settings.inner("roi_pooling_param")
    size = p.whole("pooled_h", 0), p.whole("pooled_w", 0)
    flat = ops.reshape(rois, shape=(rois.shape[0], rois.type.size // rois.shape[0]))
    return ops.max_roi_pool(x, flat, pooled_shape=size, spatial_scale=p.number("spatial_scale", 1))


@layer("Embed")
def embed(of: Layer, x: Value) -> Value:
    p = of.settings.inner("embed_param")
    words, out = p.whole("input_dim", 0), p.whole("num_output", 0)
    if words < 1 or out < 1:
        raise Unsupported(f"caffe: {of}: {words} words of {out} numbers are not supported")
    y = ops.gather(blob(of, 0, words, out), ops.cast(x, dtype="i64"), axis=0)
    return ops.add(y, blob(of, 1, out)) if p.flag("bias_term", True) else y
