"""Rewrite rules and the driver that applies them.

A rule is a pattern and a function that builds the replacement, or declines with `no("why")`.
"""

from __future__ import annotations

import copy
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from intaglio.ir import Array, Graph, Node, Value, release
from intaglio.ops.registry import REGISTRY
from intaglio.symint import OpenExtent

Found = dict[str, Any]
_MAX_PRINTED_OPS = 5  # of one node in a printed pattern


class No(str):
    """The reason why a rule declined."""


def no(why: str) -> No:
    return No(why)


@dataclass(frozen=True, slots=True)
class Var:
    """Matches any value and binds it: "x"; constants only: "x!"; also an absent input: "x?"."""

    name: str
    const: bool = False
    optional: bool = False

    def __str__(self) -> str:
        return self.name + "!" * self.const + "?" * self.optional

    def match(self, v: Value | None, found: Found) -> Iterator[Found]:
        if v is None and not self.optional:
            return
        if self.const and v is not None and v.data is None:
            return
        if self.name not in found:
            yield {**found, self.name: v}
        elif found[self.name] is v:
            yield found


@dataclass(frozen=True, slots=True)
class Pat:
    """Matches a node by op, operands and attributes, and binds it to `bind` if that is given."""

    ops: tuple[str, ...]  # any of these; empty: every op, with any operands
    args: tuple[Any, ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()
    bind: str = ""
    many: bool = False  # it may have other readers; only for nodes that are cheap to compute twice
    open: bool = False  # any operands

    def __str__(self) -> str:
        """`mul(conv(x, W!), S!)`; `&` marks a node that may have other readers."""
        names = "|".join(self.ops[:_MAX_PRINTED_OPS])
        names += "|..." * (len(self.ops) > _MAX_PRINTED_OPS)
        args = [f"{a:.6g}" if isinstance(a, float) else str(a) for a in self.args]
        args += [f"{k}={a:g}" if isinstance(a, float) else f"{k}={a}" for k, a in self.attrs]
        mark, args = "&" * self.many, ["..."] if self.open else args
        return f"{mark}{names}({', '.join(args)})" if self.ops else f"{mark}*"

    def __matmul__(self, name: str) -> Pat:
        """`P.conv(x, W) @ "conv"` binds the matched node to the rule's argument `conv`."""
        return replace(self, bind=name)

    def shared(self) -> Pat:
        """The same pattern; the matched node may have other readers."""
        return replace(self, many=True)

    def match(self, v: Value | None, found: Found, root: bool = False) -> Iterator[Found]:
        """Yield the bindings of every match at `v`."""
        n = v.producer if v is not None else None
        if n is None or (self.ops and n.op not in self.ops):
            return
        if not root:
            alone = len(v.uses) == 1 and not any(o.uses for o in n.outputs if o is not v)  # type: ignore[union-attr]
            if not (alone or self.many):
                return  # it has another reader: fusing would compute it twice
        if any(n.attrs.get(k) != want for k, want in self.attrs):
            return
        if self.bind:
            found = {**found, self.bind: n}
        if not self.ops or self.open:
            yield found
            return
        k = len(self.args)
        if len(n.inputs) < k or any(x is not None for x in n.inputs[k:]):
            return
        yield from _match_all(self.args, n.inputs, found)
        if k == 2 and REGISTRY[n.op].commutes and n.inputs[0] is not n.inputs[1]:
            yield from _match_all(self.args, n.inputs[1::-1], found)


ANY = Pat(())


@dataclass(frozen=True, slots=True)
class OneOf:
    """Matches if one of its patterns does: alternative forms of an operand."""

    choices: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{{{' or '.join(map(str, self.choices))}}}"

    def match(self, v: Value | None, found: Found) -> Iterator[Found]:
        for choice in self.choices:
            yield from _match(choice, v, found)


def _match_all(
    patterns: Sequence[Any], values: Sequence[Value | None], found: Found
) -> Iterator[Found]:
    if not patterns:
        yield found
        return
    for one in _match(patterns[0], values[0], found):
        yield from _match_all(patterns[1:], values[1:], one)


def _match(pattern: Any, v: Value | None, found: Found) -> Iterator[Found]:
    if not isinstance(pattern, int | float):
        yield from pattern.match(v, found)
    elif v is not None and v.data is not None and _is(v.data, pattern):
        yield found


def _is(data: Array, number: float) -> bool:
    return data.size == 1 and abs(float(data.item()) - number) <= 1e-8 + 1e-4 * abs(number)


class _Patterns:
    """`P.mul(x, 6.0)` is the pattern of a `mul` node; `P["x W! B?"]` makes variables."""

    def __getitem__(self, names: str) -> list[Var]:
        return [Var(n.rstrip("!?"), "!" in n, "?" in n) for n in names.split()]

    def __getattr__(self, op: str) -> Callable[..., Pat]:
        return lambda *args, **attrs: Pat((op,), args, tuple(attrs.items()))

    def op(self, names: str | tuple[str, ...], *args: Any, **attrs: Any) -> Pat:
        """For op names with a dot, or for several ops: `P.op("cpu.conv", x, W)`."""
        return Pat((names,) if isinstance(names, str) else names, args, tuple(attrs.items()))

    def one_of(self, *choices: Any) -> OneOf:
        """Any of several patterns as an operand: `P.log(P.one_of(P.exp(x), P.exp(y)))`."""
        return OneOf(choices)

    def any(self, *names: str) -> Pat:
        """Any of these ops, with any operands."""
        return Pat(names, open=True)


P: Any = _Patterns()
# Chooses between implementations of a node: (rule, node, their names, the estimated best) -> name.
Pick = Callable[[str, Node, Sequence[str], str], str]


def as_estimated(rule: str, node: Node, names: Sequence[str], estimate: str) -> str:
    """The choice without measurements: the implementation with the lowest estimated cost."""
    return estimate


_MAX_REVISITED = 32  # nodes around a change that are matched again; patterns are less deep


class Rule:
    """A pattern and the function that builds its replacement.

    The function takes the pattern's variables by name, and `node` (the root), `graph` and `pick`
    if it has such parameters. It returns a Value (or a list, one per output), `no(why)`, or None.
    If it has several implementations, `pick(names, estimate)` chooses one: the estimated best,
    unless they were measured. A replacement must have the node's type. A rule with `weigh` fires
    only if its replacement costs less than the nodes it replaces, and least of all such rules.
    """

    def __init__(self, pattern: Pat, build: Callable[..., Any], weigh: bool = False):
        self.pattern, self.build, self.name = pattern, build, build.__name__.strip("_")
        self.weigh = weigh
        self.takes = tuple(inspect.signature(build).parameters)
        self.pick: Pick = as_estimated
        self.doc = inspect.getdoc(build) or ""

    def __repr__(self) -> str:
        return f"Rule({self.name})"

    def asking(self, pick: Pick) -> Rule:
        """The same rule with another `pick` to choose between implementations."""
        if pick is self.pick:
            return self
        rule = copy.copy(self)
        rule.pick = pick
        return rule

    def apply(self, graph: Graph, node: Node) -> list[Value] | No | None:
        """Replacements of `node`'s outputs, a refusal, or None if the pattern does not match."""
        if not node.outputs:
            return None
        refusal = None
        known: Found = {"node": node, "graph": graph}
        if "pick" in self.takes:
            known["pick"] = partial(self.pick, self.name, node)
        for found in self.pattern.match(node.outputs[0], known, root=True):
            try:
                new = self.build(**{k: found.get(k) for k in self.takes})
            except OpenExtent as e:  # it would hold for some sizes only
                new = no(str(e))
            new = [new] if isinstance(new, Value) else new
            if isinstance(new, list):
                new = _same_types(node, new)
            if isinstance(new, list):
                return new
            refusal = refusal or new
        return refusal


def _same_types(node: Node, new: list[Value]) -> list[Value] | No:
    for old, v in zip(node.outputs, new, strict=True):
        if v.type.but(quant=None) != old.type.but(quant=None):
            for built in new:
                release(built.producer)
            return no(f"the replacement has type {v.type}, the node has {old.type}")
    return new


def rule(pattern: Pat, weigh: bool = False) -> Callable[[Callable[..., Any]], Rule]:
    """`@rule(P.relu(P.relu(x)))` above the function that builds the replacement."""
    return lambda build: Rule(pattern, build, weigh)


Trace = Callable[[Rule, Node, No | None], None]
Cost = Callable[[Node], float]  # an estimate, in nanoseconds


def rewrite(
    graph: Graph, rules: Sequence[Rule], trace: Trace | None = None, cost: Cost | None = None
) -> int:
    """Apply `rules` until none fires, bodies of control flow first; returns the number of rewrites.

    The first rule that fires wins. Rules with `weigh` come last: of these, the one that saves most
    `cost` fires (without `cost`, the first one). A work list keeps the time linear: after a rewrite
    only the new nodes and their neighbours are matched again.
    """
    by_op: dict[str, list[Rule]] = {}
    ops = {op for r in rules for op in r.pattern.ops}
    for r in sorted(rules, key=lambda r: r.weigh):
        for op in r.pattern.ops or (*ops, ""):
            by_op.setdefault(op, []).append(r)
    everywhere = by_op.get("", [])
    graph.tidy()
    work = deque(graph.nodes())
    fired = sum(rewrite(body, rules, trace, cost) for node in work for body in node.bodies())
    queued, known = set(work), set(work)
    budget = 200 + 100 * len(work)
    while work:
        node = work.popleft()
        queued.discard(node)
        if not any(v.uses for v in node.outputs):
            continue
        found = _first(graph, node, by_op.get(node.op, everywhere), known, trace, cost)
        if found is None:
            continue
        r, new = found
        fired, budget = fired + 1, budget - 1
        if budget < 0:
            raise RuntimeError(
                f"rewriting does not terminate: {r.name} fired at {node.op} '{node.origin}' again"
            )
        if trace:
            trace(r, node, None)
        for n in _take_over(graph, node, new, known):
            if n not in queued and n is not graph.result:
                queued.add(n)
                work.append(n)
    return fired


def _first(
    graph: Graph,
    node: Node,
    rules: Sequence[Rule],
    known: set[Node],
    trace: Trace | None,
    cost: Cost | None,
) -> tuple[Rule, list[Value]] | None:
    """The rule that fires at `node`, and the replacements of the node's outputs."""
    best: Rule | None = None
    most = 0.0
    for r in rules:
        new = r.apply(graph, node)
        if new is None or (isinstance(new, list) and new[0] is node.outputs[0]):
            continue
        if isinstance(new, list):
            if not r.weigh or cost is None:
                return r, new
            before, after = _weigh(node, new, known, cost)
            for v in new:
                release(v.producer)
            if before - after > most:
                most, best = before - after, r
                continue
            rival = f", {best.name} saves more" if best else ""
            new = no(f"it would take {after / 1e3:.3g} us instead of {before / 1e3:.3g}{rival}")
        if trace:
            trace(r, node, new)
    chosen = best.apply(graph, node) if best else None
    return (best, chosen) if best and isinstance(chosen, list) else None


def _weigh(node: Node, new: Sequence[Value], known: set[Node], cost: Cost) -> tuple[float, float]:
    """The cost of the nodes that `new` makes superfluous, and the cost of the new nodes."""
    goes, stack = {node}, [v.producer for v in node.inputs if v is not None]
    while stack:
        above = stack.pop()
        if above is None or above in goes:
            continue
        if all(user in goes for v in above.outputs for user in v.uses):
            goes.add(above)
            stack.extend(v.producer for v in above.inputs if v is not None)
    comes: set[Node] = set()
    stack = [v.producer for v in new]
    while stack:
        result = stack.pop()
        if result is not None and result not in known and result not in comes:
            comes.add(result)
            stack.extend(v.producer for v in result.inputs if v is not None)
    return sum(map(cost, goes)), sum(map(cost, comes))


def _take_over(graph: Graph, node: Node, new: Sequence[Value], known: set[Node]) -> list[Node]:
    """Replace `node`'s outputs by `new`; returns the nodes to be matched again."""
    around: dict[Node, None] = {}
    stack = [v.producer for v in new]
    while stack:
        result = stack.pop()
        if result is None or result in around:
            continue
        around[result] = None
        if result not in known:  # the rule has just made it
            known.add(result)
            result.origin = result.origin or node.origin or node.op
            stack.extend(v.producer for v in result.inputs if v is not None)
    readers = [user for v in node.outputs for user in v.uses]
    for old, value in zip(node.outputs, new, strict=True):
        graph.replace(old, value)
    below = deque(
        [*readers, *(u for v in node.inputs if v is not None for u in (*v.uses,)[:_MAX_REVISITED])]
    )
    while below and len(around) < _MAX_REVISITED:  # roots of patterns are below the change
        user = below.popleft()
        if user not in around:
            around[user] = None
            below.extend(u for v in user.outputs for u in v.uses)
    return list(around)
