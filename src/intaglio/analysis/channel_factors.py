"""Tensors whose channels another model multiplies by factors of their own.

`quantize` folds the scales of channels into the weights around a tensor. It renames the tensor to
NAME_by_channel: in channel c it holds factor[c] times the value of NAME, and some factor is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Node, Value, detach
from intaglio.ops.registry import REGISTRY

SUFFIX = "_by_channel"
LEAST = 1e-30  # smaller squares are 0
VANISHED = 1e-12  # weights whose squares are less than this share of the largest are none
ALIKE = 0.98  # least cosine of rows of which one is a multiple of the other
SAME = 0.999  # least cosine of rows whose ratio tells a scale that all share
SURE = 3.0  # times the noise of a ratio, within which the true one lies
EXACT = 0.01  # the same for weights
SATURATED = 0.01  # share of values beyond the integers from which a scale is wrong


def by_channel(
    ours: Iterable[Value], named: Mapping[str, Value], add: Callable[[Value, Value, str], None]
) -> dict[Value, Array]:
    """Join golden tensors with those of another graph that have factors; returns the factors."""
    found: dict[Value, Array] = {}
    for v in ours:
        other = named.get(f"{v.name}{SUFFIX}") if v.name else None
        if other is None or other.shape != v.shape or v.name in named:
            continue
        factors = _factors(v, other)
        if factors is not None:
            found[v] = factors
            add(v, other, "name")
    return found


def _factors(golden: Value, other: Value) -> Array | None:
    """The factors of the channels, from the weights that make the tensors: a wrong scale that all
    channels share is no factor. A channel without weights is its bias."""
    a, b = _product(golden), _product(other)
    if a is None or b is None:
        return None
    x, y = _weights(a), _weights(b)
    if x is None or y is None or x.shape != y.shape or x.shape[0] != golden.shape[1]:
        return None
    x, y = (w.reshape(len(w), -1).astype(np.float64) for w in (x, y))
    ratio, cosine = _ratios((x * y).sum(1), (x * x).sum(1), (y * y).sum(1))
    alike = cosine >= ALIKE
    if not alike.any():
        return None
    shared, of_bias = ratio[alike].min(), _bias_ratios(a, b, len(ratio))
    both = alike & np.isfinite(of_bias)
    if abs(shared - 1) > EXACT and not alike.all() and both.any():  # which factor is 1 is not seen
        shared = np.median(ratio[both] / of_bias[both])
    vanished = ~alike & np.isfinite(of_bias)
    return _positive(np.where(vanished, of_bias, ratio / shared), golden.shape)


class ChannelFactors:
    """The factors of the channels of a tensor [1, C, ...], from its values in samples.

    Some factor is 1. If rounding leaves no doubt that none is, all channels share a scale, which
    is no factor; channels without values leave a doubt unless the scale makes values saturate.
    """

    def __init__(self, step: float):
        self.step = step  # of the integers
        self.sums: Any = 0.0  # by channel: golden @ other, golden², other²
        self.count = 0  # values of each channel
        self.values = self.saturated = 0  # that are not 0
        self.shape: tuple[int, ...] = ()

    def add(self, golden: Array, other: Array, inside: Array) -> None:
        """Add a sample; values `inside` of the range of the integers count."""
        every, kept = golden != 0, inside[0].reshape(golden.shape[1], -1)
        x, y = (a[0].reshape(kept.shape).astype(np.float64) * kept for a in (golden, other))
        self.sums = self.sums + np.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)])
        self.values += int(every.sum())
        self.saturated += int((every & ~inside).sum())
        self.shape, self.count = golden.shape, self.count + kept.shape[1]

    @property
    def factors(self) -> Array | None:
        """The factors as an array [1, C, 1, ...]; None if nothing is known."""
        ratio, cosine = _ratios(*self.sums)
        seen = cosine >= ALIKE
        if not seen.any():
            return None
        noise = SURE * np.sqrt(1 - np.minimum(cosine[seen], 1.0) ** 2) + EXACT
        size = np.sqrt(self.sums[2][seen] / self.count)
        noise += self.step / 2 / size  # which values that are all the same share
        low, high = (ratio[seen] * (1 - noise)).min(), (ratio[seen] * (1 + noise)).min()
        doubt = low > 1 and not seen.all() and self.saturated < SATURATED * self.values
        if doubt or low <= 1 <= high:
            return _positive(ratio, self.shape)
        sure = cosine >= min(SAME, float(cosine.max()))  # noise makes ratios of others too low
        return _positive(ratio / ratio[sure].min(), self.shape)


def _positive(factors: Array, shape: tuple[int, ...]) -> Array:
    """The factors in the shape of the channels; 1 where they are not known."""
    known = np.isfinite(factors) & (factors > 0)
    each: Array = np.where(known, factors, 1.0).astype(np.float32)
    return each.reshape(1, -1, *[1] * (len(shape) - 2))


def _ratios(dot: Array, own: Array, theirs: Array) -> tuple[Array, Array]:
    """What brings each row nearest to the other's, NaN for rows without values, and the cosines
    of the rows; from the sums of products."""
    known = own > max(LEAST, VANISHED * float(own.max()))
    ratio = np.where(known, dot / np.maximum(own, LEAST), np.nan)
    return ratio, np.where(known, dot / np.sqrt(np.maximum(own * theirs, LEAST**2)), 0.0)


def _bias_ratios(a: Node, b: Node, rows: int) -> Array:
    """How many times as large each bias of `b` is; NaN where there is none."""
    found: Array = np.full(rows, np.nan)
    x, y = (constant_of(n.inputs[2]) if len(n.inputs) > 2 else None for n in (a, b))
    if x is None or y is None or x.size != rows or y.size != rows:
        return found
    x, y = x.ravel().astype(np.float64), y.ravel().astype(np.float64)
    known = x * x > max(LEAST, VANISHED * float((x * x).max()))
    np.divide(y, x, out=found, where=known)
    return found


def _product(v: Value) -> Node | None:
    """The product that makes a tensor, behind functions of single values and roundings."""
    node: Node | None = v.producer
    while node is not None and not REGISTRY[node.op].macs(node):
        computed = [x for x in node.inputs if x is not None and x.data is None]
        if len(computed) != 1:
            return None
        node = computed[0].producer
    return node


def _weights(node: Node) -> Array | None:
    return None if len(node.inputs) < 2 else constant_of(node.inputs[1])


def constant_of(v: Value | None) -> Array | None:
    """The data of a tensor that is computed from constants alone; None if it is not."""
    if v is None or v.data is not None:
        return None if v is None else v.data
    whole = Graph([], [v], ["v"])
    try:
        return interpret(whole, {})["v"]
    except Exception:  # computed at run time
        return None
    finally:
        detach(whole.result)
