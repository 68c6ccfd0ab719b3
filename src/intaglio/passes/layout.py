"""Choose the memory layout of every tensor so that transposes move as few bytes as possible.

Lowering leaves transposes around ops that need another layout. This pass treats a transpose as a
property of an edge: every op that can compute in another axis order gets a permutation (see
permuted_ops.py). A value costs its size in bytes once for every further axis order in which it is
read. Sweeps over the nodes, forwards and backwards, lower the total cost from three starting
points: nothing moved, transposes pushed down to the outputs, or pulled up to the inputs. Then the
graph is rebuilt with the remaining transposes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Node, Type, Value, constant
from intaglio.passes.permuted_ops import (
    Perm,
    Permuted,
    before_reshape,
    compose,
    identity,
    inverse,
    is_free,
    order,
    permute,
    rank_of,
)
from intaglio.rewrite import Trace

SWEEPS = 4  # over all nodes, per starting point
TRANSPOSE_OVERHEAD = 1024  # bytes added to the cost of every transpose, so that fewer win


def choose_layout(graph: Graph, trace: Trace | None = None, by_bytes: bool = True) -> None:
    """Move and cancel transposes, in the bodies of control flow too."""
    for node in graph.nodes():
        for body in node.bodies():
            choose_layout(body, trace, by_bytes)
    if any(node.op == "transpose" for node in graph.nodes()):
        layouts = _Layouts(graph, by_bytes)
        if layouts.choose() or by_bytes:
            layouts.build()


def fewer_transposes(graph: Graph, trace: Trace | None = None) -> None:
    """Move transposes only if fewer remain, which pays on every target."""
    choose_layout(graph, trace, by_bytes=False)


class _Layouts:
    """The permutation of each node that can compute in another axis order, and its cost."""

    def __init__(self, graph: Graph, by_bytes: bool):
        graph.tidy()
        self.graph, self.by_bytes = graph, by_bytes
        self.nodes = [n for n in graph.nodes() if n.op != "transpose"]
        self.label: dict[Node, Permuted] = {}
        self.perm: dict[Node, Perm] = {}
        self.tried: dict[tuple[Node, Perm], Permuted | None] = {}
        self.source: dict[Value, tuple[Value, Perm]] = {}
        self.named: dict[Value, tuple[str, Perm]] = {}
        self.reads: dict[Node, list[tuple[int, Value, Perm]]] = {}  # input, source, transpose
        self.orders: dict[
            Value, dict[Perm, int]
        ] = {}  # axis orders in which a source is read, and how often
        for node in [*self.nodes, graph.result]:
            inputs = [(i, v) for i, v in enumerate(node.inputs) if v is not None and v.data is None]
            self.reads[node] = [(i, *self.behind(v)) for i, v in inputs]
            self.count(node, 1)

    def behind(self, v: Value) -> tuple[Value, Perm]:
        """The value before any transposes, and the permutation that makes `v` from it."""
        if v not in self.source:
            perms, u = list[Perm](), v
            while (node := u.producer) is not None and node.op == "transpose" and node.inputs[0]:
                perms.append(node.attrs["perm"])
                u = node.inputs[0]
            self.source[v] = (u, functools.reduce(compose, reversed(perms), identity(u.type.rank)))
        return self.source[v]

    def made(self, v: Value) -> Perm:
        """The axis order of `v` in memory under the current choice."""
        chosen = self.label.get(v.producer) if v.producer is not None else None
        return chosen.outputs[v.index] if chosen is not None else identity(v.type.rank)

    def wanted(self, node: Node, i: int, q: Perm) -> Perm:
        """The axis order in which `node` reads input i from its source, behind the transpose q."""
        chosen = self.label.get(node)
        p = chosen.inputs[i] if chosen is not None else None
        return compose(q, p) if p is not None and len(p) == len(q) else q

    def count(self, node: Node, by: int) -> None:
        """Add (1) or remove (-1) the axis orders in which `node` reads its sources."""
        for i, u, q in self.reads[node]:
            orders, p = self.orders.setdefault(u, {}), self.wanted(node, i, q)
            orders[p] = orders.get(p, 0) + by
            if not orders[p]:
                del orders[p]

    def cost(self, u: Value) -> int:
        """Bytes moved so that every reader of `u` gets it in its axis order."""
        orders = self.orders.get(u)
        if not orders:
            return 0
        lies = self.made(u)
        moves = {_move(lies, p, u.shape) for p in orders}
        each = u.type.bytes + TRANSPOSE_OVERHEAD if self.by_bytes else 1
        fusable = u.producer is not None and "act" in u.producer.attrs and moves != {()}
        own = self.by_bytes and _is_copied(u, lies)
        return (
            each * (len(moves) - (() in moves) + own) + fusable
        )  # a transpose would keep the next op from the epilogue

    def around(self, node: Node) -> list[Value]:
        """The values whose cost depends on the choice for `node`."""
        return list(dict.fromkeys([*(u for _, u, _ in self.reads[node]), *node.outputs]))

    def set(self, node: Node, p: Perm) -> bool:
        """Let `node` compute in the axis order p; False if it cannot."""
        if (node, p) not in self.tried:
            self.tried[node, p] = permute(node, p)
        permuted = self.tried[node, p]
        if permuted is None:
            return False
        if self.label.get(node) is not permuted:
            self.count(node, -1)
            self.perm[node], self.label[node] = p, permuted
            self.count(node, 1)
        return True

    def candidates(self, node: Node, forth: bool) -> list[Perm]:
        """Axis orders to try: of the operands, of the readers, the current one and the identity."""
        rank = rank_of(node)
        above = dict.fromkeys(
            compose(inverse(q), self.made(u)) for _, u, q in self.reads[node] if len(q) == rank
        )
        below = [p for v in node.outputs if v.type.rank == rank for p in self.orders.get(v, ())]
        if node.op == "reshape":
            below = [before_reshape(node, p) for p in self.orders.get(node.outputs[0], ())]
        here = [self.perm.get(node, identity(rank))]
        ordered = [*above, *here, *below] if forth else [*below, *here, *above]
        return list(dict.fromkeys([*ordered, identity(rank)]))

    def choose(self) -> bool:
        """Sweep over the nodes and keep the best choice seen; returns whether it beats the
        start.
        """
        flexible = [n for n in self.nodes if permute(n, identity(rank_of(n))) is not None]
        best, kept = self.total(), dict(self.perm)
        before = best
        for start in ("unmoved", "down", "up"):
            for node in flexible:
                self.set(node, identity(rank_of(node)))
            if start != "unmoved":
                for node in flexible if start == "down" else reversed(flexible):
                    self.follow(node, start == "down")
            for sweep in range(SWEEPS):
                forth = sweep % 2 == (start == "down")
                changed = False
                for node in flexible if forth else reversed(flexible):
                    changed |= self.improve(node, forth)
                total = self.total()
                if total < best:
                    best, kept = total, dict(self.perm)
                if not total or not changed:
                    break
        for node in flexible:
            self.set(node, kept.get(node, identity(rank_of(node))))
        return best < before

    def follow(self, node: Node, forth: bool) -> None:
        """Take the first neighbouring axis order that is not the identity, whatever it costs."""
        for p in self.candidates(node, forth):
            if p != identity(len(p)) and self.set(node, p):
                return

    def improve(self, node: Node, forth: bool) -> bool:
        """Take the cheapest axis order; among equals the first, which pushes transposes along."""
        around, before, found = self.around(node), self.perm.get(node), None
        tries = self.candidates(node, forth)
        if len(tries) == 1:
            return False
        for p in tries:
            if self.set(node, p):
                cost = sum(self.cost(v) for v in around)
                if found is None or cost < found[0]:
                    found = (cost, p)
        if found is not None:
            self.set(node, found[1])
        return self.perm.get(node) != before

    def total(self) -> int:
        return sum(self.cost(u) for u in self.orders)

    # ---- the graph with the chosen layouts -------------------------------------------------------
    def build(self) -> None:
        for v, (u, q) in self.source.items():
            if v.name and not u.name:  # lowering made u; the transpose behind it has the name
                self.named.setdefault(u, (v.name, q))
        new: dict[Value, Value] = {v: v for v in self.graph.inputs}
        moved: dict[tuple[Value, Perm], Value] = {}

        def operand(node: Node, i: int) -> Value | None:
            v = node.inputs[i]
            if v is None:
                return None
            chosen = self.label.get(node)
            p = chosen.inputs[i] if chosen is not None else None
            if v.data is not None:
                return v if p is None else _constant(v, p)
            u, q = self.behind(v)
            read = self.wanted(node, i, q)
            move = compose(inverse(self.made(u)), read)
            if (u, move) not in moved:
                moved[u, move] = _transposed(new[u], move, v.name if read == q else "")
            w = moved[u, move]
            if p is None or len(p) == v.type.rank:
                return w
            lifted = (1,) * (len(p) - v.type.rank) + v.shape  # its unit axes move for free
            if (v, p) not in moved:
                moved[v, p] = ops.reshape(w, shape=tuple(lifted[a] for a in p))
            return moved[v, p]

        for node in self.nodes:
            chosen = self.label.get(node)
            attrs = node.attrs if chosen is None else chosen.attrs
            inputs = [operand(node, i) for i in range(len(node.inputs))]
            made = Node(node.op, inputs, attrs, _types(node, chosen), node.origin)
            for v, w in zip(node.outputs, made.outputs, strict=True):
                w.name, new[v] = self.name(v), w
        result = self.graph.result
        outputs = [operand(result, i) for i in range(len(result.inputs))]
        for i, out in enumerate(outputs):
            self.graph.set_input(result, i, out)
        self.graph.tidy()

    def name(self, v: Value) -> str:
        """The model's name for `v`, with its axis order appended if that is not the identity."""
        lies, name = self.made(v), v.name
        if not name and v in self.named:
            name, q = self.named[v]
            lies = compose(inverse(q), lies)
        return name if not name or lies == identity(len(lies)) else f"{name}:{_digits(lies)}"


