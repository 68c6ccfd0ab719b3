"""Ops that compute every channel independently: one line each in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.ir import Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.prune.channel_flow import Axes, Flow, Kept, Known, Link, is_variable, name_of


@dataclass
class ChannelMap:
    """How a channelwise op treats the channels of its first operand."""

    axis: int  # channel axis of the result
    params: tuple[int, ...] = ()  # indices of operands with one entry per channel
    data: Callable[[Known], Known] | None = None  # constant channels of the result; None: none
    shape: bool = False  # the op has the result's shape as an attribute
    source: Known | None = None  # channels of the result that are constant whatever the operand is


class Channelwise(Flow):
    """Channel i of the result depends on channel i of the first operand only."""

    def __init__(self, node: Node, how: ChannelMap):
        super().__init__(node)
        self.how, self.axis, self.links = how, how.axis, [Link(0)]
        del self.stops[0]

    def known(self, operands: Sequence[Known | None]) -> Known:
        k, own = operands[0], self.how.source
        result = super().known(operands)
        if k is not None and self.how.data is not None and k.mask.any():
            result = self.how.data(k)
        if own is not None:
            data = np.where(own.mask, own.data, result.data)
            result = Known(result.mask | own.mask, data)
        return Known(result.mask, result.data.astype(self.dtype))

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        assert kept.result is not None
        at = np.flatnonzero(kept.result)
        for i in self.how.params:
            v = self.operands[i]
            if v is not None:
                inputs[i] = kept.cuts.cut(v, 0, at)
        attrs: dict[str, Any] = {}
        if self.how.shape:
            shape = list(self.node.outputs[0].shape)
            shape[self.how.axis] = len(at)
            attrs = {"shape": tuple(shape)}
        return self.remake(inputs, **attrs)


def _copied(k: Known) -> Known:
    return k


def _zeros(k: Known) -> Known:
    return Known(k.zero, np.zeros_like(k.data))


def _pool(node: Node, x: Value, axis: int) -> ChannelMap | None:
    if axis != 1 or len(node.outputs) > 1:
        return None
    pad = node.attrs["pad"]
    if node.op != "max_pool":
        return ChannelMap(1, data=_copied if node.op == "avg_pool" and not any(pad) else _zeros)
    narrow = all(p < k for p, k in zip(pad, node.attrs["kernel"] * 2, strict=True))
    touched = narrow and set(node.attrs["dilation"]) == {1}  # no window contains only padding
    return ChannelMap(1, data=_copied if touched or not any(pad) else None)


def _reduce(node: Node, x: Value, axis: int) -> ChannelMap | None:
    axes = node.attrs["axes"]
    if axis in axes:
        return None
    after = axis if node.attrs["keepdims"] else axis - sum(a < axis for a in axes)
    same = node.op in ("reduce_mean", "reduce_max", "reduce_min")
    return ChannelMap(after, data=None if "log" in node.op else _copied if same else _zeros)


def _batch_norm(node: Node, x: Value, axis: int) -> ChannelMap | None:
    if axis != 1 or any(is_variable(v) for v in node.inputs[1:]):
        return None

    def through(k: Known) -> Known:
        params = [v.data for v in node.inputs[1:] if v is not None]
        with np.errstate(all="ignore"):
            return Known(k.mask, REGISTRY[node.op].body(k.data[None], *params, **node.attrs)[0])

    return ChannelMap(1, (1, 2, 3, 4), through, source=_times_zero(*node.inputs[1:3]))


def _times_zero(scale: Value | None, bias: Value | None) -> Known | None:
    """The channels that a norm multiplies by 0: they are its bias."""
    if scale is None or bias is None or scale.data is None or bias.data is None:
        return None
    mask = scale.data.reshape(-1) == 0
    return Known(mask, bias.data.reshape(-1)) if mask.any() else None


def _instance_norm(node: Node, x: Value, axis: int) -> ChannelMap | None:
    scale, bias = node.inputs[1:]
    if axis != 1 or scale is None or bias is None or scale.data is None or bias.data is None:
        return None
    shift = bias.data  # zeros become exactly the bias; other constants leave rounding errors
    source = _times_zero(scale, bias)
    return ChannelMap(1, (1, 2), lambda k: Known(k.zero, shift), source=source)


def _other_axis(node: Node, x: Value, axis: int) -> ChannelMap | None:
    return ChannelMap(axis) if node.attrs["axis"] % x.type.rank != axis else None


def _norm(node: Node, x: Value, axis: int) -> ChannelMap | None:
    return ChannelMap(axis) if axis < node.attrs["axis"] % x.type.rank else None


def _expand(node: Node, x: Value, axis: int) -> ChannelMap | None:
    out = node.outputs[0]
    after = axis + out.type.rank - x.type.rank
    same = out.shape[after] == x.shape[axis]
    return ChannelMap(after, data=_copied, shape=True) if same else None


def _tile(node: Node, x: Value, axis: int) -> ChannelMap | None:
    return ChannelMap(axis, data=_copied) if node.attrs["repeats"][axis] == 1 else None


def _transpose(node: Node, x: Value, axis: int) -> ChannelMap | None:
    return ChannelMap(node.attrs["perm"].index(axis), data=_copied)


def _gather(node: Node, x: Value, axis: int) -> ChannelMap | None:
    """A gather along another axis."""
    indices, along = node.inputs[1], node.attrs["axis"] % x.type.rank
    if along == axis or indices is None:
        return None
    return ChannelMap(axis if axis < along else axis + indices.type.rank - 1, data=_copied)


def _pad(node: Node, x: Value, axis: int) -> ChannelMap | None:
    if node.attrs["before"][axis] or node.attrs["after"][axis]:
        return None
    if node.attrs["mode"] != "constant":
        return ChannelMap(axis, data=_copied)
    value = node.attrs["value"]
    return ChannelMap(axis, data=lambda k: Known(k.mask & (k.data == value), k.data))


def _interpolate(node: Node, x: Value, axis: int) -> ChannelMap | None:
    if node.attrs["axis"] % x.type.rank == axis:
        return None
    index = node.inputs[1]
    return ChannelMap(axis, data=_copied if index is not None and index.shape[1] == 1 else _zeros)


def _resize(node: Node, x: Value, axis: int) -> ChannelMap | None:
    if axis in [a % x.type.rank for a in node.attrs["axes"]]:
        return None
    outside = node.attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    return ChannelMap(axis, data=None if outside else _zeros)


def _scaled(node: Node, x: Value, axis: int) -> ChannelMap | None:
    scale = node.inputs[1]
    if node.attrs["block_size"] or any(is_variable(v) for v in node.inputs[1:]) or scale is None:
        return None
    along = scale.type.size > 1 and node.attrs["axis"] % x.type.rank == axis
    return ChannelMap(axis, (1, 2)[: len(node.inputs) - 1] if along else ())


TABLE: dict[str, Callable[[Node, Value, int], ChannelMap | None]] = {
    **dict.fromkeys(("max_pool", "avg_pool", "lp_pool"), _pool),
    **dict.fromkeys([op for op in REGISTRY if op.startswith("reduce_")], _reduce),
    **dict.fromkeys(
        ("softmax", "log_softmax", "hardmax", "lp_norm", "cumsum", "cumprod"), _other_axis
    ),
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    **dict.fromkeys(("quantize_linear", "dequantize_linear"), _scaled),
    "batch_norm": _batch_norm,
    "channel_shuffle": lambda node, x, axis: ChannelMap(axis, data=_copied) if axis != 1 else None,
    "instance_norm": _instance_norm,
    "expand": _expand,
    "gather": _gather,
    "pad": _pad,
    "tile": _tile,
    "transpose": _transpose,
    "interpolate": _interpolate,
    "resize": _resize,
}


def channelwise(node: Node, axes: Axes) -> Flow:
    """The flow of a channelwise op; a blocking flow if the op mixes channels."""
    x = node.inputs[0]
    if x is None or x not in axes:
        return Flow(node)
    how = TABLE[node.op](node, x, axes[x])
    if how is None:
        return Flow(node, f"{name_of(node)} mixes channels")
    return Channelwise(node, how)
