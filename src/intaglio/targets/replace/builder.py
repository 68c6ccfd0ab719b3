"""Helpers to build replacements: a rule decorator, constants, slices, pads and reshapes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant, release
from intaglio.ops.registry import REGISTRY, evaluate_node
from intaglio.rewrite import Pat, Rule, no, rule

Ints = tuple[int, ...]
Span = tuple[int, int]  # from, to


def replacement(pattern: Pat) -> Callable[[Callable[..., Any]], Rule]:
    """`rule` for a function that takes `node` and needs static, non-empty shapes."""

    def make(build: Callable[..., Any]) -> Rule:
        @functools.wraps(build)
        def with_known_shapes(**found: Any) -> Any:
            node: Node = found["node"]
            if any(v is not None and v.type.dynamic for v in (*node.inputs, *node.outputs)):
                return no("a size is known only at run time")
            if any(v is not None and not v.type.size for v in (*node.inputs, *node.outputs)):
                return no("a tensor is empty")
            return build(**found)

        return rule(pattern)(with_known_shapes)

    return make


def like(v: Value, data: Any) -> Value:
    """A constant with the element type of `v`."""
    return constant(np.ascontiguousarray(np.asarray(data).astype(dtypes.numpy_of(v.dtype))))


def folded(v: Value) -> Value:
    """`v` evaluated, if all its operands are constant; else `v` itself."""
    node = v.producer
    if node is None or not all(u is None or folded(u).data is not None for u in node.inputs):
        return v
    arrays = [None if u is None else folded(u).data for u in node.inputs]
    result = constant(np.ascontiguousarray(evaluate_node(node, arrays)[v.index]))
    release(node)
    return result


def rebuilt(node: Node, *inputs: Value | None, **changes: Any) -> Any:
    """The same op on other operands, with some attributes changed."""
    result = REGISTRY[node.op].node(*inputs, origin=node.origin, **{**node.attrs, **changes})
    return result.outputs[0] if len(result.outputs) == 1 else result.outputs


def sliced(x: Value, spans: Sequence[Span], step: Ints | None = None) -> Value:
    """x[from:to] along every axis; `x` itself if that is all of it."""
    steps = step or (1,) * len(spans)
    if all(s == (0, d) for s, d in zip(spans, x.shape, strict=True)) and set(steps) <= {1}:
        return x
    start, stop = zip(*spans, strict=True)
    result: Value = ops.slice_(x, start=start, stop=stop, step=steps)
    return result


def sliced_axis(x: Value, axis: int, start: int, stop: int) -> Value:
    """x[start:stop] along one axis."""
    return sliced(x, [(start, stop) if i == axis else (0, d) for i, d in enumerate(x.shape)])


def pad_or_crop(x: Value, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Value:
    """`x` padded on both sides of every axis, or cropped where the amount is negative."""
    spans = [(max(-b, 0), d - max(-a, 0)) for d, b, a in zip(x.shape, before, after, strict=True)]
    front, back = tuple(max(b, 0) for b in before), tuple(max(a, 0) for a in after)
    kept = sliced(x, spans)
    if not any(front) and not any(back):
        return kept
    result: Value = ops.pad(kept, before=front, after=back, mode="constant", value=value)
    return result


def reshaped(x: Value, *shape: int) -> Value:
    """`x` reshaped; `x` itself if it has that shape."""
    return x if x.shape == shape else ops.reshape(x, shape=shape)


def transposed(x: Value, *perm: int) -> Value:
    """`x` transposed; by a reshape if no element moves."""
    moved = [p for p in perm if x.shape[p] != 1]
    if moved == sorted(moved):
        return reshaped(x, *(x.shape[p] for p in perm))
    result: Value = ops.transpose(x, perm=perm)
    return result


def split_evenly(extent: int, limit: int) -> list[Span]:
    """`extent` split into as few parts of about equal length as `limit` allows."""
    count = -(-extent // limit)
    at = [extent * i // count for i in range(count + 1)]
    return list(itertools.pairwise(at))


def window_part(
    x: Value, window: Sequence[Span], kernel: Ints, attrs: dict[str, Any]
) -> tuple[Value, Ints] | None:
    """The part of the image that part of every window reads, and its padding; None if
    padding only.
    """
    n, spans, front, back = len(kernel), [], [], []
    for i, (lo, hi) in enumerate(window):
        far, extent = attrs["dilation"][i], x.shape[2 + i]
        before = attrs["pad"][i] - lo * far
        after = attrs["pad"][n + i] - (kernel[i] - hi) * far
        span = (max(-before, 0), extent - max(-after, 0))
        if span[0] >= span[1]:
            return None
        spans.append(span)
        front.append(max(before, 0))
        back.append(max(after, 0))
    whole = [(0, d) for d in x.shape[:2]]
    return sliced(x, [*whole, *spans]), (*front, *back)


def data_of(v: Value) -> Array:
    """The data of a constant, floats as f64."""
    assert v.data is not None
    return v.data.astype(np.float64) if dtypes.is_float(v.dtype) else v.data
