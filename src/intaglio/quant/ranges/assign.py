"""Scale and zero point of every quantised activation, from its observed range."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.ir import Node, Value
from intaglio.quant.placement.depthwise_scales import ChannelShares, by_channel
from intaglio.quant.placement.formats import USUAL, Formats
from intaglio.quant.placement.place import Placement, activations, keeps_scale
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.affine import affine
from intaglio.quant.ranges.saturation import narrow_preactivations

Range = tuple[float, float]
WIDER = ("int8", "int16")
SHARED_RATIO = 2.0  # a part of a concat that is at most this much narrower shares its scale


def assign(
    placement: Placement,
    ranges: Mapping[Value, Range],
    how: Formats = USUAL,
    shares: Mapping[Value, ChannelShares] = {},
) -> dict[str, TensorScheme]:
    """A scheme for every quantised tensor. Inputs and outputs of ops that only move values share
    one; tensors in `shares` get a scale for each channel."""
    groups = _Groups(ranges)
    inside = [n for n in placement.nodes if placement.quantized(n.outputs[0])]
    for n in inside:
        if keeps_scale(n):
            groups.join(activations(n)[0], n.outputs[0])
    for n in inside:
        if n.op == "concat":
            _join_parts(n, groups)
    results = {}
    for v in placement.tensors:
        precision = precision_of(v, placement)
        low, high = groups.range(v)
        symmetric = how.is_symmetric(precision, low)
        results[v.name] = affine(low, high, how.tensors[precision], symmetric)
        if v in shares:
            results[v.name] = by_channel(results[v.name], shares[v])
    narrow_preactivations(placement, ranges, results, how)
    return results


def precision_of(v: Value, placement: Placement) -> str:
    """The widest precision among the nodes that make or read this tensor."""
    around = [placement.nodes[n] for n in v.uses if n in placement.nodes]
    if v.producer in placement.nodes:
        around.append(placement.nodes[v.producer])
    return max(around, key=WIDER.index)


def _join_parts(concat: Node, groups: _Groups) -> None:
    """Give parts the concat's scale if they lose at most one bit, or if only it reads them."""
    whole = concat.outputs[0]
    for part in activations(concat):
        if groups.width(whole) <= SHARED_RATIO * groups.width(part) or (
            len(part.uses) == 1 and groups.alone(part)
        ):
            groups.join(whole, part)


class _Groups:
    """Groups of tensors that share a scale, and the range of each group."""

    def __init__(self, ranges: Mapping[Value, Range]):
        self.ranges = ranges
        self.of: dict[Value, list[Value]] = {v: [v] for v in ranges}

    def join(self, a: Value, b: Value) -> None:
        one, other = self.of[a], self.of[b]
        if one is not other:
            one.extend(other)
            self.of.update(dict.fromkeys(other, one))

    def range(self, v: Value) -> Range:
        lows, highs = zip(*(self.ranges[u] for u in self.of[v]), strict=True)
        return min(lows), max(highs)

    def width(self, v: Value) -> float:
        lo, hi = self.range(v)
        return max(hi, 0.0) - min(lo, 0.0)

    def alone(self, v: Value) -> bool:
        return len(self.of[v]) == 1
