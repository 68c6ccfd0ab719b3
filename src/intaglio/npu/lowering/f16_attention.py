"""Attention of floats becomes f16 NPU ops: products, pools, tables and element-wise ops.

Linear layers make columns of tokens [1, C, M, 1], in which heads are runs of channels. No unit
takes a maximum over channels, so scores are computed turned: queries are channels and keys are
rows. Windows over all rows then give their maximum and their sum. Products with 1 and 0 turn
matrices; they change no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import Builder, Refused, data, is_npu
from intaglio.npu.lowering.f16_operands import F16Casts, as_f16
from intaglio.npu.ops import (
    concat,
    depth_to_space,
    eltwise,
    f16_arithmetic,
    lut,
    matmul,
    pool,
    slice_,
)
from intaglio.ops.registry import REGISTRY
from intaglio.rewrite import P, Rule, rule

MOVES = ("reshape", "transpose", "slice")  # ops that may stand between a linear layer and its heads
LOWEST = -60_000.0  # f16 holds it plus a score; its exponential is 0
SUM = {"a_zero": 0, "b_zero": 0, "a_factor": 1.0, "dtype": "f16"}
PRODUCT = {"a_zero": 0, "b_zero": 0, "dtype": "f16"}


def f16_attention_rules(make: Builder, casts: F16Casts) -> tuple[Rule, ...]:
    """The rule by which attention between linear layers becomes NPU ops."""

    @rule(P.any("attention"))
    def attention_in_f16(node: Node) -> Any:
        """Lower attention of heads from linear layers to npu.matmul, npu.pool, npu.eltwise."""
        return make.attempt(_attention, casts, node) if casts.every else None

    return (attention_in_f16,)


# ---- heads ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Head:
    """Channels `channel` on, and rows `row` on, of a column."""

    column: Value
    channel: int
    row: int
    size: int
    tokens: int

    def map(self, make: Builder) -> Value:
        """The head as a column of its own."""
        _, channels, rows, _ = self.column.shape
        found = self.column
        if self.size < channels:
            found = make(slice_, found, first=self.channel, count=self.size)
        if self.tokens < rows:
            one = {"blocksize": 1, "channels": self.size, "shape": (self.tokens, 1)}
            found = make(depth_to_space, found, first=(self.row, 0), **one)
        return found


def _heads(v: Value) -> list[_Head]:
    """The heads of a query, key or value; Refused if they are no blocks of an NPU op's column."""
    found, moves = as_f16(v), []
    while found is not None and found.producer is not None and found.producer.op in MOVES:
        moves.append(found.producer)
        found = found.producer.inputs[0]
    if found is None or found.producer is None or not is_npu(found.producer):
        raise Refused("no linear layer on the NPU makes its operands")
    if found.type.rank != 4 or found.shape[3] != 1:
        raise Refused(f"its operands come from {found.type}, not from a column of tokens")
    numbers: Array = np.arange(found.type.size).reshape(found.shape)
    for node in reversed(moves):
        numbers = np.asarray(REGISTRY[node.op].body(numbers, **node.attrs))
    if numbers.shape[0] != 1 or found.shape[0] != 1:
        raise Refused(f"a batch of {numbers.shape[0]}; units attend within one sample")
    return [_head(found, numbers[0, h]) for h in range(numbers.shape[1])]


def _head(column: Value, numbers: Array) -> _Head:
    tokens, size = numbers.shape
    channel, row = divmod(int(numbers.flat[0]), column.shape[2])
    block = np.arange(column.type.size).reshape(column.shape[1:3])
    if not np.array_equal(block[channel : channel + size, row : row + tokens].T, numbers):
        raise Refused("a head is no block of channels and tokens")
    return _Head(column, channel, row, size, tokens)


# ---- masks ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Mask:
    """What is added to scores [1, M, keys, 1], by head, and a factor of a head's results."""

    heads: Sequence[Value | None]
    kept: Value | None = None  # 0 for tokens that attend to no key