def _is_copied(u: Value, lies: Perm) -> bool:
    """Is `u` a slice or concat that needs a copy in this axis order, because it is not
    contiguous?
    """
    node = u.producer
    if node is None or node.op not in ("slice", "concat") or not node.inputs:
        return False
    x = node.inputs[0]
    assert x is not None
    cut = [a for a, (d, n) in enumerate(zip(x.shape, u.shape, strict=True)) if d != n]
    outer = lies[: max((lies.index(a) for a in cut), default=0)]
    return any(u.shape[a] != 1 for a in outer)


@functools.lru_cache(4096)
def _move(lies: Perm, read: Perm, shape: tuple[int, ...]) -> Perm:
    """A key of the copy that reading needs: () for none, else the order of the axes that move."""
    p = compose(inverse(lies), read)
    shape = tuple(shape[a] for a in lies)
    return () if is_free(p, shape) else order(p, shape)


def _digits(p: Perm) -> str:
    return "".join(map(str, p))


def _types(node: Node, chosen: Permuted | None) -> Sequence[Type]:
    if chosen is None:
        return [v.type for v in node.outputs]
    return [
        v.type.but(shape=tuple(v.shape[a] for a in p))
        for v, p in zip(node.outputs, chosen.outputs, strict=True)
    ]


def _transposed(v: Value, p: Perm, name: str) -> Value:
    if p == identity(len(p)):
        return v
    if is_free(p, v.shape) and not v.type.dynamic:
        result: Value = ops.reshape(v, shape=tuple(v.shape[a] for a in p))
    else:
        result = ops.transpose(v, perm=p)
    result.name = name
    return result


def _constant(v: Value, p: Perm) -> Value:
    assert v.data is not None
    full = v.data.reshape((1,) * (len(p) - v.type.rank) + v.shape)
    if v.type.size == 1 and v.type.rank == 0:
        return v
    return constant(np.ascontiguousarray(full.transpose(p)), v.name)
