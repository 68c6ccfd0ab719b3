"""Importers of Caffe layers that reshape, slice, concatenate or resize; and PriorBox of SSD."""

from __future__ import annotations

import itertools
import math

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.caffe.file import Layer
from intaglio.frontends.caffe.layers import layer
from intaglio.ir import Value, constant


@layer("Concat")
def concat(of: Layer, *xs: Value) -> Value:
    p = of.settings.inner("concat_param")
    return ops.concat(*xs, axis=p.whole("axis", p.whole("concat_dim", 1)))


@layer("Slice")
def slice_(of: Layer, x: Value) -> list[Value]:
    p = of.settings.inner("slice_param")
    axis = p.whole("axis", p.whole("slice_dim", 1)) % x.type.rank
    points, count = p.wholes("slice_point"), len(of.tops)
    if not points:
        if not count or x.shape[axis] % count:
            raise BadFile(f"caffe: {of}: {x.shape[axis]} cannot be split into {count} equal parts")
        points = [x.shape[axis] // count * i for i in range(1, count)]
    edges = [0, *points, x.shape[axis]]
    if len(points) != count - 1 or any(a >= b for a, b in itertools.pairwise(edges)):
        raise BadFile(f"caffe: {of}: slice points {points} do not give {count} parts of {x.type}")
    return [ops.part(x, a, b, axis=axis) for a, b in itertools.pairwise(edges)]


@layer("Flatten")
def flatten(of: Layer, x: Value) -> Value:
    p = of.settings.inner("flatten_param")
    first, last = p.whole("axis", 1) % x.type.rank, p.whole("end_axis", -1) % x.type.rank
    middle = math.prod(x.shape[first : last + 1])
    return ops.reshape(x, shape=(*x.shape[:first], middle, *x.shape[last + 1 :]))


@layer("Reshape")
def reshape(of: Layer, x: Value) -> Value:
    p = of.settings.inner("reshape_param")
    dims, axis, count = p.inner("shape").wholes("dim"), p.whole("axis", 0), p.whole("num_axes", -1)
    first = axis if axis >= 0 else x.type.rank + 1 + axis
    last = x.type.rank if count < 0 else first + count
    middle = [
        x.shape[first + i] if d == 0 and first + i < x.type.rank else d for i, d in enumerate(dims)
    ]
    return ops.reshape(x, shape=(*x.shape[:first], *middle, *x.shape[last:]))


@layer("Permute")
def permute(of: Layer, x: Value) -> Value:
    order = of.settings.inner("permute_param").wholes("order")
    order += [i for i in range(x.type.rank) if i not in order]
    return ops.transpose(x, perm=tuple(order))


@layer("Crop")
def crop(of: Layer, x: Value, like: Value) -> Value:
    p = of.settings.inner("crop_param")
    axis, offsets = p.whole("axis", 2) % x.type.rank, p.wholes("offset") or [0]
    for i in range(axis, x.type.rank):
        start = offsets[min(i - axis, len(offsets) - 1)]
        x = ops.part(x, start, start + like.shape[i], axis=i)
    return x


@layer("ShuffleChannel")
def shuffle(of: Layer, x: Value) -> Value:
    return ops.channel_shuffle(
        x, groups=of.settings.inner("shuffle_channel_param").whole("group", 1)
    )


@layer("Reduction")
def reduction(of: Layer, x: Value) -> Value:
    p = of.settings.inner("reduction_param")
    kind, axis = str(p.one("operation", "SUM")).upper(), p.whole("axis", 0) % x.type.rank
    names = {"1": "SUM", "2": "ASUM", "3": "SUMSQ", "4": "MEAN"}
    kind = names.get(kind, kind)
    if kind not in names.values():
        raise Unsupported(
            f"caffe: {of}: operation {kind}; {', '.join(names.values())} are supported"
        )
    x = ops.abs(x) if kind == "ASUM" else ops.mul(x, x) if kind == "SUMSQ" else x
    reduce = ops.reduce_mean if kind == "MEAN" else ops.reduce_sum
    y = reduce(x, axes=tuple(range(axis, x.type.rank)), keepdims=False)
    return ops.mul(y, np.float32(p.number("coeff", 1.0)))


@layer("Upsample")
def upsample(of: Layer, x: Value) -> Value:
    factor = of.settings.inner("upsample_param").whole("scale", 2)
    return _resized(x, x.shape[2] * factor, x.shape[3] * factor, "nearest")


@layer("Interp")
def interp(of: Layer, x: Value) -> Value:
    p = of.settings.inner("interp_param")
    before, after = p.whole("pad_beg", 0), p.whole("pad_end", 0)
    if before > 0 or after > 0 or x.type.rank != 4 or min(x.shape[2:]) + before + after < 1:
        raise BadFile(
            f"caffe: {of}: pads {before} and {after} of {x.type}; only cropping (pads of 0 or "
            "less) is supported"
        )
    for axis in (2, 3) if before or after else ():
        x = ops.part(x, -before, x.shape[axis] + after, axis=axis)
    height, width = p.whole("height", 0), p.whole("width", 0)
    if not height:
        zoom, shrink = p.whole("zoom_factor", 1), p.whole("shrink_factor", 1)
        if min(zoom, shrink) < 1:
            raise BadFile(f"caffe: {of}: zoom_factor {zoom}, shrink_factor {shrink}")
        height, width = ((e - 1) // shrink + 1 for e in x.shape[2:])
        height, width = (e + (e - 1) * (zoom - 1) for e in (height, width))
    return _resized(x, height, width, "linear")


def _resized(x: Value, height: int, width: int, mode: str) -> Value:
    if x.type.rank != 4 or not (0 < height < 1 << 16 and 0 < width < 1 << 16):
        raise BadFile(f"caffe: {x.type} cannot become {height} x {width}")
    scales = (height / x.shape[2], width / x.shape[3])
    how = ("asymmetric", "floor") if mode == "nearest" else ("align_corners", "round_prefer_floor")
    return ops.resize(
        x,
        axes=(2, 3),
        shape=(height, width),
        scales=scales,
        mode=mode,
        coordinate_transformation_mode=how[0],
        nearest_mode=how[1],
    )


@layer("PriorBox")
def prior_box(of: Layer, x: Value, picture: Value) -> Value:
    """Prior boxes of SSD, a constant of the shapes."""
    p = of.settings.inner("prior_box_param")
    rows, columns = x.shape[2:]
    high, wide = picture.shape[2:]
    size = p.whole("img_size", 0)
    high, wide = p.whole("img_h", size) or high, p.whole("img_w", size) or wide
    step = p.number("step", 0.0)
    down, across = (
        p.number("step_h", step) or high / rows,
        p.number("step_w", step) or wide / columns,
    )
    boxes = np.array(_boxes(of), np.float64)
    y, x_ = np.mgrid[:rows, :columns].astype(np.float64) + p.number("offset", 0.5)
    centre = np.stack([x_ * across, y * down], -1)[:, :, None]
    low, top = ((centre + s * boxes / 2) / (wide, high) for s in (-1, 1))
    result = np.concatenate([low, top], -1).reshape(-1).astype(np.float32)
    if p.flag("clip", False):
        result = result.clip(0, 1)
    spread = [float(v) for v in p.words("variance")] or [0.1]
    spread = spread * 4 if len(spread) == 1 else spread
    return constant(
        np.stack([result, np.tile(np.array(spread, np.float32), len(result) // 4)])[None]
    )


def _boxes(of: Layer) -> list[tuple[float, float]]:
    """Widths and heights of the boxes at one position."""
    p = of.settings.inner("prior_box_param")
    ratios = [1.0]
    for r in map(float, p.words("aspect_ratio")):
        for one in (r, 1 / r) if p.flag("flip", True) and r else (r,):
            if all(abs(one - known) > 1e-6 for known in ratios):
                ratios.append(one)
    small, large, found = p.words("min_size"), p.words("max_size"), []
    if not small or (large and len(large) != len(small)):
        raise BadFile(
            f"caffe: {of}: {len(small)} min_size and {len(large)} max_size; their numbers must be "
            "equal"
        )
    for i, size in enumerate(map(float, small)):
        found.append((size, size))
        if large:
            found.append((math.sqrt(size * float(large[i])),) * 2)
        found += [(size * math.sqrt(r), size / math.sqrt(r)) for r in ratios[1:]]
    return found
