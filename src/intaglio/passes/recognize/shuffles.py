"""Recognise channel shuffles, depth_to_space, space_to_depth and nearest upsampling."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value, constant
from intaglio.ops.depth_to_space import depth_to_space_steps, space_to_depth_steps
from intaglio.ops.slice_ranges import ranges, whole_axis
from intaglio.rewrite import P, rule

x, i, W = P["x i! W!"]
Shape = tuple[int, ...]
TURNED = P.reshape(P.transpose(P.reshape(x) @ "split") @ "turn")


# ---- reshape, transpose, reshape -----------------------------------------------------------------
def _simplified(shape: Shape, perm: Shape) -> tuple[Shape, Shape]:
    """A transpose without unit axes and with adjacent axes merged."""
    kept = [a for a in perm if shape[a] != 1]
    runs: list[list[int]] = []
    for a in kept:
        between = range(runs[-1][-1] + 1, a) if runs and runs[-1][-1] < a else None
        if between is not None and all(shape[k] == 1 for k in between):
            runs[-1].append(a)
        else:
            runs.append([a])
    order = sorted(runs)
    extents = tuple(math.prod(shape[a] for a in run) for run in order)
    return extents, tuple(order.index(run) for run in runs)


@rule(TURNED)
def channel_shuffle(x: Value, split: Node, turn: Node, node: Node) -> Any:
    """channels split into groups, groups and channels swapped, flattened again"""
    if x.type.dynamic or x.type.rank < 3 or node.outputs[0].shape != x.shape:
        return None
    found = _simplified(split.outputs[0].shape, turn.attrs["perm"])
    n, c, rest = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    outer = (n,) * (n != 1)
    if len(found[0]) != len(outer) + 2 + (rest != 1):
        return None
    groups = found[0][len(outer)]
    if not groups or c % groups:
        return None
    shape = (n, groups, c // groups, rest)
    return (
        ops.channel_shuffle(x, groups=groups) if found == _simplified(shape, (0, 2, 1, 3)) else None
    )


@rule(TURNED)
def pixel_shuffle(x: Value, split: Node, turn: Node, node: Node) -> Any:
    """depth_to_space or space_to_depth as reshape, transpose, reshape"""
    out = node.outputs[0].shape
    if x.type.dynamic or x.type.rank != 4 or len(out) != 4 or 0 in x.shape or x.shape == out:
        return None
    found = (*_simplified(split.outputs[0].shape, turn.attrs["perm"]), out)
    deep = out[1] > x.shape[1]
    block = max(x.shape[2] // out[2], 1) if deep else out[2] // x.shape[2]
    if not block or x.shape[1] % (1 if deep else block**2):
        return None
    steps, op = (
        (space_to_depth_steps, ops.space_to_depth)
        if deep
        else (depth_to_space_steps, ops.depth_to_space)
    )
    for mode in ("DCR", "CRD"):
        shape, perm, whole = steps(x.shape, block, mode)
        if math.prod(shape) == x.type.size and (*_simplified(shape, perm), whole) == found:
            return op(x, blocksize=block, mode=mode)
    return None


# ---- slices of every second pixel ----------------------------------------------------------------
@rule(P.concat(*P["p q r s"]))
def space_to_depth_of_slices(p: Value, q: Value, r: Value, s: Value, node: Node) -> Any:
    """concat of four slices of every second row and column, as in YOLOv5's Focus layer"""
    cuts = [v.producer for v in (p, q, r, s)]
    x = cuts[0].inputs[0] if cuts[0] is not None and cuts[0].op == "slice" else None
    if x is None or x.type.rank != 4 or x.type.dynamic:
        return None
    axis = node.attrs["axis"] % 4
    if axis not in (1, 3):
        return None
    h, w = (2, 3) if axis == 1 else (1, 2)
    if x.shape[h] % 2 or x.shape[w] % 2:
        return None
    places = []
    for c in cuts:
        taken = ranges(c) if c is not None and c.op == "slice" and c.inputs[0] is x else None
        if taken is None:
            return None
        starts = taken[h].start, taken[w].start
        want = [whole_axis(n) for n in x.shape]
        want[h], want[w] = want[h][starts[0] :: 2], want[w][starts[1] :: 2]
        if taken != want:
            return None
        places.append(starts)
    if sorted(places) != list(product(range(2), range(2))):
        return None
    return _blocks_first(x, places) if axis == 1 else _blocks_last(x, places)


