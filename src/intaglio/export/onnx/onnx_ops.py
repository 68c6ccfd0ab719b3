"""Ops that ONNX has and we lack, each defined by its lowering to ours.

    @onnx_op("Sum")
    def sum_(*xs: Value) -> Value: ...

defines the op `onnx.Sum`. The function is its lowering; type inference and the numpy body are
derived from it. A `@writes` function gives its ONNX attributes.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.export.onnx.expression import Onnx, make, writes
from intaglio.ir import Array, Graph, Node, Type, Value
from intaglio.ops.registry import Op, evaluate, op


def onnx_op(op_type: str) -> Callable[[Callable[..., Any]], Op]:
    """Define the op `onnx.<op_type>`, which the decorated function builds of other ops."""

    def define(build: Callable[..., Any]) -> Op:
        @functools.wraps(build)
        def body(*arrays: Array | None, **attrs: Any) -> tuple[Array, ...]:
            types = [None if a is None else Type(dtypes.name_of(a.dtype), a.shape) for a in arrays]
            inputs = [None if t is None else Value(t) for t in types]
            graph = Graph([v for v in inputs if v is not None], _made(build, inputs, attrs))
            return tuple(evaluate(graph, [a for a in arrays if a is not None]))

        def infer(*values: Value | None, **attrs: Any) -> list[Type]:
            inputs = [None if v is None else Value(v.type, v.name, v.data) for v in values]
            return [v.type for v in _made(build, inputs, attrs)]

        result = op(infer, name=f"onnx.{op_type}")(body)
        result.signature = inspect.signature(build)
        result.lowers(build)
        return result

    return define


def _made(build: Callable[..., Any], inputs: Sequence[Value | None], attrs: Any) -> list[Value]:
    result = build(*inputs, **attrs)
    return [result] if isinstance(result, Value) else list(result)


@onnx_op("Sum")
def sum_(*xs: Value) -> Value:
    """The sum of any number of tensors, from left to right."""
    return functools.reduce(ops.add, xs)


@writes("onnx.Sum")
def write_sum(n: Node) -> Onnx:
    return make("Sum", *n.inputs)


@onnx_op("Split")
def split(x: Value, *, axis: int, parts: tuple[int, ...]) -> list[Value]:
    """Consecutive slices along an axis."""
    edges = np.cumsum([0, *parts]).tolist()
    return [ops.part(x, a, b, axis=axis) for a, b in itertools.pairwise(edges)]


@writes("onnx.Split")
def write_split(n: Node) -> Onnx:
    return make("Split", n.inputs[0], list(n.attrs["parts"]), axis=n.attrs["axis"])


@onnx_op("Attention")
def attention(
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
    softcap: float,
) -> Value:
    """Attention on [batch, length, heads * size]."""
    parts = [_split_heads(x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads))]
    y = ops.attention(*parts, mask, scale=scale, softcap=softcap)
    b, _, length, size = y.shape
    result: Value = ops.reshape(
        ops.transpose(y, perm=(0, 2, 1, 3)), shape=(b, length, heads * size)
    )
    return result


def _split_heads(x: Value, heads: int) -> Value:
    b, length, width = x.shape
    split = ops.reshape(x, shape=(b, length, heads, width // heads))
    result: Value = ops.transpose(split, perm=(0, 2, 1, 3))
    return result


@writes("onnx.Attention")
def write_attention(n: Node) -> Onnx:
    a = n.attrs
    return make(
        "Attention",
        *n.inputs,
        q_num_heads=a["heads"],
        kv_num_heads=a["kv_heads"],
        scale=a["scale"],
        softcap=a["softcap"] or None,
    )
