"""What moves numbers: channels side by side, cut, shuffled, padded; pixels repeated."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import Maker, Refused, data
from intaglio.npu.ops import IMAGES, concat, conv, depthwise, resize, slice_
from intaglio.ops.quantized import BITS8
from intaglio.ops.resize import resize_tables
from intaglio.rewrite import P, Rule, rule

x, i = P["x i!"]


def _movable(v: Value, rank: int | None = None) -> None:
    if v.dtype not in IMAGES:
        raise Refused(f"it moves {v.dtype}, units work on integers: quantise what makes it")
    if rank is not None and v.type.rank != rank:
        raise Refused(f"{v.type} is no image")


def _concat(make: Maker, node: Node) -> Value:
    out = node.outputs[0]
    _movable(out)
    axis = node.attrs["axis"] % out.type.rank
    if axis != 1:
        raise Refused(f"it joins axis {axis} of {out.type}; units put channels (axis 1) together")
    return make.shaped(
        make(concat, *[make.image(v) for v in node.inputs if v is not None]), out.shape
    )


def _slice(make: Maker, x: Value, node: Node) -> Value:
    _movable(x)
    out = node.outputs[0]
    a = node.attrs
    each = zip(x.shape, a["start"], a["stop"], a["step"], strict=True)
    cuts = [range(*slice(*cut).indices(extent)) for extent, *cut in each]
    cut = [k for k, c in enumerate(cuts) if c != range(x.shape[k])]
    if cut != [1]:
        raise Refused(f"it cuts axes {cut} of rank {x.type.rank}; units cut channels (axis 1)")
    if cuts[1].step != 1:
        return _reordered(make, x, np.array(cuts[1]), out)
    return make.shaped(
        make(slice_, make.image(x), first=cuts[1].start, count=len(cuts[1])), out.shape
    )


def _resize(make: Maker, x: Value, node: Node) -> Value:
    a, out = node.attrs, node.outputs[0]
    _movable(x, 4)
    if a["mode"] != "nearest":
        raise Refused(f"it mixes pixels ({a['mode']}); units repeat them: use mode 'nearest'")
    tables = resize_tables([x.shape[k] for k in a["axes"]], **a)
    factor = [1, 1, 1, 1]
    for axis, table in zip(a["axes"], tables, strict=True):
        extent, grown = x.shape[axis], out.shape[axis]
        factor[axis] = grown // extent if extent and grown % extent == 0 else 0
        repeated = np.arange(grown) // max(factor[axis], 1)
        if not factor[axis] or table.outside.any() or (table.index[:, 0] != repeated).any():
            raise Refused(
                f"axis {axis} grows from {extent} to {grown}; units repeat every pixel "
                "equally often"
            )
    if factor[:2] != [1, 1]:
        raise Refused(f"it grows other axes than those of pixels, by {factor}")
    return make(resize, x, factor=tuple(factor[2:]))


def _one_to_one(make: Maker, x: Value, w: Array, stride: int = 1) -> Value:
    """A convolution whose weights are 0 and 1 moves numbers and changes none."""
    _movable(x)
    many, half = w.shape[0], x.dtype == "f16"
    low, high = (0, 0) if half else dtypes.limits(x.dtype)
    w = w.astype(np.float16) if half else w
    none = constant(np.zeros(many, np.float32 if half else np.int32))
    return make(
        conv,
        x,
        constant(w),
        constant(np.ones(many, np.float32)),
        none,
        stride=(stride, stride),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        x_zero=0,
        low=low,
        high=high,
        dtype=x.dtype,
    )


def reordered(make: Maker, x: Value, order: Array) -> Value:
    """Channels `order` of an image."""
    w = np.zeros((len(order), x.shape[1], 1, 1), np.int8)
    w[np.arange(len(order)), order] = 1
    return _one_to_one(make, x, w)


def _reordered(make: Maker, x: Value, order: Array, out: Value) -> Value:
    return make.shaped(reordered(make, make.image(x), order), out.shape)


def _shuffle(make: Maker, x: Value, node: Node) -> Value:
    order = np.arange(x.shape[1]).reshape(node.attrs["groups"], -1).T.reshape(-1)
    return _reordered(make, x, order, node.outputs[0])


def _gather(make: Maker, x: Value, i: Value, node: Node) -> Value:
    if node.attrs["axis"] % x.type.rank != 1 or i.type.rank != 1:
        raise Refused(f"it picks along axis {node.attrs['axis']} of {x.type}, not channels")
    return _reordered(make, x, data(i) % x.shape[1], node.outputs[0])


def _space_to_depth(make: Maker, x: Value, node: Node) -> Value:
    block = node.attrs["blocksize"]
    _movable(x, 4)
    channels = x.shape[1]
    # Which channel and which place in the block each output channel takes: ask the op itself.
    tags = np.arange(channels * block * block, dtype=np.int32).reshape(1, channels, block, block)
    from intaglio.ops import space_to_depth

    found = space_to_depth.body(tags, **node.attrs).reshape(-1)
    w = np.zeros((found.size, channels, block, block), np.int8)
    w.reshape(found.size, -1)[np.arange(found.size), found] = 1
    return _one_to_one(make, x, w, block)


def _pad(make: Maker, x: Value, node: Node) -> Value:
    a = node.attrs
    if x.dtype not in BITS8 or x.type.rank != 4:
        raise Refused(f"it pads {x.dtype} of rank {x.type.rank}; units pad images of bytes")
    if a["mode"] != "constant" or any((*a["before"][:2], *a["after"][:2])):
        raise Refused(
            f"it pads by mode '{a['mode']}' before {a['before']} and after {a['after']}; "
            "units put one number around images"
        )
    low, high = dtypes.limits(x.dtype)
    value, many = a["value"], x.shape[1]
    if value != int(value) or not low <= value <= high:
        raise Refused(f"it pads with {value}, which is no {x.dtype}")
    ones = constant(np.ones((many, 1, 1, 1), np.int8))
    scale, bias = constant(np.ones(many, np.float32)), constant(np.zeros(many, np.int32))
    return make(
        depthwise,
        x,
        ones,
        scale,
        bias,
        stride=(1, 1),
        dilation=(1, 1),
        pad=(*a["before"][2:], *a["after"][2:]),
        x_zero=int(value),
        y_zero=int(value),
        low=low,
        high=high,
        dtype=x.dtype,
    )


def moves(make: Maker) -> tuple[Rule, ...]:
    """The rules by which moves become those of NPU units."""

    @rule(P.any("concat"))
    def concat_on_npu(node: Node) -> Any:
        """concat of channels -> npu.concat"""
        return make.tried(_concat, node)

    @rule(P.slice(x))
    def slice_on_npu(node: Node, x: Value) -> Any:
        """slice of channels -> npu.slice"""
        return make.tried(_slice, x, node)

    @rule(P.resize(x))
    def resize_on_npu(node: Node, x: Value) -> Any:
        """resize to the nearest pixel by a whole factor -> npu.resize"""
        return make.tried(_resize, x, node)

    @rule(P.channel_shuffle(x))
    def shuffle_on_npu(node: Node, x: Value) -> Any:
        """channel_shuffle -> npu.conv with weights of 0 and 1"""
        return make.tried(_shuffle, x, node)

    @rule(P.gather(x, i))
    def pick_channels_on_npu(node: Node, x: Value, i: Value) -> Any:
        """gather of channels -> npu.conv with weights of 0 and 1"""
        return make.tried(_gather, x, i, node)

    @rule(P.space_to_depth(x))
    def space_to_depth_on_npu(node: Node, x: Value) -> Any:
        """space_to_depth -> npu.conv with weights of 0 and 1"""
        return make.tried(_space_to_depth, x, node)

    @rule(P.pad(x))
    def pad_on_npu(node: Node, x: Value) -> Any:
        """pad with a number -> npu.depthwise that does nothing else"""
        return make.tried(_pad, x, node)

    return (
        concat_on_npu,
        slice_on_npu,
        resize_on_npu,
        shuffle_on_npu,
        pick_channels_on_npu,
        space_to_depth_on_npu,
        pad_on_npu,
    )