def _blocks_first(x: Value, places: list[tuple[int, int]]) -> Value:
    """space_to_depth of an NCHW image; `places` is the channel order of its blocks."""
    deep: Value = ops.space_to_depth(x, blocksize=2)
    order = [2 * h + w for h, w in places]
    if order != sorted(order):
        c = x.shape[1]
        at = np.concatenate([np.arange(k * c, k * c + c) for k in order])
        deep = ops.gather(deep, constant(at), axis=1)
    return deep


def _blocks_last(x: Value, places: list[tuple[int, int]]) -> Value | None:
    """space_to_depth of an NHWC image, if `places` runs by rows or by columns."""
    n, h, w, c = x.shape
    if places == [(0, 0), (0, 1), (1, 0), (1, 1)]:
        perm = (0, 1, 3, 2, 4, 5)
    elif places == [(0, 0), (1, 0), (0, 1), (1, 1)]:
        perm = (0, 1, 3, 4, 2, 5)
    else:
        return None
    split = ops.reshape(x, shape=(n, h // 2, 2, w // 2, 2, c))
    result: Value = ops.reshape(ops.transpose(split, perm=perm), shape=(n, h // 2, w // 2, 4 * c))
    return result


# ---- upsampling ----------------------------------------------------------------------------------
def _enlarged(x: Value, factors: list[int]) -> Value | None:
    """`x` with every pixel repeated; None if batch or channels would be."""
    if factors[:2] != [1, 1] or x.type.dynamic or not 3 <= x.type.rank <= 5:
        return None
    axes = tuple(a for a, f in enumerate(factors) if f != 1)
    if not axes:
        return None
    result: Value = ops.resize(
        x,
        axes=axes,
        shape=tuple(x.shape[a] * factors[a] for a in axes),
        scales=tuple(float(factors[a]) for a in axes),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return result


@rule(P.reshape(P.expand(P.reshape(x) @ "split") @ "wide"))
def upsample_of_expand(x: Value, split: Node, wide: Node, node: Node) -> Any:
    """pixels repeated by an expand of an added axis"""
    small, large = split.outputs[0].shape, wide.outputs[0].shape
    if len(small) != len(large):
        return None
    kept, factors = [], []
    for a, b in zip(small, large, strict=True):
        if a == b:
            kept.append(a)
            factors.append(1)
        elif not factors:
            return None
        else:
            factors[-1] *= b
    if tuple(kept) != x.shape:
        return None
    shape = node.outputs[0].shape
    grown = [d * f for d, f in zip(x.shape, factors, strict=True)]
    if [d for d in grown if d != 1] != [d for d in shape if d != 1]:
        return None
    result = _enlarged(x, factors)
    return result if result is None or result.shape == shape else ops.reshape(result, shape=shape)


@rule(P.gather(x, i))
def upsample_of_gather(x: Value, i: Value, node: Node) -> Any:
    """pixels repeated by a gather with repeated indices"""
    axis = node.attrs["axis"] % x.type.rank
    extent = x.shape[axis]
    times = i.type.size // extent if extent else 0
    if i.data is None or i.type.rank != 1 or times < 2:
        return None
    if not np.array_equal(i.data, np.repeat(np.arange(extent), times)):
        return None
    return _enlarged(x, [times if a == axis else 1 for a in range(x.type.rank)])


@rule(P.conv_transpose(x, W) @ "deconv")
def upsample_of_conv_transpose(x: Value, W: Value, deconv: Node) -> Any:
    """pixels repeated by a transposed convolution with weights of one"""
    a, kernel = deconv.attrs, W.shape[2:]
    if W.data is None or W.shape[1] != 1 or a["groups"] != x.shape[1] or not np.all(W.data == 1):
        return None
    if a["stride"] != kernel or any((*a["pad"], *a["output_pad"])) or set(a["dilation"]) != {1}:
        return None
    return _enlarged(x, [1, 1, *kernel])


@rule(P.resize(P.resize(x) @ "inner"))
def upsample_of_upsample(x: Value, inner: Node, node: Node) -> Any:
    """pixels repeated along one axis, then along another"""
    factors = [1] * x.type.rank
    for one in (inner, node):
        a, before = one.attrs, one.inputs[0]
        if (a["mode"], a["coordinate_transformation_mode"]) != ("nearest", "asymmetric"):
            return None
        if a["nearest_mode"] != "floor" or before is None:
            return None
        for axis, extent, scale in zip(a["axes"], a["shape"], a["scales"], strict=True):
            if scale != int(scale) or extent != before.shape[axis] * scale:
                return None
            factors[axis] *= int(scale)
    return _enlarged(x, factors)


SHUFFLES = [
    channel_shuffle,
    pixel_shuffle,
    space_to_depth_of_slices,
    upsample_of_expand,
    upsample_of_gather,
    upsample_of_conv_transpose,
    upsample_of_upsample,
]
