"""Tensors whose channels another model multiplies by factors of their own.

`quantize` folds the scales of channels into the weights around a tensor. It renames the tensor to
NAME_by_channel: in channel c it holds factor[c] times the value of NAME, and some factor is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Node, Value, detach
from intaglio.ops.registry import REGISTRY

SUFFIX = "_by_channel"
LEAST = 1e-30  # smaller squares are 0
ALIKE = 0.98  # least cosine of rows of which one is a multiple of the other
SAME = 0.999  # least cosine of rows whose ratio tells a scale that all share
NOISE = 3 * math.sqrt(1 - SAME**2)  # the ratio of such a row is that near to the true one
TIE = 1e-9


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
    channels share is no factor."""
    a, b = _weights(golden), _weights(other)
    if a is None or b is None or a.shape != b.shape or a.shape[0] != golden.shape[1]:
        return None
    found = _ratios(a, b)
    return None if found is None else found.reshape(1, -1, *[1] * (len(golden.shape) - 2))


def factors_between(golden: Array, other: Array, inside: Array) -> Array | None:
    """The factors of the channels of a tensor [1, C, ...], from its values `inside` of the range
    of its integers. The channel with the factor 1 is one of those that rounding changes little."""
    found = _ratios(golden[0] * inside[0], other[0] * inside[0], SAME, NOISE)
    return None if found is None else found.reshape(1, -1, *[1] * (golden.ndim - 2))


def _ratios(a: Array, b: Array, least: float = ALIKE, noise: float = 0.0) -> Array | None:
    """What brings each row of `a` nearest to that of `b`; the least is 1, within `noise`, among
    those with the cosine `least`, or if there are none, with the best one."""
    x, y = (w.reshape(len(w), -1).astype(np.float64) for w in (a, b))
    own, theirs, dot = (x * x).sum(1), (y * y).sum(1), (x * y).sum(1)
    ratio = np.where(own > LEAST, dot / np.maximum(own, LEAST), np.nan)
    cosine = np.where(own > LEAST, dot / np.sqrt(np.maximum(own * theirs, LEAST**2)), 0.0)
    alike = cosine > min(least, float(cosine.max()) - TIE)  # noise makes ratios of others too low
    if cosine.max() < ALIKE:
        return None
    shared = ratio[alike].min()  # a scale of the whole tensor, which is no factor
    shared = 1.0 if abs(shared - 1) < noise else shared
    each: Array = np.nan_to_num(ratio / shared, nan=1.0).astype(np.float32)
    each[each <= 0] = 1.0
    return each


def _weights(v: Value) -> Array | None:
    """The constant weights of the product that makes a tensor, behind functions of single values
    and roundings."""
    node: Node | None = v.producer
    while node is not None and not REGISTRY[node.op].macs(node):
        computed = [x for x in node.inputs if x is not None and x.data is None]
        if len(computed) != 1:
            return None
        node = computed[0].producer
    return None if node is None or len(node.inputs) < 2 else constant_of(node.inputs[1])


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
