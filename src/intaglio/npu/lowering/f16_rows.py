"""Sums and layer normalisation of token rows become f16 NPU ops on columns.

A linear layer computes rows of channels as a feature map of one column. Residual sums and layer
normalisation between two of them stay in this form, so the transposes between them cancel, and
they are one program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Node, Value, constant
from intaglio.npu.lowering.builder import Builder, Refused, data, is_npu
from intaglio.npu.lowering.f16_operands import F16Casts, as_f16
from intaglio.npu.ops import conv, depth_to_space, depthwise, eltwise, f16_arithmetic, lut
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, Rule, rule

x, a, b = P["x a b"]
POINT = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "x_zero": 0, "dtype": "f16"}
LEAST_VARIANCE = 2.0**-14  # the smallest normal number of f16
SMALLER = 64.0  # squares are divided by it, so that f16 holds those of numbers up to 2,047


def f16_row_rules(make: Builder, casts: F16Casts, tokens: bool = True) -> tuple[Rule, ...]:
    """The rules by which sums and normalisations of rows become NPU ops, and some of the rows."""

    @rule(P.add(a, b))
    def rows_in_f16(node: Node, a: Value, b: Value) -> Any:
        """Lower the sum of two results of linear layers to npu.eltwise of columns."""
        alike = a.shape == b.shape == node.outputs[0].shape
        if not casts.every or not alike or not any(_column_of(v) for v in (a, b)):
            return None
        return make.attempt(_sum, casts, node)

    @rule(P.any("layer_norm"))
    def layer_norm_in_f16(node: Node) -> Any:
        """Lower layer_norm of the result of a linear layer to npu.conv, npu.eltwise and npu.lut."""
        x = node.inputs[0]
        if not casts.every or x is None or _column_of(x) is None:
            return None
        return make.attempt(_layer_norm, casts, node)

    @rule(P.any("slice", "gather"))
    def tokens_in_f16(node: Node) -> Any:
        """Lower a slice of the rows of a linear layer, such as one token, to a crop of its map."""
        x = node.inputs[0]
        if not casts.every or x is None or _column_of(x) is None:
            return None
        return make.attempt(_some_rows, casts, node)

    return rows_in_f16, layer_norm_in_f16, *((tokens_in_f16,) if tokens else ())


def _column_of(v: Value) -> Value | None:
    """The column [1, C, M, 1] that an NPU op made, and of which `v` are the rows."""
    found = as_f16(v)
    if found is None or found.type.dynamic:
        return None
    channels = found.shape[-1]
    turned = False
    while found is not None and found.producer is not None and not is_npu(found.producer):
        node = found.producer
        if node.op == "transpose" and tuple(node.attrs["perm"]) == (1, 0) and not turned:
            turned = True
        elif node.op != "reshape" or (not turned and found.shape[-1] != channels):
            return None
        found = node.inputs[0]
    column = (1, channels, v.type.size // channels, 1)
    made = found is not None and found.producer is not None and turned
    return found if found is not None and made and found.shape == column else None


def _as_column(make: Builder, casts: F16Casts, v: Value) -> Value:
    """Rows as a column; those that no unit made are transposed by the CPU."""
    if (found := _column_of(v)) is not None:
        return found
    channels = v.shape[-1]
    return make.as_column(make.reshaped(casts(v), (v.type.size // channels, channels, 1)))


def _sum(make: Builder, casts: F16Casts, node: Node) -> Value:
    maps = [_as_column(make, casts, v) for v in node.inputs if v is not None]
    factors = {"a_zero": 0, "b_zero": 0, "a_factor": 1.0, "b_factor": 1.0}
    result = make(eltwise, *maps, kind="add", **factors, dtype="f16")
    return _rows(make, casts, result, node.outputs[0])


def _some_rows(make: Builder, casts: F16Casts, node: Node) -> Value:
    """Rows that follow each other."""
    x, out, chosen = node.inputs[0], node.outputs[0], node.inputs[1:]
    assert x is not None
    if any(v is None or v.data is None for v in chosen):
        raise Refused("its rows are known only at run time")
    numbers = np.arange(x.type.size).reshape(x.shape)
    given = [data(v) for v in chosen if v is not None]
    found = np.asarray(REGISTRY[node.op].body(numbers, *given, **node.attrs)).reshape(-1)
    if not found.size or found[0] % x.shape[-1] or (np.diff(found) != 1).any():
        raise Refused("units take whole rows that follow each other")
    column = _column_of(x)
    assert column is not None
    channels = column.shape[1]
    if found.size % channels:
        raise Refused(f"it takes a part of a row of {channels} channels")
    first, shape = (int(found[0]) // channels, 0), (found.size // channels, 1)
    part = make(depth_to_space, column, blocksize=1, channels=channels, first=first, shape=shape)
    return _rows(make, casts, part, out)


def _layer_norm(make: Builder, casts: F16Casts, node: Node) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias; both means are 1x1 convolutions."""
    given, out = node.inputs[0], node.outputs[0]
    assert given is not None
    if node.attrs["axis"] % out.type.rank != out.type.rank - 1:
        raise Refused("it normalises several axes; units normalise the last one")
    maps = _as_column(make, casts, given)
    many = maps.shape[1]

    def mean(v: Value, times: float = 1.0, plus: float = 0.0, **bounds: float) -> Value:
        ones = constant(np.ones((1, many, 1, 1), np.float16))
        share, bias = (constant(np.full(1, n, np.float32)) for n in (times / many, plus))
        return make(conv, v, ones, share, bias, **POINT, **bounds)

    zeros = {"a_zero": 0, "b_zero": 0, "dtype": "f16"}
    apart = make(eltwise, maps, mean(maps), kind="add", **zeros, a_factor=1.0, b_factor=-1.0)
    squares = make(eltwise, apart, apart, kind="mul", **zeros, a_factor=1 / SMALLER)
    variance = mean(squares, SMALLER, node.attrs["epsilon"], least=LEAST_VARIANCE)
    table, _ = f16_arithmetic.piecewise_table(lambda v: 1 / np.sqrt(np.maximum(v, LEAST_VARIANCE)))
    rate = make(lut, variance, constant(table), base=0)
    scaled = make(eltwise, apart, rate, kind="mul", **zeros, a_factor=1.0)
    given_ends = [*node.inputs[1:], None, None][:2]
    ends = [_numbers(v, many, usual) for v, usual in zip(given_ends, (1, 0), strict=True)]
    if all(e is None for e in ends):
        return _rows(make, casts, scaled, out)
    ones = constant(np.ones((many, 1, 1, 1), np.float16))
    scale, bias = (
        constant(np.full(many, n, np.float32)) if e is None else e
        for e, n in zip(ends, (1, 0), strict=True)
    )
    return _rows(make, casts, make(depthwise, scaled, ones, scale, bias, **POINT), out)


def _numbers(v: Value | None, many: int, usual: float) -> Value | None:
    """One f32 per channel; None: they are all `usual`."""
    if v is None:
        return None
    if v.data is None or v.type.size != many:
        raise Refused(f"its scale or bias is {v.type}; {many} constants are needed")
    numbers = np.ascontiguousarray(data(v).astype(np.float32).reshape(-1))
    return None if (numbers == usual).all() else constant(numbers)


def _rows(make: Builder, casts: F16Casts, column: Value, like: Value) -> Value:
    return casts.back(make.from_column(column, like.shape), like)
