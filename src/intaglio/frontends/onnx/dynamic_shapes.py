"""Bounds of shapes that the model computes at run time.

An expression that depends only on run-time extents is computed twice, with every extent at its
upper bound and one below. If both results agree, the expression is treated as a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.onnx.importer import OnnxNode
from intaglio.frontends.value_bounds import MAX_BOUND, interval
from intaglio.ir import Array, Type, Value, constant, symbolic
from intaglio.ops.registry import evaluate_node
from intaglio.ops.shape import reshape
from intaglio.symint import is_symbolic

Shape = tuple[int, ...]
MAX_ELEMENTS = 4096  # of a shape expression
MAX_OPERATIONS = 100  # of a shape expression


def extents_of(t: Type, less: int = 0) -> Shape:
    """The shape with every run-time extent `less` below its bound."""
    return tuple(max(d - less, 0) if i in t.dynamic else d for i, d in enumerate(t.shape))


def estimates(value: Value) -> tuple[Array, Array] | None:
    """`value` at the upper bounds and one below; None if it depends on other data."""
    high, low = _at(value, 0, {}), _at(value, 1, {})
    if high is None or low is None or high.shape != low.shape:
        return None
    return high, low


def _at(value: Value, less: int, known: dict[Value, Array | None], deep: int = 0) -> Array | None:
    if value.data is not None:
        return value.data
    if value in known:
        return known[value]
    known[value] = None
    node = value.producer
    if (
        node is None
        or symbolic(node)
        or is_symbolic(node.inputs[0].shape if node.inputs and node.inputs[0] else ())
        or value.type.size > MAX_ELEMENTS
        or deep > MAX_OPERATIONS
    ):
        return None
    if node.op == "shape_of":
        x = node.inputs[0]
        assert x is not None
        known[value] = np.array(extents_of(x.type, less), np.int64)
        return known[value]
    inputs = [None if v is None else _at(v, less, known, deep + 1) for v in node.inputs]
    if any(a is None and v is not None for a, v in zip(inputs, node.inputs, strict=True)):
        return None
    try:
        known.update(zip(node.outputs, evaluate_node(node, inputs), strict=True))
    except Exception:  # an estimate may fail where the node itself does not
        return None
    return known[value]


def constant_if_fixed(value: Value) -> Value:
    """A constant if `value` is computed from extents and does not vary with them."""
    found = estimates(value) if value.data is None else None
    if found is None or not np.array_equal(*found):
        return value
    return constant(found[0])


def output_bound(
    n: OnnxNode, i: int, shape: Callable[[Array], Sequence[int]], *, grows: bool = False
) -> tuple[Shape, Shape]:
    """Upper bound and dynamic axes of output 0, whose shape depends on operand `i`.

    `shape` computes the output's shape from a value of that operand; `grows` says that larger
    values give larger shapes, so that intervals bound it too. Without an estimate, the declared
    shape is used; without that, an error says how to bind the operand.
    """
    found = estimates(n.required(i)) or (_ends(n.required(i)) if grows else None)
    if found is not None:
        high, low = tuple(shape(found[0])), tuple(shape(found[1]))
        return high, tuple(k for k, (a, b) in enumerate(zip(high, low, strict=True)) if a != b)
    declared = n.declared(0)
    if declared is None:
        n.const(i)  # raises with the remedy
        raise AssertionError("a constant operand needs no bound")
    return declared.shape, tuple(range(declared.rank))


def _ends(value: Value) -> tuple[Array, Array] | None:
    """The largest and the smallest integers that `value` may hold, if they are known."""
    low, high = interval(value)
    if not np.isfinite(low).all() or not (high <= MAX_BOUND).all():
        return None
    return high.astype(np.int64), low.astype(np.int64)


def steps_between(start: Value, stop: Value) -> tuple[int, ...] | None:
    """stop - start per entry, if `stop` is computed as `start` plus a constant."""
    node, first = _before_reshapes(stop).producer, _before_reshapes(start)
    if node is None or node.op != "add":
        return None
    for a, b in (node.inputs, node.inputs[::-1]):
        if a is not None and b is not None and b.data is not None and _before_reshapes(a) is first:
            steps = np.broadcast_to(b.data.reshape(-1), (max(start.type.size, 1),))
            return tuple(max(int(s), 0) for s in steps)
    return None


def most_steps_between(start: Value, stop: Value) -> int | None:
    """The largest stop - start of two scalars, if `stop` is `start` plus a constant, or the smaller
    of that and another number. A sum may be computed in floats: PaddlePaddle does that."""
    node = _before_casts(stop).producer
    if node is None or node.op not in ("add", "minimum"):
        return None
    first, second = node.inputs
    if first is None or second is None:
        return None
    if node.op == "minimum":
        found = [most_steps_between(start, v) for v in (first, second)]
        return min((n for n in found if n is not None), default=None)
    for a, b in ((first, second), (second, first)):
        if b.data is not None and b.type.size == 1 and _before_casts(a) is _before_casts(start):
            return max(math.ceil(float(b.data.reshape(-1)[0])), 0)
    return None


def _before_casts(v: Value) -> Value:
    """`v` before all reshapes and casts."""
    while v.producer is not None and v.producer.op in ("reshape", "cast"):
        assert v.producer.inputs[0] is not None
        v = v.producer.inputs[0]
    return v


def _before_reshapes(v: Value) -> Value:
    """`v` before all reshapes."""
    while v.producer is not None and v.producer.op == "reshape":
        assert v.producer.inputs[0] is not None
        v = v.producer.inputs[0]
    return v


def reshaped(x: Value, shape: Callable[[Shape], Sequence[int]]) -> Value:
    """x reshaped to `shape(x.shape)`; an extent known only at run time becomes -1."""
    high = list(shape(x.shape))
    if x.type.dynamic:
        low = shape(extents_of(x.type, 1))
        free = [k for k, (a, b) in enumerate(zip(high, low, strict=True)) if a != b]
        if len(free) > 1:
            raise Unsupported(
                f"'{x.name}' {x.type} would be reshaped to {tuple(high)} with {len(free)} extents "
                "known only at run time; at most one is supported; cut the graph before it"
            )
        for k in free:
            high[k] = -1
    return x if tuple(high) == x.shape else reshape(x, shape=tuple(high))


def resolved(shape: Sequence[int], x: Shape, allowzero: bool = False) -> Shape:
    """An ONNX target shape with 0 (keep) and -1 (infer) resolved for a tensor of shape `x`."""
    out = list(shape)
    for i, d in enumerate(out):
        if d == 0 and not allowzero:
            if i >= len(x):
                raise BadInput(
                    f"target shape {tuple(shape)} keeps axis {i} of {x}, which has no such axis"
                )
            out[i] = x[i]
    if -1 in out:
        at = out.index(-1)
        rest = math.prod(d for k, d in enumerate(out) if k != at)
        out[at] = math.prod(x) // rest if rest else 0
    return tuple(out)
