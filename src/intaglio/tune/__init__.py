"""Auto-tuning: time the implementations of each layer on this machine and keep the fastest."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio import cpu_isa, native, passes, progress
from intaglio.errors import BadInput, IntaglioError
from intaglio.heap import Arena
from intaglio.ir import Graph, Node
from intaglio.ops.complexity import complexity, macs
from intaglio.package import Package
from intaglio.passes.memory import plan_memory
from intaglio.rewrite import Trace
from intaglio.targets import Target
from intaglio.tune.cache import Cache, Timing, Timings, digest, folder
from intaglio.tune.clock import race
from intaglio.tune.layer import layer

MIN_SPEEDUP = 1.05  # over the estimated best, for another implementation to be chosen
EVICTED_BYTES = (1 << 20, 1 << 26)  # least and most that are read before each timed run
EVICTION_RATE = 80.0  # bytes per nanosecond: the price of weights that evict other layers' weights
MAX_ROUNDS = 3  # of measuring: a choice may create layers that were not measured yet

# (packages by implementation, threads, evicted bytes, seconds) -> microseconds by implementation
Timer = Callable[[Mapping[str, Package], int, int, float], dict[str, float]]


def _warn(words: str) -> None:
    warnings.warn(words, stacklevel=2)


@dataclass(frozen=True)
class Tuning:
    """Settings of auto-tuning: the time limit in seconds for all layers, and threads."""

    seconds: float = 60.0
    threads: int = 1
    cache: Path | None = None  # folder; None: $INTAGLIO_CACHE, else the user's cache folder
    watch: Callable[[int, int, str], None] | None = None  # progress: layer i, of n, its description
    warn: Callable[[str], None] = _warn
    timer: Timer = race


@dataclass(frozen=True)
class Decision:
    """The implementation that was chosen for a node, and the reason: estimate or measurements."""

    rule: str
    origin: str
    choice: str
    estimate: str  # the implementation with the lowest estimated cost
    microseconds: dict[str, float] = field(default_factory=dict)  # measured, by implementation

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"origin": self.origin, "rule": self.rule, "way": self.choice}
        if self.microseconds:
            plain |= {"estimate": self.estimate, "microseconds": self.microseconds}
        return plain


@dataclass
class Tuned:
    """Summary of a tuning run."""

    layers: int = 0  # distinct layers with several implementations
    known: int = 0  # of them, those from the cache
    measured: int = 0
    seconds: float = 0.0
    stopped: str = ""  # why some layers were not measured

    def __str__(self) -> str:
        words = (
            f"{self.known + self.measured} of {self.layers} layers with several implementations "
            f"are measured ({self.known} from the cache, {self.measured} in {self.seconds:.1f} s)"
        )
        return f"{words}; {self.stopped}: estimates decide the rest" if self.stopped else words


@dataclass
class _Question:
    """A layer whose implementations are to be timed."""

    rule: str
    graph: Graph  # the layer alone
    names: Sequence[str]  # of the implementations
    estimate: str
    title: str
    work: int = 0  # multiply-accumulates (or elements) of all equal layers
    seen: set[Node] = field(default_factory=set)


class Decisions:
    """Chooses the estimated best implementation of each node, and records the choices."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Node], Decision] = {}

    @property
    def made(self) -> list[Decision]:
        return list(self._made.values())

    def measured(self, rule: str, node: Node) -> Timings:
        """Measurements of a node: none here."""
        return {}

    def fastest(self, known: Timings, names: Sequence[str], estimate: str) -> str:
        """The implementation with the lowest cost: without measurements, the estimate."""
        return estimate

    def pick(self, rule: str, node: Node, names: Sequence[str], estimate: str) -> str:
        """Choose for a rule that has several implementations."""
        known = self.measured(rule, node)
        choice = self.fastest(known, names, estimate)
        times = {name: t.microseconds for name, t in known.items() if t is not None}
        self._made[rule, node] = Decision(rule, node.origin, choice, estimate, times)
        return choice


