"""Coupled channels: which channels of which layers must be removed together.

The channel flows of the lossless pruning pass say how each op hands channels on. Channels that a
sum, a gate, a concatenation, a shuffle or a grouped convolution ties to each other form one class;
classes made by the same layers form a group. A class that reaches an output of the model, or an op
that needs all of its channels, is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from intaglio.ir import Array, Graph, Node, Value
from intaglio.ops.registry import REGISTRY
from intaglio.passes.prune.analysis import Analysis
from intaglio.passes.prune.channel_flow import Flow, Link, name_of
from intaglio.passes.prune.channel_mixing import Product

Channels = dict[Value, Array]  # indices of channels, by tensor


@dataclass
class Group:
    """Classes of coupled channels that the same layers make: any of them may be removed."""

    layers: list[Node]  # products that make the channels
    classes: list[Channels]  # one entry for each set of channels that go together
    kept: str = ""  # why none can be removed; empty: they can

    @property
    def name(self) -> str:
        return label(self.layers[0]) if self.layers else "input"

    def __len__(self) -> int:
        return len(self.classes)


@dataclass
class Layer:
    """A product's work, and the channels that it reads and makes."""

    node: Node
    macs: int
    weights: int
    reads: Value | None  # None: its inputs are no channels
    makes: Value
    depthwise: bool  # each channel is made of one: work counts the made channels only


@dataclass
class Coupling:
    """All groups of a graph."""

    groups: list[Group]
    layers: list[Layer]
    of: dict[tuple[Value, int], tuple[int, int]] = field(repr=False)  # channel -> group and class
    axes: dict[Value, int] = field(repr=False)  # the channel axis of every tensor that has one
    other_macs: int = 0  # of ops without constant weights, such as attention

    def prunable(self) -> list[Group]:
        return [g for g in self.groups if not g.kept]


def label(node: Node) -> str:
    """The name of a layer, as reports print it."""
    return node.origin or node.outputs[0].name or node.op


class _Classes:
    """Disjoint sets of channels (union-find over one array)."""

    def __init__(self, found: Analysis):
        self.start: dict[Value, int] = {}
        n = 0
        for v in found.axes:
            self.start[v] = n
            n += len(found.gone[v])
        self.parent = np.arange(n)
        self.kept: dict[int, str] = {}

    def root(self, i: int) -> int:
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = int(self.parent[i])
        return i

    def join(self, a: int, b: int) -> None:
        ra, rb = self.root(a), self.root(b)
        if ra != rb:
            self.parent[max(ra, rb)] = min(ra, rb)

    def join_all(self, v: Value, inside: Array, w: Value, outside: Array) -> None:
        for a, b in zip(inside, outside, strict=True):
            self.join(self.start[v] + int(a), self.start[w] + int(b))

    def keep(self, v: Value, at: Array, why: str) -> None:
        for c in at:
            self.kept.setdefault(self.start[v] + int(c), why)


def find_coupling(graph: Graph) -> Coupling:
    """The groups of a graph, in the order of their first layers."""
    graph.tidy()
    found = Analysis(graph)
    sets = _Classes(found)
    count = {v: len(m) for v, m in found.gone.items()}
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        if v in count:
            sets.keep(v, np.arange(count[v]), f"they are part of output '{name}'")
    for node, flow in found.flows.items():
        _couple(node, flow, sets, count)
    return _collected(found, sets, count)


def _couple(node: Node, flow: Flow, sets: _Classes, count: dict[Value, int]) -> None:
    out = node.outputs[0]
    for i, why in flow.stops.items():
        x = flow.operands[i]
        if x in count:
            sets.keep(x, np.arange(count[x]), why)
    if flow.fixed is not None and out in count:
        sets.keep(out, np.flatnonzero(flow.fixed[0]), flow.fixed[1])
    if out not in count:
        return
    for link in flow.links:
        _link(flow, link, out, sets, count)
    if isinstance(flow, Product):
        _grouped(flow, out, sets, count)


def _link(flow: Flow, link: Link, out: Value, sets: _Classes, count: dict[Value, int]) -> None:
    a = flow.operands[link.operand]
    if a is None or a not in count:
        return
    inside = np.arange(count[a]) if link.inside is None else link.inside
    outside = np.arange(count[out]) if link.outside is None else link.outside
    sets.join_all(a, inside, out, outside)


def _grouped(flow: Product, out: Value, sets: _Classes, count: dict[Value, int]) -> None:
    """Groups of a convolution lose equally many channels; depthwise ones lose their input too."""
    groups, many, few, _ = flow.weights.shape
    if groups == 1:
        return
    x = flow.operands[0]
    reads = x is not None and x in count and flow.reads
    if few == 1 and reads:
        assert x is not None
        sets.join_all(x, np.repeat(np.arange(groups), many), out, np.arange(groups * many))
        return
    for values, width in ((out, many), (x if reads else None, few)):
        if values is not None:
            first = np.tile(np.arange(width), groups)
            sets.join_all(values, first, values, np.arange(groups * width))


def _collected(found: Analysis, sets: _Classes, count: dict[Value, int]) -> Coupling:
    members: dict[int, dict[Value, list[int]]] = defaultdict(lambda: defaultdict(list))
    why: dict[int, str] = {}
    for v, start in sets.start.items():
        for c in range(count[v]):
            root = sets.root(start + c)
            members[root][v].append(c)
            if start + c in sets.kept:
                why.setdefault(root, sets.kept[start + c])
    makers = {n.outputs[0]: n for n, f in found.flows.items() if isinstance(f, Product)}
    layers: dict[tuple[int, ...], Group] = {}
    of: dict[tuple[Value, int], tuple[int, int]] = {}
    order = {n: i for i, n in enumerate(found.nodes)}
    every: list[Group] = []
    for root, channels in members.items():
        made = sorted((makers[v] for v in channels if v in makers), key=order.__getitem__)
        key = (*(order[n] for n in made), -1 if root in why else -2)
        if not made:
            key = (*key, -root - 3)  # channels of an input: no layer makes them
        if key not in layers:
            layers[key] = Group(made, [], why.get(root, "" if made else "no layer makes them"))
            every.append(layers[key])
        group = layers[key]
        at = every.index(group)
        for v, cs in channels.items():
            for c in cs:
                of[v, c] = at, len(group.classes)
        group.classes.append({v: np.array(cs) for v, cs in channels.items()})
    work = [_layer(n, f) for n, f in found.flows.items() if isinstance(f, Product)]
    others = sum(REGISTRY[n.op].macs(n) for n in found.nodes) - sum(w.macs for w in work)
    return Coupling(every, work, of, found.axes, others)


def _layer(n: Node, flow: Product) -> Layer:
    groups, _, few, _ = flow.weights.shape
    x = n.inputs[0] if flow.reads else None
    return Layer(
        n, REGISTRY[n.op].macs(n), flow.weights.size, x, n.outputs[0], groups > 1 and few == 1
    )


def refusals(coupling: Coupling) -> Iterator[str]:
    """Why layers are not pruned, one line for each."""
    for g in coupling.groups:
        if g.kept and g.layers:
            yield f"{name_of(g.layers[0])} keeps {len(g)} channels: {g.kept}"
