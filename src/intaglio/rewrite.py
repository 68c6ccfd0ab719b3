"""Rules: a pattern and a function. A rule that declines returns `no("because ...")`."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.ir import Graph, Node, Value
from intaglio.ops.registry import REGISTRY

Found = dict[str, Any]


class No(str):
    """A rule's refusal, in words."""


def no(why: str) -> No:
    return No(why)


@dataclass(frozen=True, slots=True)
class Var:
    """Matches any value and binds it. Written "x"; "x!" takes constants only, "x?" also absence."""

    name: str
    const: bool = False
    optional: bool = False

    def match(self, v: Value | None, found: Found) -> bool:
        if v is None and not self.optional:
            return False
        if self.const and v is not None and v.data is None:
            return False
        return found.setdefault(self.name, v) is v


@dataclass(frozen=True, slots=True)
class Pat:
    """Matches a node by op, operands and attributes, and binds it to `bind` if that is given."""

    op: str
    args: tuple[Any, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    bind: str = ""

    def __matmul__(self, name: str) -> Pat:
        """`P.conv(x, W) @ "conv"`: the matched node goes to the rule's argument `conv`."""
        return Pat(self.op, self.args, self.attrs, name)

    def match(self, v: Value | None, found: Found, root: bool = False) -> bool:
        n = v.producer if v is not None else None
        if n is None or n.op != self.op or len(self.args) > len(n.inputs):
            return False
        if not root and len(v.uses) > 1:  # type: ignore[union-attr]
            return False  # someone else needs it too: fusing would compute it twice
        if any(n.attrs.get(k) != want for k, want in self.attrs):
            return False
        if any(x is not None for x in n.inputs[len(self.args) :]):
            return False
        orders = [n.inputs]
        if REGISTRY[n.op].commutes and len(n.inputs) == 2:
            orders.append(n.inputs[::-1])
        for order in orders:
            trial = dict(found)
            if all(_match(p, x, trial) for p, x in zip(self.args, order, strict=False)):
                found.update(trial)
                if self.bind:
                    found[self.bind] = n
                return True
        return False


def _match(pattern: Any, v: Value | None, found: Found) -> bool:
    if isinstance(pattern, int | float):
        data = v.data if v is not None else None
        return (
            data is not None
            and data.size == 1
            and bool(np.isclose(float(data.item()), pattern, rtol=1e-4))
        )
    return bool(pattern.match(v, found))


class _Patterns:
    """`P.mul(x, 6.0)` is the pattern of a `mul` node; `P["x W! B?"]` makes variables."""

    def __getitem__(self, names: str) -> list[Var]:
        return [Var(n.rstrip("!?"), "!" in n, "?" in n) for n in names.split()]

    def __getattr__(self, op: str) -> Callable[..., Pat]:
        return lambda *args, **attrs: Pat(op, args, tuple(attrs.items()))

    def op(self, name: str, *args: Any, **attrs: Any) -> Pat:
        """For names that are no Python attribute: `P.op("cpu.conv", x, W)`."""
        return Pat(name, args, tuple(attrs.items()))


P: Any = _Patterns()


class Rule:
    """A pattern and the function that builds its replacement.

    The function takes the pattern's variables by name, plus `node` (the root) and `graph` if it asks
    for them, and returns a Value (or a list of Values, one per output), `no(why)`, or None.
    """

    def __init__(self, pattern: Pat, build: Callable[..., Any]):
        self.pattern, self.build, self.name = pattern, build, build.__name__
        self.takes = tuple(inspect.signature(build).parameters)
        self.doc = inspect.getdoc(build) or ""

    def apply(self, graph: Graph, node: Node) -> list[Value] | No | None:
        """What `node`'s outputs become, a refusal, or None where the pattern does not match."""
        found: Found = {}
        if not node.outputs or not self.pattern.match(node.outputs[0], found, root=True):
            return None
        found["node"], found["graph"] = node, graph
        new = self.build(**{k: found.get(k) for k in self.takes})
        return [new] if isinstance(new, Value) else new  # type: ignore[no-any-return]


def rule(pattern: Pat) -> Callable[[Callable[..., Any]], Rule]:
    """`@rule(P.relu(P.relu(x)))` above the function that builds the replacement."""
    return lambda build: Rule(pattern, build)


Trace = Callable[[Rule, Node, No | None], None]


def rewrite(graph: Graph, rules: Sequence[Rule], trace: Trace | None = None) -> int:
    """Apply `rules` until none fires; returns how often one did.

    Rules are tried in order, the first that fires wins. A work list keeps the cost linear: after a
    rewrite only the new nodes and their neighbours are looked at again.
    """
    by_op: dict[str, list[Rule]] = {}
    for r in rules:
        by_op.setdefault(r.pattern.op, []).append(r)
    graph.tidy()
    work = deque(graph.nodes())
    queued = set(work)
    budget = 200 + 100 * len(work)
    fired = 0
    while work:
        node = work.popleft()
        queued.discard(node)
        if not any(v.uses for v in node.outputs):
            continue
        for r in by_op.get(node.op, ()):
            new = r.apply(graph, node)
            if isinstance(new, No) and trace:
                trace(r, node, new)
            if new is None or isinstance(new, No) or new[0] is node.outputs[0]:
                continue
            fired += 1
            if fired > budget:
                raise RuntimeError(
                    f"rewriting does not end: {r.name} fired at {node.op} '{node.origin}' again"
                )
            if trace:
                trace(r, node, None)
            around = _take_over(graph, node, new)
            for n in around:
                if n not in queued and n.op != "result":
                    queued.add(n)
                    work.append(n)
            break
    return fired


def _take_over(graph: Graph, node: Node, new: Sequence[Value]) -> Iterable[Node]:
    """Put `new` in the place of `node`'s outputs; returns the nodes worth another look."""
    around: dict[Node, None] = {}
    stack = [v.producer for v in new]
    while stack:  # the nodes that the rule just made are those that have no origin yet
        made = stack.pop()
        if made is None or made in around or (made.origin and made.origin != node.origin):
            continue
        made.origin = made.origin or node.origin or node.op
        around[made] = None
        if len(around) < 64:
            stack.extend(v.producer for v in made.inputs if v is not None)
    for old, value in zip(node.outputs, new, strict=True):
        graph.replace(old, value)
        around.update(value.uses)
        for user in value.uses:
            for v in user.inputs:
                if v is not None and v.producer is not None:
                    around[v.producer] = None
    return around
