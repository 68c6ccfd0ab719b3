"""Tables of functions with two slopes, which the chips compute without a table."""

from __future__ import annotations

from collections.abc import Container
from functools import cache

import numpy as np

from intaglio.ir import Array, Graph
from intaglio.ops.registry import REGISTRY

TABLES = {"npu.conv": 5, "npu.depthwise": 5, "npu.eltwise": 2}  # the input that is a table
HALF = 0.501  # an entry is a rounded number
LEAST_SLOPE = 1e-3  # below the knee; a smaller one is that of a function that ends in a constant
LEAST_RUN = 4  # entries on each side of a knee


def without_tables(body: Graph, arithmetic: Container[str] = ()) -> Graph:
    """A copy of the body in which products and sums followed by LeakyReLU have no table.

    Nor have layers with one of these names.
    """
    result = body.copy()
    for node in result.nodes():
        k = TABLES.get(node.op)
        if k is None or k >= len(node.inputs) or (table := node.inputs[k]) is None:
            continue
        leaky = table.data is not None and table.data.dtype.kind == "i" and is_leaky(table.data)
        if leaky or node.origin in arithmetic:
            node.inputs[k] = None
    return result


def with_one_slope(graph: Graph) -> Graph:
    """A copy in which functions with a slope for each channel have one for all.

    The vendors' chips compute both with the product; for ours slopes of channels are an op of the
    CPU. Their speed does not depend on the slopes.
    """
    result = graph.copy()
    for node in result.nodes():
        if node.op == "prelu" and node.inputs[0] is not None:
            made = REGISTRY["leaky_relu"](node.inputs[0], alpha=0.25)
            made.producer.origin = node.origin
            result.replace(node.outputs[0], made)
    return result


def is_leaky(table: Array) -> bool:
    """Whether rounded values of a function with two slopes, which meet in 0, fill the table."""
    return _is_leaky(np.asarray(table, np.float64).ravel().tobytes())


@cache
def _is_leaky(data: bytes) -> bool:
    t = np.frombuffer(data, np.float64)
    return any(_knee(t, k) for k in range(LEAST_RUN, len(t) - LEAST_RUN))


def _knee(t: Array, k: int) -> bool:
    below, above = _slope(t[k::-1]), _slope(t[k:])
    if below is None or above is None:
        return False
    low, high = -below[1], -below[0]  # the run below the knee was read backwards
    return low > LEAST_SLOPE and above[0] > 0 and high < above[0]


def _slope(run: Array) -> tuple[float, float] | None:
    """The slopes of lines from the first entry whose rounded values are these; None: there is none.

    Entries at the end of the type's range are clamped, so they may lie on any steeper line.
    """
    inside = (run > -128) & (run < 127)
    count = len(run) if inside.all() else int(np.argmin(inside))
    if count < LEAST_RUN:
        return None
    steps = np.arange(1, count)
    off = run[1:count] - run[0]
    low, high = ((off - HALF) / steps).max(), ((off + HALF) / steps).min()
    return (float(low), float(high)) if low <= high else None
