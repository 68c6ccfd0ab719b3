"""Ops that only move elements become NPU ops: concat, slice, resize, shuffle, gather, pad."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import Builder, Refused, data, is_npu
from intaglio.npu.ops import concat, conv, depth_to_space, depthwise, resize, slice_
from intaglio.ops import space_to_depth
from intaglio.ops.quantized import BITS8
from intaglio.ops.resize import resize_tables
from intaglio.rewrite import P, Rule, rule

x, i = P["x i!"]
SHORTEST_RUN = 8  # channels in a row that are sliced; fewer are selected by a convolution


def _require_features(make: Builder, v: Value, rank: int | None = None) -> None:
    if v.dtype not in make.moved:
        raise Refused(f"it moves {v.dtype}; units work on integers: quantise the op before it")
    if rank is not None and v.type.rank != rank:
        raise Refused(f"{v.type} is no feature map")


def _concat(make: Builder, node: Node) -> Value:
    out = node.outputs[0]
    _require_features(make, out)
    axis = node.attrs["axis"] % out.type.rank
    if axis != 1:
        raise Refused(f"it joins axis {axis} of {out.type}; units join channels (axis 1)")
    parts = [make.as_feature_map(v) for v in node.inputs if v is not None]
    return make.reshaped(make(concat, *parts), out.shape)


def slice_map(make: Builder, x: Value, node: Node) -> Value:
    _require_features(make, x)
    out = node.outputs[0]
    a = node.attrs
    each = zip(x.shape, a["start"], a["stop"], a["step"], strict=True)
    ranges = [range(*slice(*cut).indices(extent)) for extent, *cut in each]
    sliced = [k for k, c in enumerate(ranges) if c != range(x.shape[k])]
    if (order := _channels_of_axes(x, ranges)) is not None and x.producer is not None:
        image = x.producer.inputs[0]
        assert image is not None
        return make.reshaped(_runs_of_channels(make, image, order), out.shape)
    if x.type.rank == 4 and sliced and min(sliced) > 1 and {r.step for r in ranges} == {1}:
        with suppress(Refused):
            return _crop(make, x, *ranges[2:])
    if sliced != [1]:
        raise Refused(
            f"it slices axes {sliced} of rank {x.type.rank}; units slice channels (axis 1)"
        )
    channels = ranges[1]
    if channels.step != 1:
        return _select(make, x, np.array(channels), out)
    part = make(slice_, make.as_feature_map(x), first=channels.start, count=len(channels))
    return make.reshaped(part, out.shape)


def _channels_of_axes(x: Value, ranges: list[range]) -> Array | None:
    """The channels of a feature map that a slice takes from axes into which they were split.

    Attention splits the channels of a map into heads, and each head into query, key and value.
    None: the slice takes something else, or no unit makes the map.
    """
    split = x.producer
    image = split.inputs[0] if split is not None and split.op == "reshape" else None
    if image is None or image.type.rank != 4 or image.producer is None or image.type.dynamic:
        return None
    if not (is_npu(image.producer) or image.producer.op.startswith("qlinear_")):
        return None
    extents = np.cumprod(x.shape[1:])
    found = np.flatnonzero(extents == image.shape[1])
    last = int(found[0]) + 2 if len(found) else 0  # the first axis of pixels
    whole = all(r == range(d) for r, d in zip(ranges[last:], x.shape[last:], strict=True))
    if (
        not len(found)
        or image.shape[0] != x.shape[0]
        or ranges[0] != range(x.shape[0])
        or not whole
    ):
        return None
    numbers = np.arange(image.shape[1]).reshape(x.shape[1:last])
    return numbers[np.ix_(*ranges[1:last])].reshape(-1)


def _runs_of_channels(make: Builder, x: Value, order: Array) -> Value:
    """Channels `order` of a feature map: slices of it, if they are some long runs."""
    starts = np.flatnonzero(np.diff(order, prepend=order[0] - 2) != 1)
    if len(starts) * SHORTEST_RUN > len(order):
        return select_channels(make, x, order)
    sizes = np.diff(starts, append=len(order))
    parts = [
        make(slice_, x, first=int(order[at]), count=int(size))
        for at, size in zip(starts, sizes, strict=True)
    ]
    return parts[0] if len(parts) == 1 else make(concat, *parts)


def _crop(make: Builder, x: Value, rows: range, columns: range) -> Value:
    """Some rows and columns, of a result of depth_to_space or of any feature map."""
    node = x.producer
    first, shape = (rows.start, columns.start), (len(rows), len(columns))
    if node is None or node.op != "npu.depth_to_space":
        one = {"blocksize": 1, "channels": x.shape[1], "first": first, "shape": shape}
        return make(depth_to_space, x, **one)
    before = node.attrs["first"]
    first = before[0] + first[0], before[1] + first[1]
    return make(depth_to_space, node.inputs[0], **{**node.attrs, "first": first, "shape": shape})


def depth_to_space_map(make: Builder, x: Value, node: Node) -> Value:
    block, out = node.attrs["blocksize"], node.outputs[0]
    _require_features(make, x, 4)
    channels = out.shape[1]
    if node.attrs["mode"] == "CRD":  # the phases of a channel are adjacent: put them apart
        order = np.arange(x.shape[1]).reshape(channels, -1).T.reshape(-1)
        x = select_channels(make, x, order)
    whole = {"first": (0, 0), "shape": out.shape[2:]}
    return make(depth_to_space, x, blocksize=block, channels=channels, **whole)


def resize_map(make: Builder, x: Value, node: Node) -> Value:
    a, out = node.attrs, node.outputs[0]
    _require_features(make, x, 4)
    if a["mode"] != "nearest":
        raise Refused(f"its mode is '{a['mode']}'; units only repeat pixels: use mode 'nearest'")
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
        raise Refused(f"it resizes by {factor}; units resize height and width only")
    return make(resize, x, factor=tuple(factor[2:]))


def _permutation_conv(make: Builder, x: Value, w: Array, stride: int = 1) -> Value:
    """A convolution whose weights are 0 and 1: it moves numbers and changes none."""
    _require_features(make, x)
    many, floats = w.shape[0], dtypes.is_float(x.dtype)
    low, high = (0, 0) if floats else dtypes.limits(x.dtype)
    w = w.astype(dtypes.numpy_of(x.dtype)) if floats else w
    bias = constant(np.zeros(many, np.float32 if floats else np.int32))
    return make(
        conv,
        x,
        constant(w),
        constant(np.ones(many, np.float32)),
        bias,
        stride=(stride, stride),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        x_zero=0,
        low=low,
        high=high,
        dtype=x.dtype,
    )


def select_channels(make: Builder, x: Value, order: Array) -> Value:
    """Channels `order` of a feature map."""
    w = np.zeros((len(order), x.shape[1], 1, 1), np.int8)
    w[np.arange(len(order)), order] = 1
    return _permutation_conv(make, x, w)


def _select(make: Builder, x: Value, order: Array, out: Value) -> Value:
    return make.reshaped(select_channels(make, make.as_feature_map(x), order), out.shape)


def shuffle_map(make: Builder, x: Value, node: Node) -> Value:
    order = np.arange(x.shape[1]).reshape(node.attrs["groups"], -1).T.reshape(-1)
    return _select(make, x, order, node.outputs[0])


def gather_map(make: Builder, x: Value, i: Value, node: Node) -> Value:
    if node.attrs["axis"] % x.type.rank != 1 or i.type.rank != 1:
        raise Refused(
            f"it gathers along axis {node.attrs['axis']} of {x.type}; "
            "units gather channels (axis 1)"
        )
    return _select(make, x, data(i) % x.shape[1], node.outputs[0])


def space_to_depth_map(make: Builder, x: Value, node: Node) -> Value:
    block = node.attrs["blocksize"]
    _require_features(make, x, 4)
    channels = x.shape[1]
    # The op itself, run on element numbers, says which element each output channel takes.
    tags = np.arange(channels * block * block, dtype=np.int32).reshape(1, channels, block, block)
    found = space_to_depth.body(tags, **node.attrs).reshape(-1)
    w = np.zeros((found.size, channels, block, block), np.int8)
    w.reshape(found.size, -1)[np.arange(found.size), found] = 1
    return _permutation_conv(make, x, w, block)


def _pad(make: Builder, x: Value, node: Node) -> Value:
    a = node.attrs
    if x.dtype not in BITS8 or x.type.rank != 4:
        raise Refused(
            f"it pads {x.dtype} of rank {x.type.rank}; units pad 8-bit feature maps of rank 4"
        )
    if a["mode"] != "constant" or any((*a["before"][:2], *a["after"][:2])):
        raise Refused(
            f"it pads by mode '{a['mode']}' before {a['before']} and after {a['after']}; "
            "units pad height and width with one number"
        )
    low, high = dtypes.limits(x.dtype)
    value, many = a["value"], x.shape[1]
    if value != int(value) or not low <= value <= high:
        raise Refused(f"it pads with {value}, which {x.dtype} cannot hold")
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


def data_movement_rules(make: Builder) -> tuple[Rule, ...]:
    """The rules by which ops that only move elements become NPU ops."""

    @rule(P.any("concat"))
    def concat_on_npu(node: Node) -> Any:
        """Lower concat of channels to npu.concat."""
        return make.attempt(_concat, node)

    @rule(P.slice(x))
    def slice_on_npu(node: Node, x: Value) -> Any:
        """Lower slice of channels to npu.slice."""
        return make.attempt(slice_map, x, node)

    @rule(P.resize(x))
    def resize_on_npu(node: Node, x: Value) -> Any:
        """Lower nearest-neighbour resize by a whole factor to npu.resize."""
        return make.attempt(resize_map, x, node)

    @rule(P.depth_to_space(x))
    def depth_to_space_on_npu(node: Node, x: Value) -> Any:
        """Lower depth_to_space to npu.depth_to_space."""
        return make.attempt(depth_to_space_map, x, node)

    @rule(P.channel_shuffle(x))
    def shuffle_on_npu(node: Node, x: Value) -> Any:
        """Lower channel_shuffle to npu.conv with weights of 0 and 1."""
        return make.attempt(shuffle_map, x, node)

    @rule(P.gather(x, i))
    def gather_channels_on_npu(node: Node, x: Value, i: Value) -> Any:
        """Lower gather of channels to npu.conv with weights of 0 and 1."""
        return make.attempt(gather_map, x, i, node)

    @rule(P.space_to_depth(x))
    def space_to_depth_on_npu(node: Node, x: Value) -> Any:
        """Lower space_to_depth to npu.conv with weights of 0 and 1."""
        return make.attempt(space_to_depth_map, x, node)

    @rule(P.pad(x))
    def pad_on_npu(node: Node, x: Value) -> Any:
        """Lower pad with one number to npu.depthwise with weights of 1."""
        return make.attempt(_pad, x, node)

    return (
        concat_on_npu,
        slice_on_npu,
        resize_on_npu,
        depth_to_space_on_npu,
        shuffle_on_npu,
        gather_channels_on_npu,
        space_to_depth_on_npu,
        pad_on_npu,
    )
