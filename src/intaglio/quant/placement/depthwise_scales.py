"""Per-channel scales for the inputs of depthwise convolutions, at no cost at run time.

A depthwise convolution has a weight scale for each channel, and so has the convolution that makes
its input. The channels of the tensor between them may therefore have scales of their own: their
ratios are folded into the weight scales on either side, and all integers stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.quant.placement.place import CLAMPS, DepthwiseInput, Placement
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.weights.bias_correction import set_bias

# One step of the tensor's 8 bits. Channels that were observed below it are treated alike: how far
# below it they are tells nothing about other samples.
LEAST_SHARE = 1 / 255
BYTES = ("i8", "u8")

Stored = tuple[Array, TensorScheme]


@dataclass(frozen=True)
class ChannelShares:
    """The range of each channel as a share of the tensor's, and the clamp's limit."""

    each: Array
    low: float
    high: float
    bound: float


def find(graph: Graph, placement: Placement) -> dict[Value, DepthwiseInput]:
    """Quantised tensors whose channels can have scales of their own."""
    results = {}
    for node in placement.nodes:
        if node.op != "conv" or placement.nodes[node] != "int8":
            continue
        v, bound, values = node.outputs[0], float("inf"), [node.outputs[0]]
        while not placement.quantized(v) and len(v.uses) == 1 and v not in graph.outputs:
            (reader,) = v.uses
            if reader.op not in CLAMPS or reader.attrs.get("lo", 0.0) != 0:
                break
            bound = min(bound, reader.attrs.get("hi", bound))
            v = reader.outputs[0]
            values.append(v)
        inside = placement.quantized(v) and v not in graph.outputs and v.uses
        if inside and all(_is_depthwise(n, v, placement) for n in v.uses):
            results[v] = DepthwiseInput(node, tuple(values), tuple(v.uses), bound)
    return results


def _is_depthwise(node: Node, v: Value, placement: Placement) -> bool:
    """Is it a depthwise int8 convolution of `v`?"""
    if node.op != "conv" or placement.nodes.get(node) != "int8" or v in node.inputs[1:]:
        return False
    return node.inputs[1].shape[1] == 1 and node.attrs["groups"] == v.shape[1]  # type: ignore[union-attr]


def shares(placement: Placement, seen: Mapping[Value, Observation]) -> dict[Value, ChannelShares]:
    """The channel shares of every tensor in which some channel needs less than the whole range."""
    results = {}
    for v, between in placement.depthwise_inputs.items():
        known = seen[v].channels if v in seen else None
        if known is None or not known.count:
            continue
        low, high = min(seen[v].low, 0.0), max(seen[v].high, 0.0)
        share = np.zeros(len(known.low))
        for ends, end in ((known.low, low), (known.high, high)):
            if end:
                share = np.maximum(share, ends.astype(np.float64) / end)
        # halfway, in bits, between one range for all channels and each channel's own: the narrower
        # a channel was observed, the more headroom it gets
        each = np.sqrt(np.maximum(share, LEAST_SHARE))
        each = np.maximum(each, _least_useful(between, high - low, seen))
        each = np.where(share > 0, np.minimum(each, 1.0), 1.0)  # a channel of zeros: unknown
        if each.min() < 1:
            results[v] = ChannelShares(each, low, high, between.bound)
    return results


def _least_useful(
    between: DepthwiseInput, width: float, seen: Mapping[Value, Observation]
) -> Array:
    """Shares below which a finer step is useless: the depthwise result is rounded more coarsely."""
    most = np.inf
    for n in between.readers:
        result = n.outputs[0]
        while result not in seen and len(result.uses) == 1 and next(iter(result.uses)).op in CLAMPS:
            result = next(iter(result.uses)).outputs[0]
        step = max(seen[result].high, 0.0) - min(seen[result].low, 0.0) if result in seen else 0.0
        w = n.inputs[1].data.astype(np.float64)  # type: ignore[union-attr]
        size = np.sqrt(np.square(w.reshape(n.attrs["groups"], -1, w[0].size)).sum(-1)).max(-1)
        most = np.minimum(most, step / (width * np.maximum(size, np.finfo(np.float32).tiny)))
    return np.asarray(most)


def by_channel(whole: TensorScheme, share: ChannelShares) -> TensorScheme:
    """The scheme with a scale for each channel, if the type and the clamp allow it."""
    if whole.dtype not in BYTES or whole.hi > share.bound:  # the clamp would clip channels
        return whole
    # if the range clips the large channels, the small ones are not clipped with it
    pairs = ((share.low, min(whole.lo, 0.0)), (share.high, max(whole.hi, 0.0)))
    cut = max(seen / kept for seen, kept in pairs if kept)
    each = np.minimum(share.each * cut, 1.0)
    scales = (np.float32(whole.scale[0]) * each).astype(np.float32)
    return replace(whole, scale=tuple(map(float, scales)), zero=whole.zero * len(scales), axis=1)


def folded(
    v: Value, between: DepthwiseInput, scheme: TensorScheme, weights: dict[Node, Stored]
) -> TensorScheme:
    """The scheme with one scale; the ratios go, in place, into the weight scales around it.

    Tensors whose values change are renamed to NAME_by_channel. A scheme that cannot be folded is
    returned unchanged.
    """
    around = [weights[n][1] for n in (between.maker, *between.readers)]
    last = dtypes.limits(scheme.dtype)[1] - scheme.zero[0]
    if scheme.axis != 1 or scheme.block or len(set(scheme.zero)) > 1:
        return scheme
    if any(s.axis != 0 or s.block for s in around) or (
        max(scheme.scale) * last > between.bound * (1 + 1e-6)
    ):
        return scheme
    scales = np.array(scheme.scale)
    whole = float(np.float32(scales.max()))
    factors = scales / whole
    _scale(weights, between.maker, 1 / factors)
    bias = between.maker.inputs[2] if len(between.maker.inputs) > 2 else None
    if bias is not None:
        assert bias.data is not None
        new = constant((bias.data / factors.reshape(bias.shape)).astype(np.float32), bias.name)
        set_bias(between.maker, 2, new)
    for n in between.readers:
        _scale(weights, n, np.repeat(factors, n.outputs[0].shape[1] // len(factors)))
    for u in between.values:
        u.name = f"{u.name}_by_channel"
    return replace(scheme, scale=(whole,), zero=scheme.zero[:1], axis=None)


def _scale(weights: dict[Node, Stored], node: Node, by: Array) -> None:
    integers, scheme = weights[node]
    scales = (np.array(scheme.scale) * by).astype(np.float32)
    weights[node] = integers, replace(scheme, scale=tuple(map(float, scales)))
