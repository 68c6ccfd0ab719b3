"""Find the channels that can be removed: constants by a forward pass, unread ones backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array, Graph, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.prune import attention_heads, channel_mixing, data_movement
from intaglio.passes.prune.channel_flow import Axes, Elementwise, Flow, Known, Link, Mask, name_of
from intaglio.passes.prune.channelwise import TABLE, channelwise

_FLOWS: dict[str, Callable[[Node, Axes], Flow]] = {
    **dict.fromkeys(TABLE, channelwise),
    **dict.fromkeys(channel_mixing.CONVOLUTIONS, channel_mixing.convolution),
    **dict.fromkeys(("matmul", "gemm"), channel_mixing.matrix),
    **dict.fromkeys(channel_mixing.SUMS, channel_mixing.reduction),
    **dict.fromkeys(("depth_to_space", "space_to_depth"), data_movement.blocks),
    "attention": attention_heads.heads,
    "channel_shuffle": data_movement.shuffle,
    "concat": data_movement.concat,
    "slice": data_movement.slice_,
    "gather": data_movement.gather,
    "reshape": data_movement.reshape,
    "pad": data_movement.pad,
}


def flow_of(node: Node, axes: Axes) -> Flow:
    """How channels pass through a node; most nodes block them."""
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    if len(node.outputs) != 1 or any(
        v.type.dynamic or v.type.quant or not v.type.size for v in values
    ):
        return Flow(node)
    if REGISTRY[node.op].elementwise:
        return Elementwise(node, axes)
    result = _FLOWS.get(node.op)
    return Flow(node) if result is None else result(node, axes)


class Analysis:
    """The constant and the removable channels of every value of a graph.

    At first all channels are removable. Then each node keeps the channels that it needs, and linked
    channels are kept together, until nothing changes. The rest is the largest set that can be
    removed at once.
    """

    def __init__(self, graph: Graph):
        self.nodes = list(graph.nodes())
        self.axes: dict[Value, int] = {}
        self.flows: dict[Node, Flow] = {}
        self.known: dict[Value, Known] = {}
        for node in self.nodes:
            flow = self.flows[node] = flow_of(node, self.axes)
            if flow.axis is not None:
                (out,) = node.outputs
                self.axes[out] = flow.axis
                self.known[out] = _finite(flow.known(self.facts(flow)))
        self.gone = {v: np.ones(v.shape[a], bool) for v, a in self.axes.items()}
        self.words: list[str] = []
        self.blame = {v: np.full(len(m), -1) for v, m in self.gone.items()}
        self._dirty: set[Node] = set()
        self._settle(graph)

    def facts(self, flow: Flow) -> list[Known | None]:
        """The constant channels of a node's operands."""
        return [None if v is None else self.known.get(v) for v in flow.operands]

    def constant(self, v: Value) -> bool:
        """Are all remaining channels of a value constant?"""
        return v in self.known and bool((self.known[v].mask | self.gone[v]).all())

    def why(self, v: Value, mask: Mask) -> Iterable[tuple[str, int]]:
        """The reasons why the channels in `mask` stay, each with its count."""
        reasons, counts = np.unique(self.blame[v][mask & ~self.gone[v]], return_counts=True)
        return [(self.words[r], int(n)) for r, n in zip(reasons, counts, strict=True)]

    # ---- keeping channels ----------------------------------------------------------------------
    def _settle(self, graph: Graph) -> None:
        for name, v in zip(graph.output_names, graph.outputs, strict=True):
            if v in self.gone:
                self._keep(v, np.ones_like(self.gone[v]), f"they are part of output '{name}'")
        for node, flow in self.flows.items():
            for i, why in flow.stops.items():
                x = flow.operands[i]
                if x in self.gone:
                    self._keep(x, np.ones_like(self.gone[x]), why)
            if flow.fixed is not None:
                self._keep(node.outputs[0], *flow.fixed)
        moving = [n for n, f in self.flows.items() if any(v in self.gone for v in _around(n))]
        self._dirty = set(moving)
        backwards = True
        while self._dirty:
            for node in reversed(moving) if backwards else moving:
                if node in self._dirty:
                    self._dirty.discard(node)
                    self._visit(node, self.flows[node])
            backwards = not backwards

    def _visit(self, node: Node, flow: Flow) -> None:
        out, x = node.outputs[0], flow.operands[0] if flow.operands else None
        for link in flow.links:
            self._join(node, flow, link)
        if x not in self.gone or flow.stops.get(0):
            x = None
        if x is not None:
            facts = self.facts(flow)
            for mask, why in flow.missed(facts, self.known.get(out), self.gone.get(out)):
                self._keep(x, mask, why)
        if out in self.gone:
            inside, outside = flow.level(None if x is None else self.gone[x], self.gone[out])
            why = f"every group of {name_of(node)} must lose the same number"
            self._keep(out, ~outside, why)
            if x is not None and inside is not None:
                self._keep(x, ~inside, why)

    def _join(self, node: Node, flow: Flow, link: Link) -> None:
        """Keep linked channels of an operand and the result together."""
        a, out = flow.operands[link.operand], node.outputs[0]
        assert a is not None
        if link.inside is None or link.outside is None:
            if (self.gone[a] == self.gone[out]).all():
                return
            self._keep(out, ~self.gone[a], self.blame[a])
            blame = self.blame[out]
            if len(flow.links) > 1 and (self.known[a].mask & ~self.gone[out]).any():
                varies = self.known[a].mask & ~self.known[out].mask
                why = self._word(
                    f"{name_of(node)} combines them with channels that are not constant"
                )
                blame = np.where(varies, why, blame)
            self._keep(a, ~self.gone[out], blame)
            return
        self._keep(out, *self._over(a, link.inside, link.outside, self.gone[out]))
        self._keep(a, *self._over(out, link.outside, link.inside, self.gone[a]))

    def _over(self, v: Value, here: Array, there: Array, like: Mask) -> tuple[Mask, Array]:
        """The kept channels of `v`, with reasons, as channels at the other end of a link."""
        stays, why = np.zeros_like(like), np.full(len(like), -1)
        kept = ~self.gone[v][here]
        stays[there[kept]], why[there[kept]] = True, self.blame[v][here[kept]]
        return stays, why

    def _keep(self, v: Value, mask: Mask, why: str | Array) -> None:
        back = mask & self.gone[v]
        if not back.any():
            return
        self.gone[v] = self.gone[v] & ~mask
        self.blame[v][back] = self._word(why) if isinstance(why, str) else why[back]
        if v.producer is not None:
            self._dirty.add(v.producer)
        self._dirty.update(n for n in v.uses if n in self.flows)

    def _word(self, why: str) -> int:
        self.words.append(why)
        return len(self.words) - 1


def _around(node: Node) -> list[Value]:
    return [v for v in (*node.inputs, *node.outputs) if v is not None]


def _finite(k: Known) -> Known:
    if not k.mask.any():
        return k
    data = np.asarray(k.data)
    wide = data.astype(np.float64) if dtypes.is_float(dtypes.name_of(data.dtype)) else data
    return Known(k.mask & np.isfinite(wide), data)
