"""Choice by measurement: time the ways to compute each layer on this machine, keep the fastest."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio import cpu_isa, native, passes
from intaglio.errors import BadInput, IntaglioError
from intaglio.heap import Arena
from intaglio.ir import Graph, Node
from intaglio.ops.complexity import complexity, macs
from intaglio.package import Package
from intaglio.passes.memory import plan_memory
from intaglio.rewrite import Trace
from intaglio.targets import Target
from intaglio.tune.cache import Cache, Way, Ways, digest, folder
from intaglio.tune.clock import race
from intaglio.tune.layer import layer

SURE = 1.05  # an estimate stays unless another way is this many times as fast
COLD = (1 << 20, 1 << 26)  # bytes that the rest of a model may take of the caches, least and most
CROWD = 80.0  # bytes per nanosecond: weights push those of other layers out of the caches
AGAIN = 3  # rounds of questions: an answer may raise others

# (packages by way, threads, cold bytes, seconds) -> microseconds by way
Timer = Callable[[Mapping[str, Package], int, int, float], dict[str, float]]


def _warn(words: str) -> None:
    warnings.warn(words, stacklevel=2)


@dataclass(frozen=True)
class Tuning:
    """How to measure: for so many seconds in all, with so many threads."""

    seconds: float = 60.0
    threads: int = 1
    cache: Path | None = None  # a folder; None: $INTAGLIO_CACHE or the user's
    watch: Callable[[int, int, str], None] | None = None  # is told: layer i of n, what it is
    warn: Callable[[str], None] = _warn
    timer: Timer = race


@dataclass(frozen=True)
class Decision:
    """Which of several ways a node is computed by, and what speaks for it."""

    rule: str
    origin: str
    way: str
    estimate: str
    microseconds: dict[str, float] = field(default_factory=dict)  # by way, where measured

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"origin": self.origin, "rule": self.rule, "way": self.way}
        if self.microseconds:
            plain |= {"estimate": self.estimate, "microseconds": self.microseconds}
        return plain


@dataclass
class Tuned:
    """What measuring came to."""

    layers: int = 0  # that have a choice and are unlike each other
    known: int = 0  # of them, from the cache
    measured: int = 0
    seconds: float = 0.0
    stopped: str = ""  # why some were not

    def __str__(self) -> str:
        words = (
            f"{self.known + self.measured} of {self.layers} layers with a choice are measured"
            f" ({self.known} earlier, {self.measured} in {self.seconds:.1f} s)"
        )
        return f"{words}; {self.stopped}: the others are estimated" if self.stopped else words


@dataclass
class _Question:
    rule: str
    graph: Graph
    ways: Sequence[str]
    estimate: str
    title: str
    work: int = 0  # of all layers like this
    seen: set[Node] = field(default_factory=set)


class Decisions:
    """Takes what each rule estimates, and remembers it."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Node], Decision] = {}

    @property
    def made(self) -> list[Decision]:
        return list(self._made.values())

    def measured(self, rule: str, node: Node) -> Ways:
        """What is known of a node: nothing."""
        return {}

    def fastest(self, known: Ways, ways: Sequence[str], estimate: str) -> str:
        """The way that costs least: the estimate, as nothing is known."""
        return estimate

    def pick(self, rule: str, node: Node, ways: Sequence[str], estimate: str) -> str:
        """Answers a rule that knows several ways."""
        known = self.measured(rule, node)
        way = self.fastest(known, ways, estimate)
        times = {name: w.microseconds for name, w in known.items() if w is not None}
        self._made[rule, node] = Decision(rule, node.origin, way, estimate, times)
        return way


