"""Lossless channel pruning: remove channels that are constant or unread, with all their weights.

A channel whose weights are all zero is constant: it equals its bias. A channel that all readers
multiply by zero is unread. Both are removed from the weights on either side and from every op in
between: activations, residual sums, gates, concats, groups. Outputs keep their shape and, up to the
order of sums, their values.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio import ops, symint
from intaglio.ir import Graph, Node, Value, constant
from intaglio.ops.complexity import Complexity, complexity
from intaglio.passes.prune.analysis import Analysis
from intaglio.passes.prune.channel_flow import Cuts, Elementwise, Flow, Kept
from intaglio.passes.prune.channel_mixing import Product
from intaglio.passes.prune.prefilter import any_dead
from intaglio.rewrite import ANY, Rule, Trace, no

MAX_ROUNDS = 8  # channels removed in one round may free more in the next


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning saved: channels of convolutions and matmuls, weights and work."""

    channels: tuple[int, int]  # before and after
    before: Complexity
    after: Complexity

    def to_dict(self) -> dict[str, list[int]]:
        """Values before and after, by name."""
        names = ("parameters", "parameter_bytes", "macs")
        both = {n: [getattr(self.before, n), getattr(self.after, n)] for n in names}
        return {"channels": list(self.channels), **both}

    def __str__(self) -> str:
        first, last = self.channels
        weights = _share(self.before.parameters, self.after.parameters)
        return (
            f"{first - last:,} of {first:,} channels, weights {weights}, "
            f"MACs {_share(self.before.macs, self.after.macs)}"
        )


def _share(before: int, after: int) -> str:
    percent = 100 * (before - after) / before if before else 0.0
    return f"-{before - after:,} (-{percent:.1f} %)"


def prune_channels(graph: Graph, trace: Trace) -> Pruned | None:
    """Remove dead channels from the graph; returns what that saved, or None if nothing."""
    graph.tidy()
    if not any_dead(graph):
        return None
    found = Analysis(graph)
    first, before = _channels(found), complexity(graph)
    for i in range(MAX_ROUNDS + 1):
        if i == MAX_ROUNDS or not _Rebuild(graph, found, trace).changed:
            break
        graph.tidy()
        found = Analysis(graph)
    _report_kept(found, trace)
    result = Pruned((first, _channels(found)), before, complexity(graph))
    return result if result.channels[1] < first or result.after.macs < before.macs else None


RULE = Rule(ANY, prune_channels)  # the name for --explain and --disable


def _channels(found: Analysis) -> int:
    return sum(f.count for f in found.flows.values() if isinstance(f, Product))


def _report_kept(found: Analysis, trace: Trace) -> None:
    """Report for every convolution or matmul why its dead channels stay."""
    for node, flow in found.flows.items():
        if isinstance(flow, Product):
            out = node.outputs[0]
            for words, n in found.why(out, found.known[out].mask):
                trace(RULE, node, no(f"kept {n} dead channel{'s' * (n > 1)}: {words}"))


class _Rebuild:
    """Rebuilds the graph in place without the removable channels, producers first."""

    def __init__(self, graph: Graph, found: Analysis, trace: Trace):
        self.graph, self.found = graph, found
        self.changed = False
        self._cuts = Cuts()
        self._rows: dict[Value, Value] = {}  # expanded constant -> the constant
        for node, flow in found.flows.items():
            if self._node(node, flow):
                self.changed = True
                if isinstance(flow, Product):
                    trace(RULE, node, None)

    def _node(self, node: Node, flow: Flow) -> bool:
        if len(node.outputs) != 1:
            return False
        out, gone = node.outputs[0], self.found.gone
        if out in gone and gone[out].all():
            return True  # it has no reader left
        if self.found.constant(out):
            self._constant(out)
            return True
        rows = isinstance(flow, Elementwise) and any(v in self._rows for v in node.inputs)
        around = [v for v in (*flow.operands, out) if v in gone]
        if not rows and not any(gone[v].any() for v in around):
            return False
        masks = [None if v not in gone else ~gone[v] for v in flow.operands]
        kept = Kept(masks, self.found.facts(flow), ~gone[out] if out in gone else None, self._cuts)
        inputs = list(node.inputs)
        if rows:
            inputs = self._broadcast(inputs)
        self.graph.replace(out, flow.build(kept, inputs))
        return True

    def _constant(self, out: Value) -> None:
        kept, axis = ~self.found.gone[out], self.found.axes[out]
        data = self.found.known[out].data[kept]
        row = constant(data.reshape(-1, *[1] * (out.type.rank - axis - 1)))
        shape = (*out.shape[:axis], len(data), *out.shape[axis + 1 :])
        result = ops.expand(row, shape=shape, origin=out.producer.origin if out.producer else "")
        self._rows[result] = row
        self.graph.replace(out, result)

    def _broadcast(self, inputs: list[Value | None]) -> list[Value | None]:
        """Use unexpanded constants if another operand has the full shape."""
        small = [self._rows.get(v, v) if v is not None else None for v in inputs]
        full = symint.broadcast(*(v.shape for v in inputs if v is not None))
        same = symint.broadcast(*(v.shape for v in small if v is not None)) == full
        return small if same else inputs
