"""Ops that reorder channels: concat, slice, gather, reshape, pad, depth_to_space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.passes.permuted_ops import axis_groups
from intaglio.passes.prune.channel_flow import Axes, Flow, Kept, Known, Link, Mask, name_of, uniform
from intaglio.passes.prune.channelwise import channelwise

END = 2**62  # a slice's stop for "to the end"


class Moved(Flow):
    """Channels of the result are channels of the operands, in another order or number."""

    def __init__(self, node: Node, axis: int, links: list[Link], build: Callable[..., Value]):
        super().__init__(node)
        self.axis, self.links, self._build = axis, links, build
        self.filled: list[tuple[Array, Known]] = []  # channels that come from no operand
        self.value: float | None = None  # the pad value around each channel
        for link in links:
            self.stops.pop(link.operand, None)

    def known(self, operands: Sequence[Known | None]) -> Known:
        mask, data = np.zeros(self.count, bool), np.zeros(self.count, self.dtype)
        sources = [(link, k) for link in self.links if (k := operands[link.operand]) is not None]
        for link, k in sources:  # several may merge into one, which is constant if they are equal
            at = slice(None) if link.outside is None else link.outside
            mask[at] = True
            data[at] = k.data if link.inside is None else k.data[link.inside]
        for link, k in sources:
            where = np.arange(self.count) if link.outside is None else link.outside
            inside = slice(None) if link.inside is None else link.inside
            mask[where[~k.mask[inside] | (k.data[inside] != data[where])]] = False
        for where, k in self.filled:
            mask[where], data[where] = k.mask, k.data
        if self.value is not None:
            mask &= data == self.value
        return Known(mask, data)

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        return self._build(self, kept, inputs)


def _resized(flow: Flow, kept: Kept) -> tuple[int, ...]:
    """The shape of the result without the removed channels."""
    assert kept.result is not None
    shape = list(flow.node.outputs[0].shape)
    shape[flow.axis] = int(kept.result.sum())  # type: ignore[index]
    return tuple(shape)


# ---- concat --------------------------------------------------------------------------------------
def concat(node: Node, axes: Axes) -> Flow:
    """Along the channel axis channels are appended; along another axis they are combined."""
    at = node.attrs["axis"] % node.outputs[0].type.rank
    found = {axes[v] for v in node.inputs if v is not None and v in axes}
    if len(found) != 1:
        return Flow(node, f"{name_of(node)} combines channels of different axes" if found else "")
    axis = found.pop()
    flow = Moved(node, axis, [], _concat_along if axis == at else _concat_across)
    fixed, why, start = np.zeros(flow.count, bool), "", 0
    for i, v in enumerate(node.inputs):
        assert v is not None
        n = v.shape[axis]
        where = np.arange(start, start + n) if axis == at else np.arange(n)
        if v in axes:
            flow.links.append(Link(i, np.arange(n), where))
            flow.stops.pop(i, None)
        elif v.data is not None and axis == at:
            flow.filled.append((where, uniform(v, axis, n)))
        elif v.data is None:
            fixed[where], why = True, f"{name_of(node)} combines them with '{v.name or 'a tensor'}'"
        else:
            flow.value = np.nan  # nothing is constant: the other constant is not compared
        start += n if axis == at else 0
    if why:
        flow.fixed = fixed, why
    return flow


def _concat_along(flow: Moved, kept: Kept, inputs: list[Any]) -> Value:
    assert kept.result is not None
    assert flow.axis is not None
    left, start = [], 0
    for v, x in zip(flow.operands, inputs, strict=True):
        assert v is not None
        n = v.shape[flow.axis]
        at = np.flatnonzero(kept.result[start : start + n])
        if len(at):
            left.append(x if v.data is None else kept.cuts.cut(v, flow.axis, at))
        start += n
    return left[0] if len(left) == 1 else flow.remake(left)


def _concat_across(flow: Moved, kept: Kept, inputs: list[Any]) -> Value:
    assert kept.result is not None
    assert flow.axis is not None
    at = np.flatnonzero(kept.result)
    for i, v in enumerate(flow.operands):
        if v is not None and v.data is not None:
            inputs[i] = kept.cuts.cut(v, flow.axis, at)
    return flow.remake(inputs)


# ---- slice and gather ----------------------------------------------------------------------------
def slice_(node: Node, axes: Axes) -> Flow:
    x = node.inputs[0]
    if x is None or x not in axes:
        return Flow(node)
    axis = axes[x]
    cut = (node.attrs[k][axis] for k in ("start", "stop", "step"))
    inside = np.arange(x.shape[axis])[slice(*cut)]
    return Moved(node, axis, [Link(0, inside, np.arange(len(inside)))], _sliced)


def _places(flow: Moved, kept: Kept) -> Array:
    """The positions of the result's kept channels among the operand's kept channels."""
    before, inside = kept.operands[0], flow.links[0].inside
    assert before is not None
    assert inside is not None
    return np.asarray((np.cumsum(before) - 1)[inside[kept.result]])


def _sliced(flow: Moved, kept: Kept, inputs: list[Any]) -> Value:
    at, axis = _places(flow, kept), flow.axis
    assert axis is not None
    steps = set(np.diff(at).tolist())
    first, step = int(at[0]), steps.pop() if len(steps) == 1 else 1
    if steps:  # no longer evenly spaced
        inputs[0], first, last = ops.gather(inputs[0], constant(at), axis=axis), 0, END
    else:
        last = first + step * len(at)
        last = last if last >= 0 else -END

    def put(name: str, value: int) -> tuple[int, ...]:
        old = flow.node.attrs[name]
        return (*old[:axis], value, *old[axis + 1 :])

    return flow.remake(
        inputs, start=put("start", first), stop=put("stop", last), step=put("step", step)
    )


class Picked(Flow):
    """One channel is read; the others are unread."""

    def __init__(self, node: Node, one: int, count: int):
        super().__init__(node)
        self.stops.pop(0)
        self.one, self.n = one, count

    def missed(
        self, operands: Sequence[Known | None], result: Known | None, gone: Mask | None
    ) -> list[tuple[Mask, str]]:
        return [(np.arange(self.n) == self.one, f"{name_of(self.node)} reads them")]

    def build(self, kept: Kept, inputs: list[Any]) -> Value:
        before = kept.operands[0]
        assert before is not None
        return self.remake([inputs[0], constant(before[: self.one].sum())])


def gather(node: Node, axes: Axes) -> Flow:
    x, indices = node.inputs[:2]
    if x is None or x not in axes or indices is None or node.attrs["axis"] % x.type.rank != axes[x]:
        return channelwise(node, axes)
    n = x.shape[axes[x]]
    if indices.data is None or indices.type.rank > 1:
        return Flow(node, f"{name_of(node)} selects them by indices {indices.type}")
    at = np.asarray(indices.data, np.int64)
    if at.min(initial=0) < -n or at.max(initial=0) >= n:
        return Flow(node, f"{name_of(node)} has indices out of range")
    at = at % n
    if not indices.type.rank:
        return Picked(node, int(at), n)
    return Moved(node, axes[x], [Link(0, at, np.arange(len(at)))], _gathered)


def shuffle(node: Node, axes: Axes) -> Flow:
    """channel_shuffle: the same channels in another order."""
    x, groups = node.inputs[0], node.attrs["groups"]
    if x is None or axes.get(x) != 1:
        return channelwise(node, axes)
    n = x.shape[1]
    return Moved(node, 1, [Link(0, _shuffled_order(n, groups), np.arange(n))], _shuffled)


def _shuffled_order(n: int, groups: int) -> Array:
    return np.arange(n).reshape(groups, -1).T.reshape(-1)


def _shuffled(flow: Moved, kept: Kept, inputs: list[Any]) -> Value:
    at, groups = _places(flow, kept), flow.node.attrs["groups"]
    if len(at) % groups or (at != _shuffled_order(len(at), groups)).any():
        result: Value = ops.gather(inputs[0], constant(at), axis=1, origin=flow.node.origin)
        return result
    return flow.remake(inputs)


def _gathered(flow: Moved, kept: Kept, inputs: list[Any]) -> Value:
    return flow.remake([inputs[0], constant(_places(flow, kept))])


# ---- reshape -------------------------------------------------------------------------------------
def reshape(node: Node, axes: Axes) -> Flow:
    """A reshape that keeps channels contiguous: it splits each into several, or merges several into
    one.
    """
    x, out = node.inputs[0], node.outputs[0]
    if x is None or x not in axes:
        return Flow(node)
    axis, n = axes[x], x.shape[axes[x]]
    ins, outs = next(g for g in axis_groups(x.shape, out.shape) if axis in g[0])
    wide = [a for a in outs if out.shape[a] != 1]
    alone = all(x.shape[a] == 1 for a in ins if a != axis)
    if n == 1 or not (len(wide) == 1 or alone):
        return Flow(node, f"{name_of(node)} regroups them")
    result = out.shape[wide[0]]
    if len(wide) > 1:
        link = Link(0, np.arange(n), np.arange(n) // (n // result))
    else:
        inner = int(np.prod([x.shape[a] for a in ins if a > axis], dtype=np.int64))
        link = Link(0, np.arange(result) // inner % n, np.arange(result))
    return Moved(node, wide[0], [link], _reshaped)


def _reshaped(flow: Moved, kept: Kept, inputs: list[Any]) -> Value:
    return flow.remake(inputs, shape=_resized(flow, kept))


# ---- pad and depth_to_space ----------------------------------------------------------------------
def pad(node: Node, axes: Axes) -> Flow:
    x = node.inputs[0]
    if x is None or x not in axes:
        return Flow(node)
    axis, n = axes[x], x.shape[axes[x]]
    before, value = node.attrs["before"][axis], node.attrs["value"]
    if node.attrs["mode"] != "constant" or n == node.outputs[0].shape[axis]:
        return channelwise(node, axes)
    flow = Moved(node, axis, [Link(0, np.arange(n), np.arange(before, before + n))], _padded)
    around = any(p and a != axis for a, p in enumerate(map(max, *_sides(node))))
    flow.value = value if around else None
    new = np.setdiff1d(np.arange(flow.count), np.arange(before, before + n))
    flow.filled = [(new, Known(np.ones(len(new), bool), np.full(len(new), value, flow.dtype)))]
    return flow


def _sides(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return node.attrs["before"], node.attrs["after"]


def _padded(flow: Moved, kept: Kept, inputs: list[Any]) -> Value:
    axis, node = flow.axis, flow.node
    assert kept.result is not None
    assert axis is not None
    before, after = map(list, _sides(node))
    cut = len(kept.result) - after[axis]
    before[axis], after[axis] = kept.result[: before[axis]].sum(), kept.result[cut:].sum()
    return flow.remake(inputs, before=tuple(map(int, before)), after=tuple(map(int, after)))


def blocks(node: Node, axes: Axes) -> Flow:
    """depth_to_space and space_to_depth: one channel and the blocksize² channels of its pixels."""
    x, out = node.inputs[0], node.outputs[0]
    if x is None or axes.get(x) != 1:
        return Flow(node)
    few, many = sorted((x.shape[1], out.shape[1]))
    inner = np.arange(many)
    inner = inner % few if node.attrs["mode"] == "DCR" else inner // (many // few)
    ends = (np.arange(many), inner) if node.op == "depth_to_space" else (inner, np.arange(many))
    return Moved(node, 1, [Link(0, *ends)], lambda flow, kept, inputs: flow.remake(inputs))