class Tuner(Decisions):
    """A pass that measures every layer with a choice; `pick` then tells the lowering passes."""

    def __init__(self, target: Target, tuning: Tuning, level: int, disable: Collection[str] = ()):
        super().__init__()
        if missing := target.isa & ~native.machine():
            raise BadInput(
                f"tuning times kernels on this CPU, which lacks {cpu_isa.name_of(missing)}; "
                "compile without tuning, or for this CPU"
            )
        if not tuning.seconds > 0:
            raise BadInput(f"tuning takes {tuning.seconds} seconds; it needs more than 0")
        if tuning.threads < 1:
            raise BadInput(f"tuning uses {tuning.threads} threads; it needs at least 1")
        self.target, self.tuning, self.level = target, tuning, level
        self.disable = set(disable)
        self.cache = Cache(tuning.cache or folder(), tuning.warn)
        self.cold = COLD[0]

    def __call__(self, graph: Graph, trace: Trace) -> Tuned:
        """Measure what the cache does not know; the graph stays as it is."""
        start, done = time.perf_counter(), Tuned()
        self.cold = _power_of_two(complexity(graph).parameter_bytes)
        seen: set[str] = set()
        try:
            for _ in range(AGAIN):
                asked = {k: q for k, q in self._questions(graph).items() if k not in seen}
                seen.update(asked)
                done.layers += len(asked)
                new = {k: q for k, q in asked.items() if not self._complete(k, q)}
                done.known += len(asked) - len(new)
                end = start + self.tuning.seconds
                if not new or not self._measure_all(new, end, done):
                    break
        except KeyboardInterrupt:
            done.stopped = "interrupted"
        done.seconds = time.perf_counter() - start
        return done

    def measured(self, rule: str, node: Node) -> Ways:
        """What is known of a node, from now or earlier."""
        small = layer(node, self.target.precision)
        return {} if small is None else self.cache.get(self._key(rule, small))

    def fastest(self, known: Ways, ways: Sequence[str], estimate: str) -> str:
        """The way that costs least; the estimate where that is hardly slower."""

        def cost(way: str) -> float:
            found = known.get(way)
            return math.inf if found is None else found.microseconds + found.weights / CROWD / 1e3

        best = min(ways, key=cost)
        return estimate if cost(estimate) <= SURE * cost(best) else best

    def _key(self, rule: str, small: Graph) -> str:
        t = self.tuning
        return digest(rule, str(small), str(self.target.isa), str(t.threads), str(self.cold))

    def _complete(self, key: str, q: _Question) -> bool:
        return set(q.ways) <= set(self.cache.get(key))

    def _questions(self, graph: Graph) -> dict[str, _Question]:
        """What the rules would ask of this graph, the most work first."""
        found: dict[str, _Question] = {}

        def ask(rule: str, node: Node, ways: Sequence[str], estimate: str) -> str:
            small = layer(node, self.target.precision)
            if small is None:
                return estimate
            key = self._key(rule, small)
            q = found.setdefault(key, _Question(rule, small, ways, estimate, _title(node)))
            if node not in q.seen:
                q.seen.add(node)
                q.work += macs(node) or node.outputs[0].type.size
            return self.fastest(self.cache.get(key), ways, estimate)

        # Blocks show only once all is lowered, which takes a while: those of groups, and of bytes.
        shows = any(n.attrs.get("groups", 1) > 1 or n.op == "qlinear_conv" for n in graph.nodes())
        make = passes.lowering if self.target.block and shows else passes.choices
        made = make(self.target, ask)
        known = {r.name for p in made if isinstance(p.run, passes.Rules) for r in p.run.every}
        known.update(p.rule for p in made if p.rule)
        with Arena(0):  # what it packs is for no package
            passes.run(graph.copy(), made, self.level, disable=self.disable & known)
        return dict(sorted(found.items(), key=lambda item: -item[1].work))

    def _measure_all(self, asked: Mapping[str, _Question], end: float, done: Tuned) -> bool:
        """Measure in turn; True where an answer was not the estimate, so others may be asked."""
        surprise = False
        for i, (key, q) in enumerate(asked.items()):
            left = end - time.perf_counter()
            if left <= 0:
                done.stopped = f"{self.tuning.seconds:g} s are over"
                return False
            if self.tuning.watch:
                self.tuning.watch(i, len(asked), f"timing {q.title}")
            found = self._measure(q, left / (len(asked) - i))
            self.cache.put(key, f"{q.rule}: {q.title}", found)
            done.measured += 1
            surprise = surprise or self.fastest(found, q.ways, q.estimate) != q.estimate
        return surprise

    def _measure(self, q: _Question, seconds: float) -> Ways:
        start = time.perf_counter()
        packages: dict[str, Package] = {}
        for way in q.ways:
            try:
                packages[way] = self._compiled(q, way)
            except IntaglioError:
                if way == q.estimate:
                    raise
        left = seconds - (time.perf_counter() - start)
        found = self.tuning.timer(packages, self.tuning.threads, self.cold, left)
        return {
            way: Way(max(round(found[way], 2), 0.01), _weights(packages[way]))
            if way in found
            else None
            for way in q.ways
        }

    def _compiled(self, q: _Question, way: str) -> Package:
        def forced(rule: str, node: Node, ways: Sequence[str], estimate: str) -> str:
            return way if rule == q.rule else estimate

        graph = q.graph.copy()
        with Arena(0):
            passes.run(graph, passes.lowering(self.target, forced), self.level)
        return Package.build([plan_memory(graph, "layer")[0]], isa=self.target.isa)


def _weights(package: Package) -> int:
    return sum(t.size for t in package.plan.tensors() if t.memory == "const")


def _power_of_two(size: int) -> int:
    return min(max(1 << max(size - 1, 0).bit_length(), COLD[0]), COLD[1])


def _title(node: Node) -> str:
    """For people: `conv 3x3, 64x56x56 -> 64x56x56`."""
    x, w = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    assert x is not None
    window = node.attrs.get("kernel") or (w.shape[2:] if w is not None else ())
    shapes = ("x".join(map(str, v.shape[1:])) for v in (x, node.outputs[0]))
    name = " ".join([node.op, "x".join(map(str, window))]).strip()
    return f"{name}, {' -> '.join(shapes)}"
