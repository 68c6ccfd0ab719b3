"""Ops that sum over the channels of their operand: convolutions, matmuls, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.passes.prune.channel_flow import (
    Axes,
    Flow,
    Kept,
    Known,
    Mask,
    is_variable,
    name_of,
    uniform,
)
from intaglio.passes.prune.channelwise import channelwise

CONVOLUTIONS = {"conv": 2, "conv_transpose": 2, "deform_conv": 3}  # index of the bias operand
SUMS = ("reduce_sum", "reduce_l1", "reduce_l2", "reduce_sum_square")


class Product(Flow):
    """A grouped convolution or matmul with constant weights: each group makes `many` channels from
    `few`.
    """

    weights: Array  # group, result channel, operand channel, kernel position
    shift: Array | None  # the bias per channel; None: not constant
    factor = 1.0  # alpha of a gemm
    even = True  # no padding: every output position sees the whole kernel

    def __init__(self, node: Node, axis: int, x_axis: int, axes: Axes):
        super().__init__(node)
        self.axis, x = axis, node.inputs[0]
        assert x is not None
        self.reads = axes.get(x) == x_axis  # does it sum over the channels of x?
        if self.reads:
            self.stops.pop(0)

    @cached_property
    def nonzero(self) -> Array:
        """Group × result channel × operand channel: is any weight nonzero?"""
        return np.asarray((self.weights != 0).any(3))

    def _columns(self, rows: Mask) -> Array:
        """Group × operand channel: has it a nonzero weight in these rows?"""
        groups, many, few, _ = self.weights.shape
        alive = rows.reshape(groups, many)
        first = self.weights[np.arange(groups), alive.argmax(1), :, 0]  # a row of each group
        if (first != 0).all() and alive.any(1).all():  # a quick test that nearly always suffices
            return np.ones((groups, few), bool)
        return np.asarray((self.nonzero & alive[:, :, None]).any(1))

    def _rows(self, columns: Mask) -> Array:
        """Group × result channel: has it a nonzero weight in these columns?"""
        groups, many, few, _ = self.weights.shape
        alive = columns.reshape(groups, few)
        first = self.weights[np.arange(groups), :, alive.argmax(1), 0]
        if (first != 0).all() and alive.any(1).all():
            return np.ones((groups, many), bool)
        return np.asarray((self.nonzero & alive[:, None, :]).any(2))

    def _constants(self, operands: Sequence[Known | None]) -> tuple[Mask, Array]:
        """Operand channels that can be folded into the bias, and their values."""
        groups, _, few, _ = self.weights.shape
        k = operands[0] if self.reads else None
        if k is None:
            return np.zeros(groups * few, bool), np.zeros(groups * few)
        mask = k.zero if not self.even or self.shift is None else k.mask
        return mask, np.where(mask, k.data, 0).astype(np.float64)

    def moved_shift(self, mask: Mask, data: Array) -> Array:
        """What the operand channels in `mask` add to each channel of the result."""
        groups, many, few, _ = self.weights.shape
        full = np.where(mask, data, 0).astype(np.float64).reshape(groups, 1, few)
        if not full.any():
            return np.zeros(groups * many)
        at = np.flatnonzero(full.any((0, 1)))
        return np.asarray(
            self.factor
            * (self.weights[:, :, at].sum(3, dtype=np.float64) * full[:, :, at]).sum(2).reshape(-1)
        )

    def known(self, operands: Sequence[Known | None]) -> Known:
        mask, data = self._constants(operands)
        dead = ~self._rows(~mask).reshape(-1)
        if self.shift is None or not dead.any():
            return super().known(operands)
        result = self.shift + self.moved_shift(mask, data)
        return Known(dead, np.where(dead, result, 0).astype(self.dtype))

    def missed(
        self, operands: Sequence[Known | None], result: Known | None, gone: Mask | None
    ) -> list[tuple[Mask, str]]:
        if not self.reads:
            return []
        assert gone is not None
        here = name_of(self.node)
        needed = self._columns(~gone).reshape(-1)
        mask, _ = self._constants(operands)
        k = operands[0]
        assert k is not None
        others = needed & k.mask & ~mask  # constants that cannot be folded into the bias
        if others.any() and (one := self._representative(k)) is not None:
            others = np.arange(len(others)) == one
        found = [
            (others, f"they are not 0, and {here} has padding"),
            (needed & ~k.mask, f"{here} reads them"),
        ]
        if not (needed & ~mask).any() and not self._stays(result, gone):
            first = np.zeros(self.weights.shape[::2], bool)  # an op needs at least one channel
            first[:, 0] = True
            found.append((first.reshape(-1), f"{here} needs at least one channel"))
        return found

    def _representative(self, k: Known) -> int | None:
        """Of constants that cannot be folded into the bias, the channel that represents all."""
        return int(np.abs(np.where(k.mask, k.data, 0)).argmax()) if len(self.weights) == 1 else None

    def represented(self, columns: Mask, k: Known | None) -> tuple[int, Array]:
        """The channel that represents other constants, and the ratio of each to it."""
        lost = np.zeros(len(columns)) if k is None else np.where(columns | ~k.mask, 0, k.data)
        one = None if k is None or self.even or not lost.any() else self._representative(k)
        if k is None or one is None or not columns[one]:
            return 0, np.zeros(len(columns))
        return one, lost.astype(np.float64) / np.float64(k.data[one])

    @staticmethod
    def _stays(result: Known | None, gone: Mask) -> bool:
        """Are all remaining channels of the result constant?"""
        return result is not None and bool((result.mask | gone).all())

    def level(self, inside: Mask | None, outside: Mask) -> tuple[Mask | None, Mask]:
        """Remove whole groups, and equally many channels from each remaining group."""
        groups, many, few, _ = self.weights.shape
        if groups == 1:
            return inside, outside
        ins = (np.zeros(groups * few, bool) if inside is None else inside).reshape(groups, few)
        outs = outside.reshape(groups, many)
        whole = np.asarray(ins.all(1) & outs.all(1))
        going = _evenly(outs, whole).reshape(-1)
        return None if inside is None else _evenly(ins, whole).reshape(-1), going

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        groups, many, few, _ = self.weights.shape
        rows = np.ones(groups * many, bool) if kept.result is None else kept.result
        columns = self._columns_of(kept)
        ins, outs = columns.reshape(groups, few), rows.reshape(groups, many)
        left = np.flatnonzero(ins.any(1) | outs.any(1))
        pick = [np.nonzero(m[left])[1].reshape(len(left), -1) for m in (outs, ins)]
        shift = np.zeros(0)
        if not columns.all():
            _, data = self._constants(kept.known)
            shift = self.moved_shift(~columns, data)[rows]
        return self._rebuilt(kept, inputs, left, pick[0], pick[1], np.flatnonzero(rows), shift)

    def _columns_of(self, kept: Kept) -> Mask:
        """The operand channels that stay."""
        columns = kept.operands[0] if self.reads else None
        every = self.weights.shape[0] * self.weights.shape[2]
        return np.ones(every, bool) if columns is None else columns

    def _rebuilt(
        self,
        kept: Kept,
        inputs: list[Any],
        groups: Array,
        rows: Array,
        columns: Array,
        at: Array,
        shift: Array,
    ) -> Value:
        raise NotImplementedError


def _evenly(going: Array, whole: Mask) -> Array:
    """Let each remaining group lose only as many channels as the group that loses fewest."""
    if whole.all():
        return going
    least = going[~whole].sum(1).min()
    return np.asarray(whole[:, None] | (going & (np.cumsum(going, 1) <= least)))


class Convolution(Product):
    """conv, conv_transpose and deform_conv."""

    def __init__(self, node: Node, axes: Axes):
        super().__init__(node, 1, 1, axes)
        w, groups = node.inputs[1], node.attrs["groups"]
        assert w is not None
        assert w.data is not None
        self.bias = node.inputs[CONVOLUTIONS[node.op]]
        split = w.data.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
        self.weights = split if node.op != "conv_transpose" else split.transpose(0, 2, 1, 3)
        self.even = node.op == "conv" and not any(node.attrs["pad"])
        self.shift = np.zeros(self.count)
        if is_variable(self.bias):
            self.shift = None
            self.fixed = np.ones(self.count, bool), f"the bias of {name_of(node)} is not constant"
        elif self.bias is not None:
            self.shift = np.asarray(self.bias.data, np.float64)
        if self.reads and node.attrs.get("offset_groups", 1) > 1:
            self.reads, self.stops[0] = False, f"{name_of(node)} has several offset groups"

    def _rebuilt(
        self,
        kept: Kept,
        inputs: list[Any],
        groups: Array,
        rows: Array,
        columns: Array,
        at: Array,
        shift: Array,
    ) -> Value:
        w = self.operands[1]
        assert w is not None
        assert w.data is not None
        one, times = self.represented(self._columns_of(kept), kept.known[0])
        how = tuple(a.tobytes() for a in (groups, rows, columns, times))
        inputs[1] = kept.cuts.once(w, how, lambda: self._cut(groups, rows, columns, one, times))
        place = CONVOLUTIONS[self.node.op]
        if self.bias is not None and self.bias.data is not None:
            inputs[place] = kept.cuts.cut(self.bias, 0, at)
        if shift.any():
            assert self.shift is not None
            result = (self.shift[at] + shift).astype(w.data.dtype)
            inputs[place] = constant(result, self.bias.name if self.bias else "")
        return self.remake(inputs, groups=len(groups))

    def _cut(self, groups: Array, rows: Array, columns: Array, one: int, times: Array) -> Array:
        """The weights of the kept channels; channel `one` takes over `times` each other channel."""
        data, transposed = self.operands[1].data, self.node.op == "conv_transpose"  # type: ignore[union-attr]
        assert data is not None
        if times.any():
            wide = np.moveaxis(data, 0 if transposed else 1, -1).astype(np.float64)
            wide[..., one] += wide @ times
            data = np.moveaxis(wide, -1, 0 if transposed else 1).astype(data.dtype)
        split = data.reshape(self.node.attrs["groups"], -1, *data.shape[1:])
        first, second = (columns, rows) if transposed else (rows, columns)
        cut = split[groups[:, None, None], first[:, :, None], second[:, None, :]]
        return np.asarray(cut.reshape(-1, *cut.shape[2:]))


class Matrix(Product):
    """matmul and gemm with a constant matrix on the right."""

    def __init__(self, node: Node, axes: Axes):
        x, w = node.inputs[:2]
        assert x is not None
        assert w is not None
        assert w.data is not None
        rank = node.outputs[0].type.rank
        super().__init__(node, rank - 1, x.type.rank - 1, axes)
        self.transposed = bool(node.attrs.get("trans_b", False))
        matrix = w.data if self.transposed else w.data.T
        self.weights = matrix[None, :, :, None]
        self.factor = float(node.attrs.get("alpha", 1.0))
        self.shift = np.zeros(self.count)
        c = node.inputs[2] if node.op == "gemm" else None
        if c is not None and c.data is not None:
            added = uniform(c, c.type.rank - 1, self.count)
            wide = np.asarray(added.data, np.float64) * float(node.attrs["beta"])
            self.shift = wide if added.mask.all() else None
        elif c is not None:
            self.shift = None
            if c.type.rank and c.shape[-1] == self.count:
                why = f"{name_of(node)} adds '{c.name or 'a tensor'}' to them"
                self.fixed = np.ones(self.count, bool), why

    def _rebuilt(
        self,
        kept: Kept,
        inputs: list[Any],
        groups: Array,
        rows: Array,
        columns: Array,
        at: Array,
        shift: Array,
    ) -> Value:
        w = self.operands[1]
        assert w is not None
        assert w.data is not None
        data, how = w.data, (rows.tobytes(), columns.tobytes())
        picked = np.ix_(rows[0], columns[0]) if self.transposed else np.ix_(columns[0], rows[0])
        inputs[1] = kept.cuts.once(w, how, lambda: data[picked])
        c = inputs[2] if self.node.op == "gemm" else None
        if c is not None and c.data is not None and c.type.rank and c.shape[-1] == self.count > 1:
            inputs[2] = kept.cuts.cut(c, c.type.rank - 1, at)
        y = self.remake(inputs)
        return ops.add(y, constant(shift.astype(w.data.dtype))) if shift.any() else y


class Sum(Flow):
    """A sum over all channels: zeros add nothing."""

    def __init__(self, node: Node):
        super().__init__(node)
        self.stops = {}

    def missed(
        self, operands: Sequence[Known | None], result: Known | None, gone: Mask | None
    ) -> list[tuple[Mask, str]]:
        assert operands[0] is not None
        stays = ~operands[0].zero
        stays[0] = stays[0] or not stays.any()  # an op needs at least one channel
        return [(stays, f"{name_of(self.node)} sums them")]

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        return self.remake(inputs)


def convolution(node: Node, axes: Axes) -> Flow:
    w = node.inputs[1]
    if w is None or w.data is None:
        return Flow(node, f"the weights of {name_of(node)} are not constant")
    return Convolution(node, axes)


def matrix(node: Node, axes: Axes) -> Flow:
    x, w = node.inputs[:2]
    plain = x is not None and w is not None and w.data is not None and w.type.rank == 2
    if not plain or node.attrs.get("trans_a") or not dtypes.is_float(node.outputs[0].dtype):
        return Flow(node, f"{name_of(node)} has no constant matrix on the right")
    return Matrix(node, axes)


def reduction(node: Node, axes: Axes) -> Flow:
    x = node.inputs[0]
    adds = x is not None and x in axes and axes[x] in node.attrs["axes"] and node.op in SUMS
    return Sum(node) if adds else channelwise(node, axes)
