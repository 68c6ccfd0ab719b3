"""Tensors whose channels another model multiplies by factors of their own.

`quantize` folds the scales of channels into the weights around a tensor. It renames the tensor to
NAME_by_channel: in channel c it holds factor[c] times the value of NAME, and some factor is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from intaglio.interpret import interpret
from intaglio.ir import Array, Graph, Node, Value, detach
from intaglio.ops.registry import REGISTRY

SUFFIX = "_by_channel"
LEAST = 1e-30  # smaller squares are 0


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
    x, y = (w.reshape(len(w), -1).astype(np.float64) for w in (a, b))
    own = (x * x).sum(1)
    ratio = np.where(own > LEAST, (x * y).sum(1) / np.maximum(own, LEAST), np.nan)
    if not (np.isfinite(ratio).any() and np.nanmin(ratio) > 0):
        return None
    each: Array = np.nan_to_num(ratio / np.nanmin(ratio), nan=1.0).astype(np.float32)
    return each.reshape(1, -1, *[1] * (len(golden.shape) - 2))


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