class Tuner(Decisions):
    """A pass that times every layer with several implementations; `pick` then uses the times."""

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
        self.evicted = EVICTED_BYTES[0]

    def __call__(self, graph: Graph, trace: Trace) -> Tuned:
        """Measure the layers that are not in the cache; the graph stays unchanged."""
        start, done = time.perf_counter(), Tuned()
        self.evicted = _evicted_bytes(complexity(graph).parameter_bytes)
        seen: set[str] = set()
        try:
            for _ in range(MAX_ROUNDS):
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

    def measured(self, rule: str, node: Node) -> Timings:
        """Measurements of a node, from this run or from the cache."""
        small = layer(node, self.target.precision)
        return {} if small is None else self.cache.get(self._key(rule, small))

    def fastest(self, known: Timings, names: Sequence[str], estimate: str) -> str:
        """The implementation with the lowest cost; the estimate unless it is clearly slower."""

        def cost(name: str) -> float:
            found = known.get(name)
            if found is None:
                return math.inf
            return found.microseconds + found.weights / EVICTION_RATE / 1e3

        best = min(names, key=cost)
        return estimate if cost(estimate) <= MIN_SPEEDUP * cost(best) else best

    def _key(self, rule: str, small: Graph) -> str:
        t = self.tuning
        return digest(rule, str(small), str(self.target.isa), str(t.threads), str(self.evicted))

    def _complete(self, key: str, q: _Question) -> bool:
        return set(q.names) <= set(self.cache.get(key))

    def _questions(self, graph: Graph) -> dict[str, _Question]:
        """The layers of this graph with several implementations, most work first."""
        found: dict[str, _Question] = {}

        def ask(rule: str, node: Node, names: Sequence[str], estimate: str) -> str:
            small = layer(node, self.target.precision)
            if small is None:
                return estimate
            key = self._key(rule, small)
            q = found.setdefault(key, _Question(rule, small, names, estimate, _title(node)))
            if node not in q.seen:
                q.seen.add(node)
                q.work += macs(node) or node.outputs[0].type.size
            return self.fastest(self.cache.get(key), names, estimate)

        # Fused blocks (grouped and int8 convolutions) appear only after lowering, which takes long.
        has_blocks = any(
            n.attrs.get("groups", 1) > 1 or n.op == "qlinear_conv" for n in graph.nodes()
        )
        make = passes.lowering if self.target.block and has_blocks else passes.choices
        results = make(self.target, ask)
        known = {r.name for p in results if isinstance(p.run, passes.Rules) for r in p.run.every}
        known.update(p.rule for p in results if p.rule)
        with Arena(0), progress.silent():  # packed weights are thrown away
            passes.run(graph.copy(), results, self.level, disable=self.disable & known)
        return dict(sorted(found.items(), key=lambda item: -item[1].work))

    def _measure_all(self, asked: Mapping[str, _Question], end: float, done: Tuned) -> bool:
        """Measure one layer after the other; True if a choice differs from its estimate."""
        surprise = False
        for i, (key, q) in enumerate(asked.items()):
            left = end - time.perf_counter()
            if left <= 0:
                done.stopped = f"stopped after {self.tuning.seconds:g} s"
                return False
            if self.tuning.watch:
                self.tuning.watch(i, len(asked), f"timing {q.title}")
            with progress.inside("timing layers", i, len(asked)):
                progress.report(q.title)
                found = self._measure(q, left / (len(asked) - i))
            self.cache.put(key, f"{q.rule}: {q.title}", found)
            done.measured += 1
            surprise = surprise or self.fastest(found, q.names, q.estimate) != q.estimate
        return surprise

    def _measure(self, q: _Question, seconds: float) -> Timings:
        start = time.perf_counter()
        packages: dict[str, Package] = {}
        for name in q.names:
            try:
                packages[name] = self._compiled(q, name)
            except IntaglioError:
                if name == q.estimate:
                    raise
        left = seconds - (time.perf_counter() - start)
        found = self.tuning.timer(packages, self.tuning.threads, self.evicted, left)
        return {
            name: Timing(max(round(found[name], 2), 0.01), _weights(packages[name]))
            if name in found
            else None
            for name in q.names
        }

    def _compiled(self, q: _Question, name: str) -> Package:
        """The layer with this implementation."""

        def forced(rule: str, node: Node, names: Sequence[str], estimate: str) -> str:
            return name if rule == q.rule else estimate

        graph = q.graph.copy()
        with Arena(0), progress.silent():
            passes.run(graph, passes.lowering(self.target, forced), self.level)
        return Package.build([plan_memory(graph, "layer")[0]], isa=self.target.isa)


def _weights(package: Package) -> int:
    return sum(t.size for t in package.plan.tensors() if t.memory == "const")


def _evicted_bytes(parameters: int) -> int:
    """The model's parameters in bytes, rounded up to a power of two, within EVICTED_BYTES."""
    least, most = EVICTED_BYTES
    return min(max(1 << max(parameters - 1, 0).bit_length(), least), most)


def _title(node: Node) -> str:
    """A description: `conv 3x3, 64x56x56 -> 64x56x56`."""
    x, w = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    assert x is not None
    window = node.attrs.get("kernel") or (w.shape[2:] if w is not None else ())
    shapes = ("x".join(map(str, v.shape[1:])) for v in (x, node.outputs[0]))
    name = " ".join([node.op, "x".join(map(str, window))]).strip()
    return f"{name}, {' -> '.join(shapes)}"
