"""Bounds of numbers that data decides, such as a length or the k of TopK, by interval arithmetic.

`Min(k, 100)` is at most 100 and `ArgMax` less than its extent, whatever the data is. A bound of a
number that decides an extent lets the compiler plan memory for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio import dtypes, symint
from intaglio.ir import Array, Node, Value
from intaglio.ops.registry import REGISTRY

MAX_ELEMENTS = 1 << 20  # of a tensor whose numbers are bounded
MAX_OPERATIONS = 100  # along a path
MAX_BOUND = 1 << 24  # a larger bound counts as none

Interval = tuple[Array, Array]  # lowest and highest value of every element, f64, infinite if open
Rule = Callable[[Node, list[Interval]], Interval]


def bounds(value: Value) -> tuple[float, float]:
    """The lowest and the highest number that `value` may hold; infinite if it is not known."""
    low, high = interval(value)
    return float(low.min(initial=np.inf)), float(high.max(initial=-np.inf))


def upper_bound(value: Value) -> int | None:
    """The largest integer that `value` may hold, if it is known and not too large."""
    high = bounds(value)[1]
    return int(high) if high <= MAX_BOUND else None


def interval(value: Value) -> Interval:
    """The lowest and the highest value of every element."""
    with symint.estimates():  # of extents, the lowest and the highest count
        return _interval(value, {}, 0)


def _interval(value: Value, known: dict[Value, Interval], deep: int) -> Interval:
    if value.data is not None and value.dtype in dtypes.TABLE:
        wide = value.data.astype(np.float64)
        return wide, wide
    if value not in known:
        known[value] = _by_type(value)
        if value.type.size <= MAX_ELEMENTS and deep < MAX_OPERATIONS:
            known[value] = _by_rule(value, known, deep)
    return known[value]


def _filled(value: Value, low: float, high: float) -> Interval:
    shape = symint.plain(value.shape) if value.type.size <= MAX_ELEMENTS else ()
    return np.full(shape, low, np.float64), np.full(shape, high, np.float64)


def _by_type(value: Value) -> Interval:
    """Limits of narrow element types; others are open."""
    if value.dtype in ("u8", "i8", "u16", "i16"):
        return _filled(value, *dtypes.limits(value.dtype))
    return _filled(value, 0, 1) if value.dtype == "bool" else _filled(value, -np.inf, np.inf)


def _by_rule(value: Value, known: dict[Value, Interval], deep: int) -> Interval:
    node = value.producer
    if node is None or any(v is None or v.type.size > MAX_ELEMENTS for v in node.inputs):
        return _by_type(value)
    if node.op in _INDICES:
        return _index(node, value)
    rule = _RULES.get(node.op)
    if rule is None:
        return _by_type(value)
    inputs = [_interval(v, known, deep + 1) for v in node.inputs if v is not None]
    try:
        with np.errstate(all="ignore"):
            low, high = rule(node, inputs)
    except Exception:  # an estimate may fail where the node itself does not
        return _by_type(value)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


# ---- rules ---------------------------------------------------------------------------------------
_INDICES = {"argmax", "argmin", "topk", "nonzero"}


def _index(node: Node, value: Value) -> Interval:
    """Indices are less than the extent that they index."""
    x = node.inputs[0]
    if x is None or (node.op == "topk" and value.index == 0):
        return _by_type(value)
    extents = x.shape if node.op == "nonzero" else (x.shape[int(node.attrs["axis"])],)
    return _filled(value, 0, max(*extents, 1) - 1)


def _extents(node: Node, inputs: list[Interval]) -> Interval:
    x = node.inputs[0]
    assert x is not None
    low = [0 if i in x.type.dynamic else symint.lowest(d) for i, d in enumerate(x.shape)]
    return np.array(low, np.float64), np.array(symint.plain(x.shape), np.float64)


def _evaluated(node: Node, *arrays: Array) -> Array:
    """The result of the op's numpy body, here on f64 instead of integers."""
    return np.asarray(REGISTRY[node.op].body(*arrays, **node.attrs))


def _rising(node: Node, inputs: list[Interval]) -> Interval:
    """Larger operands give larger results: computed from all lows, and from all highs."""
    return _evaluated(node, *(i[0] for i in inputs)), _evaluated(node, *(i[1] for i in inputs))


def _product(node: Node, inputs: list[Interval]) -> Interval:
    """Extremes lie where both factors are at one of their ends; 0 times anything is 0."""
    products = [a * b for a in inputs[0] for b in inputs[1]]
    ends = [np.where(np.isnan(p), 0.0, p) for p in products]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


def _quotient(node: Node, inputs: list[Interval]) -> Interval:
    (a, b), by = inputs[0], inputs[1]
    if (by[0] <= 0).any():
        return _by_type(node.outputs[0])
    ends = [x / y for x in (a, b) for y in by]
    low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
    whole = dtypes.is_integer(node.outputs[0].dtype)
    return (np.trunc(low), np.trunc(high)) if whole else (low, high)


def _remainder(node: Node, inputs: list[Interval]) -> Interval:
    by = inputs[1]
    if (by[0] <= 0).any() or not dtypes.is_integer(node.outputs[0].dtype):
        return _by_type(node.outputs[0])
    return _filled(node.outputs[0], 0, by[1].max() - 1)


def _cast(node: Node, inputs: list[Interval]) -> Interval:
    low, high = inputs[0]
    y = node.outputs[0]
    if y.dtype == "bool" or y.dtype in ("u8", "i8", "u16", "i16", "u32", "u64"):
        return _by_type(y)
    return (np.trunc(low), np.trunc(high)) if dtypes.is_integer(y.dtype) else (low, high)


def _sum(node: Node, inputs: list[Interval]) -> Interval:
    """A sum over a run-time extent may have fewer terms."""
    (low, high), x = inputs[0], node.inputs[0]
    if x is not None and x.type.dynamic:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    return _evaluated(node, low), _evaluated(node, high)


def _either(node: Node, inputs: list[Interval]) -> Interval:
    (a, b), shape = inputs[:2], node.outputs[0].shape
    low, high = np.minimum(a[0], b[0]), np.maximum(a[1], b[1])
    return np.broadcast_to(low, shape), np.broadcast_to(high, shape)


def _gathered(node: Node, inputs: list[Interval]) -> Interval:
    """Elements at known places, or any element."""
    (low, high), index = inputs[0], node.inputs[1]
    assert index is not None
    if index.data is not None:
        return _evaluated(node, low, index.data), _evaluated(node, high, index.data)
    return _filled(node.outputs[0], low.min(), high.max())


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("minimum", "maximum", "clip", "add", "relu", "floor", "ceil"), _rising),
    **dict.fromkeys(("round", "tanh", "reshape", "slice", "transpose", "expand"), _rising),
    **dict.fromkeys(("concat", "reduce_max", "reduce_min", "tile"), _rising),
    "sub": lambda node, i: (i[0][0] - i[1][1], i[0][1] - i[1][0]),
    "neg": lambda node, i: (-i[0][1], -i[0][0]),
    "sigmoid": lambda node, i: _filled(node.outputs[0], 0, 1),
    "softmax": lambda node, i: _filled(node.outputs[0], 0, 1),
    "mul": _product,
    "div": _quotient,
    "mod": _remainder,
    "cast": _cast,
    "reduce_sum": _sum,
    "where": _either,
    "gather": _gathered,
    "shape_of": _extents,
}
