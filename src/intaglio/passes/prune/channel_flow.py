"""How channels pass through a node.

The channels of a tensor are the indices of one of its axes: the output axis of the convolution or
matmul that made it. A Flow says which channels of the operands correspond to which channels of the
result, so that they are removed together; which channels are constant; and how to rebuild the node
without some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.registry import REGISTRY

Mask = Array  # one bool per channel
Axes = Mapping[Value, int]  # the channel axis of every value that has one


@dataclass(frozen=True, slots=True)
class Known:
    """Channels that hold one constant everywhere, whatever the graph's inputs are."""

    mask: Mask
    data: Array  # the constant; undefined where the mask is not set

    @staticmethod
    def nothing(n: int, dtype: Any) -> Known:
        return Known(np.zeros(n, bool), np.zeros(n, dtype))

    @property
    def zero(self) -> Mask:
        return np.asarray(self.mask & (self.data == 0))


@dataclass(frozen=True, slots=True)
class Link:
    """Channel `inside[k]` of an operand is channel `outside[k]` of the result; None: all,
    in order.
    """

    operand: int
    inside: Array | None = None
    outside: Array | None = None


class Cuts:
    """Pruned constants; readers that shared a constant share the pruned one."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Value] = {}

    def once(self, v: Value, how: Hashable, data: Callable[[], Array]) -> Value:
        """The constant `data()`, made once for each value and key `how`."""
        key = id(v), how
        if key not in self._made:
            self._made[key] = constant(np.ascontiguousarray(data()), v.name)
        return self._made[key]

    def cut(self, v: Value, axis: int, at: Array) -> Value:
        """The constant at the indices `at` of an axis."""
        old = v.data
        assert old is not None
        if len(at) == v.shape[axis]:
            return v
        return self.once(v, (axis, at.tobytes()), lambda: old.take(at, axis))


@dataclass
class Kept:
    """The channels that stay: of every operand that has channels, and of the result."""

    operands: list[Mask | None]
    known: list[Known | None]  # of the operands
    result: Mask | None
    cuts: Cuts


class Flow:
    """A node that blocks channels: it needs all channels that it reads."""

    def __init__(self, node: Node, why: str = ""):
        self.node, self.operands = node, list(node.inputs)
        self.axis: int | None = None  # channel axis of the result
        self.links: list[Link] = []
        self.fixed: tuple[Mask, str] | None = None  # channels of the result that must stay, and why
        why = why or f"{name_of(node)} needs all channels"
        self.stops = {i: why for i, v in enumerate(node.inputs) if is_variable(v)}

    def known(self, operands: Sequence[Known | None]) -> Known:
        """The constant channels of the result, given those of the operands."""
        return Known.nothing(self.count, self.dtype)

    def missed(
        self, operands: Sequence[Known | None], result: Known | None, gone: Mask | None
    ) -> list[tuple[Mask, str]]:
        """Channels of the first operand that this node needs, and why.

        `gone` marks the channels that the result will not have.
        """
        return []

    def level(self, inside: Mask | None, outside: Mask) -> tuple[Mask | None, Mask]:
        """Of the removable channels of the first operand and the result, those that groups
        allow.
        """
        return inside, outside

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        """The node's result, computed from the pruned operands."""
        raise NotImplementedError(self.node.op)

    def remake(self, inputs: list[Any], **attrs: Any) -> Value:
        """The same op with other operands and, if given, other attributes."""
        n = self.node
        made: Value = REGISTRY[n.op](*inputs, origin=n.origin, **{**n.attrs, **attrs})
        return made

    @property
    def count(self) -> int:
        assert self.axis is not None
        return self.node.outputs[0].shape[self.axis]

    @property
    def dtype(self) -> Any:
        return dtypes.numpy_of(self.node.outputs[0].dtype)


def name_of(node: Node) -> str:
    return f"{node.op} '{node.origin}'" if node.origin else node.op


def is_variable(v: Value | None) -> bool:
    return v is not None and v.data is None


def uniform(v: Value, axis: int, count: int) -> Known:
    """The constant channels of a constant along `axis`; a negative axis means it has none."""
    assert v.data is not None
    if axis < 0 or v.shape[axis] != count:
        rows = v.data.reshape(1, -1)
    else:
        rows = np.moveaxis(v.data, axis, 0).reshape(count, -1)
    same = (rows == rows[:, :1]).all(1)
    return Known(np.broadcast_to(same, (count,)), np.broadcast_to(rows[:, 0], (count,)))


# ---- elementwise ---------------------------------------------------------------------------------
class Elementwise(Flow):
    """Channel i of the result depends on channel i of every operand that is not broadcast."""

    def __init__(self, node: Node, axes: Axes):
        super().__init__(node, f"{name_of(node)} broadcasts them")
        out = node.outputs[0]
        rank = out.type.rank
        self.shifts = [0 if v is None else rank - v.type.rank for v in node.inputs]
        found = {
            axes[v] + shift
            for v, shift in zip(node.inputs, self.shifts, strict=True)
            if v is not None and v in axes and v.shape[axes[v]] == out.shape[axes[v] + shift]
        }
        if len(found) != 1:
            if found:
                why = f"{name_of(node)} combines channels of different axes"
                self.stops = dict.fromkeys(self.stops, why)
            return
        self.axis = found.pop()
        for i, v in enumerate(node.inputs):
            if v is None or v.data is not None:
                continue
            at = self.axis - self.shifts[i]
            if v in axes and axes[v] == at and v.shape[at] == self.count:
                self.links.append(Link(i))
                del self.stops[i]
            elif at >= 0 and v.shape[at] == self.count:
                why = f"{name_of(node)} combines them with '{v.name or 'a tensor'}'"
                self.fixed = np.ones(self.count, bool), why
                self.stops[i] = why

    def known(self, operands: Sequence[Known | None]) -> Known:
        assert self.axis is not None
        count, linked = self.count, {link.operand for link in self.links}
        if not any(k.mask.any() for i, k in enumerate(operands) if i in linked and k) and (
            self.node.op != "mul"
        ):
            return super().known(operands)
        facts: list[Known | None] = []
        for i, (v, k) in enumerate(zip(self.operands, operands, strict=True)):
            if v is not None and v.data is not None:
                facts.append(uniform(v, self.axis - self.shifts[i], count))
            else:
                facts.append(k if i in linked else None)
        mask = np.logical_and.reduce(
            [np.zeros(count, bool) if f is None else f.mask for f in facts]
        )
        data = np.zeros(count, self.dtype)
        if mask.any():
            rows = [np.ones(count, bool) if f is None else f.data for f in facts]
            data = self._evaluate([r[mask] for r in rows], mask, data)
        if self.node.op == "mul":
            zero = np.logical_or.reduce([f.zero for f in facts if f is not None] or [mask & False])
            data[zero] = 0
            mask = mask | zero
        return Known(mask, data)

    def _evaluate(self, rows: list[Array], mask: Mask, data: Array) -> Array:
        with np.errstate(all="ignore"):
            data[mask] = REGISTRY[self.node.op].body(*rows, **self.node.attrs)
        return data

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        if self.axis is None or kept.result is None:
            return self.remake(inputs)
        at = np.flatnonzero(kept.result)
        for i, v in enumerate(self.operands):
            axis = self.axis - self.shifts[i]
            if v is not None and v.data is not None and axis >= 0 and v.shape[axis] == self.count:
                inputs[i] = kept.cuts.cut(v, axis, at)
        return self.remake(inputs)