def _mask(make: Builder, mask: Value | None, heads: int) -> _Mask:
    if mask is None:
        return _Mask([None] * heads)
    if mask.type.dynamic:
        raise Refused(f"its mask {mask.type} has an extent that is known only at run time")
    shape = (1,) * (4 - mask.type.rank) + tuple(mask.shape)
    if mask.data is not None:
        bias = np.where(data(mask), 0, -np.inf) if mask.dtype == "bool" else data(mask)
        if np.isneginf(bias.max(-1)).any():
            raise Refused("a token attends to no key")
        small = np.maximum(bias, LOWEST).astype(np.float16).reshape(shape)
        each = [
            constant(np.ascontiguousarray(small[0, h, ..., None][None])) for h in range(shape[1])
        ]
        return _Mask(each * (heads // shape[1]))
    return _given_mask(make, mask, shape, heads)


def _given_mask(make: Builder, mask: Value, shape: tuple[int, ...], heads: int) -> _Mask:
    """The CPU turns a mask that is known at run time into numbers that f16 holds."""
    if shape[1] != 1 or shape[0] != 1:
        raise Refused(f"its mask {mask.type} differs by head or sample")

    def number(n: float) -> Value:
        return constant(np.array(n, np.float32))

    if mask.dtype == "bool":
        bias = make.on_cpu(ops.where, number(0), number(LOWEST), mask)
    else:
        wide = mask if mask.dtype == "f32" else make.on_cpu(ops.cast, mask, dtype="f32")
        bias = make.on_cpu(ops.maximum, wide, number(LOWEST))
    scores = make.on_cpu(ops.cast, bias, dtype="f16")
    scores = make.on_cpu(ops.reshape, scores, shape=(1, shape[2], shape[3], 1))
    if mask.dtype != "bool" and bias.producer is not None:  # finite numbers hide no token
        most = make.on_cpu(ops.reduce_max, wide, axes=(mask.type.rank - 1,))
        empty = make.on_cpu(ops.equal, most, number(-np.inf))
        kept = make.on_cpu(ops.where, number(0), number(1), empty)
    else:
        open_ = make.on_cpu(ops.where, number(1), number(0), mask)
        kept = make.on_cpu(ops.reduce_max, open_, axes=(mask.type.rank - 1,))
    kept = make.on_cpu(ops.cast, kept, dtype="f16")
    return _Mask([scores] * heads, make.on_cpu(ops.reshape, kept, shape=(1, 1, shape[2], 1)))


# ---- attention -----------------------------------------------------------------------------------
def _attention(make: Builder, casts: F16Casts, node: Node) -> Value:
    q, k, v, mask = [*node.inputs, None][:4]
    assert q is not None
    assert k is not None
    assert v is not None
    if node.attrs["softcap"]:
        raise Refused("its scores are capped")
    queries, keys, values = (_heads(x) for x in (q, k, v))
    added = _mask(make, mask, len(queries))
    shared = len(queries) // len(keys)
    results = []
    for h, head in enumerate(queries):
        other = h // shared
        maps = head.map(make), keys[other].map(make), values[other].map(make)
        results.append(_one_head(make, *maps, added.heads[h], node.attrs["scale"]))
    column = results[0] if len(results) == 1 else make(concat, *results)
    if added.kept is not None:
        column = make(eltwise, column, added.kept, kind="mul", **SUM)
    _, heads, tokens, size = node.outputs[0].shape
    rows = make.from_column(column, (1, tokens, heads, size))
    turned = make.on_cpu(ops.transpose, rows, perm=(0, 2, 1, 3))
    return casts.back(turned, node.outputs[0])


def _one_head(
    make: Builder, q: Value, k: Value, v: Value, mask: Value | None, scale: float
) -> Value:
    """softmax(q k^T scale + mask) v: its columns [1, size, tokens, 1]."""
    scores = make(matmul, k, q, turned=True, factor=float(scale), **PRODUCT)
    if mask is not None:
        scores = make(eltwise, scores, mask, kind="add", **SUM, b_factor=1.0)
    most = _over_rows(make, scores, "max")
    table = constant(_table("exp"))
    weights = make(eltwise, scores, most, table, kind="add", **SUM, b_factor=-1.0)
    rate = make(lut, _over_rows(make, weights, "avg"), constant(_table("reciprocal")), base=0)
    share = {**SUM, "a_factor": 1 / k.shape[2]}  # means stand for sums
    weights = make(eltwise, weights, rate, kind="mul", **share)
    turned = _turned(make, v)
    result = make(matmul, turned, weights, turned=False, factor=1.0, **PRODUCT)
    return _turned(make, result)


def _turned(make: Builder, v: Value) -> Value:
    """Channels as rows, and rows as channels."""
    ones = np.eye(v.shape[1], dtype=np.float16)[None, ..., None]
    return make(matmul, constant(ones), v, turned=True, factor=1.0, **PRODUCT)


def _over_rows(make: Builder, v: Value, kind: str) -> Value:
    """The largest number or the mean of all rows, in one window, or in several that follow."""
    last: Refused | None = None
    for size in _sizes(v.shape[2]):
        window = {"pad": (0, 0, 0, 0), "dilation": (1, 1), "kernel": (size, 1), "kind": kind}
        stride = (1, 1) if size == v.shape[2] else (size, 1)
        try:
            found = make(pool, v, stride=stride, **window, dtype="f16")
            return found if found.shape[2] == 1 else _over_rows(make, found, kind)
        except Refused as e:
            last = last or e
    raise last or Refused("its keys have no windows")


def _sizes(rows: int) -> list[int]:
    """Windows that divide the rows, the largest first."""
    return [n for n in range(rows, 1, -1) if rows % n == 0] or [1]


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": lambda x: np.exp(np.minimum(x, 0)),
    "reciprocal": lambda x: 1 / np.maximum(x, 2.0**-14),
}


@cache
def _table(name: str) -> Array:
    return f16_arithmetic.piecewise_table(FUNCTIONS[name])[0]
