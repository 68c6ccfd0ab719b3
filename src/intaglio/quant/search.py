"""Find what a model needs to stay accurate: how to range each tensor, and what must not be int8.

All of it is measured on the outputs, by their parts, with a `Trial`: errors of single tensors add
up as long as they are small, so that groups of tensors are tried and only those that matter split.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Graph
from intaglio.ops.registry import REGISTRY
from intaglio.quant.affine import affine
from intaglio.quant.assign import precision_of
from intaglio.quant.compare import Reference
from intaglio.quant.formats import USUAL, Formats
from intaglio.quant.observe import Progress
from intaglio.quant.place import PRODUCTS, Placement, layer, place
from intaglio.quant.scheme import TensorScheme
from intaglio.quant.trial import Errors, Trial, total

SAMPLES = 24  # that are tried
METHODS = ("minmax", "moving", "percentile", "mse")  # the first has to be beaten by the others
BLOCKS = 6  # of tensors in order, each of which may have a method of its own
GAIN = 0.95  # of the error: what another method has to come to in a block, to be worth it
BEATS = 0.8  # of the error by the first method, which cuts nothing off, that another must come to
FINE = 0.001  # squared error (cosine 0.9995) of the first method, below which no other is tried
GOOD = 0.004  # squared error (cosine 0.998) below which there is nothing to look for
TRIALS = 120  # to find the tensors that matter
SINGLY = 24  # tensors that are promoted one by one, each measured
HELPS = 0.97  # of the error: what promoting a tensor has to come to, to be kept
ROUNDS = 6
SLACK = 0.7  # share of what is allowed that single errors may add up to

Schemes = Mapping[str, TensorScheme]
Make = Callable[[Mapping[str, str]], dict[str, TensorScheme]]  # schemes by each tensor's method


@dataclass(frozen=True)
class Point:
    """One step of the trade-off: so many layers wider, so much work of them, so good a match."""

    layers: tuple[str, ...]
    share: float  # of the model's multiplications that are in wider types
    cosine: float  # of the worst part of an output
    measured: bool
    time: float = 1.0  # of the products by the target's costs, beside those of all layers in int8

    def to_dict(self) -> dict[str, Any]:
        return {
            "layers": list(self.layers), "share": self.share, "time": self.time,
            "cosine": self.cosine, "measured": self.measured,
        }  # fmt: skip


@dataclass
class Found:
    """What a search came to."""

    methods: dict[str, str] = field(default_factory=dict)  # by tensor
    layers: dict[str, str] = field(default_factory=dict)  # precision of those that are not int8
    cosine: float = 1.0  # of the worst part of an output
    curve: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Cache:
    """Errors of trials that were made before, in a file: a search goes on where it was stopped."""

    def __init__(self, path: str | Path, subject: str):
        self.path = Path(path)
        self.known: dict[str, Errors] = {}
        self.subject = hashlib.sha256(subject.encode()).hexdigest()[:16]
        try:
            stored = json.loads(self.path.read_text()) if self.path.exists() else {}
        except (OSError, ValueError) as e:
            raise BadInput(f"{path} is no search to go on with: {e}; remove it") from None
        if isinstance(stored, dict) and stored.get("subject") == self.subject:
            self.known = dict(stored["errors"])

    def key(self, schemes: Schemes) -> str:
        text = repr(sorted((n, t.dtype, t.scale, t.zero) for n, t in schemes.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def errors(self, trial: Trial, schemes: Schemes) -> Errors:
        """What the trial says, or said before."""
        key = self.key(schemes)
        if key not in self.known:
            self.known[key] = trial.errors(schemes)
            try:
                self.path.write_text(json.dumps({"subject": self.subject, "errors": self.known}))
            except OSError as e:
                raise BadInput(f"cannot write {self.path}: {e.strerror}") from None
        return self.known[key]


class Search:
    """Trials on one model and placement."""

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        trial: Trial,
        make: Make,
        cache: Cache | None = None,
        progress: Progress | None = None,
        fixed: Collection[str] = (),
        how: Formats = USUAL,
    ):
        """`fixed` names tensors and layers that are as the user wants them, come what may."""
        self.how = how
        self.fixed = set(fixed)
        self.graph, self.placement, self.trial = graph, placement, trial
        self.make, self.cache, self.progress = make, cache, progress
        self.count = 0
        self.work = {layer(n): REGISTRY[n.op].macs(n) for n in graph.nodes() if n.op in PRODUCTS}

    def errors(self, schemes: Schemes) -> Errors:
        self.count += 1
        if self.progress:
            self.progress("trying what is accurate", self.count, None)
        return self.cache.errors(self.trial, schemes) if self.cache else self.trial.errors(schemes)

    # ---- ranges ----------------------------------------------------------------------------------
    def choose_methods(self, methods: Sequence[str] = METHODS, runs: int = 24) -> dict[str, str]:
        """How to range each tensor: the best method for all, then for blocks of them in order."""
        names = self.trial.names
        figures: dict[str, float] = {}
        for m in methods:
            figures[m] = total(self.errors(self.make(dict.fromkeys(names, m))))
            if m == methods[0] and figures[m] < FINE:
                return dict.fromkeys(names, m)
        ranked = sorted(methods, key=lambda m: figures[m] * (BEATS if m == methods[0] else 1))
        chosen, best = dict.fromkeys(names, ranked[0]), figures[ranked[0]]
        blocks = [list(b) for b in np.array_split(np.array(names), min(BLOCKS, len(names)))]
        for block in blocks:
            for m in ranked[1:]:
                if best < GOOD or self.count >= runs:
                    return chosen
                other = chosen | {str(n): m for n in block}
                figure = total(self.errors(self.make(other)))
                if figure < GAIN * best:
                    chosen, best = other, figure
        return chosen

    # ---- precision -------------------------------------------------------------------------------
    def sensitivities(self, schemes: Schemes, floor: float) -> tuple[Errors, dict[str, Errors]]:
        """What rounded weights alone cost, and what each tensor adds to that.

        Groups that add less than `floor` to every part are not looked into any further.
        """
        base = self.errors({})
        found: dict[str, Errors] = {}
        todo, first = [list(schemes)], self.count
        while todo:
            group = todo.pop()
            both = self.errors({n: schemes[n] for n in group})
            added = {p: max(both[p] - base[p], 0.0) for p in both}
            over = self.count - first >= TRIALS
            if len(group) == 1 or over or max(added.values()) < floor:
                found |= {n: {p: e / len(group) for p, e in added.items()} for n in group}
            else:
                half = len(group) // 2
                todo += [group[:half], group[half:]]
        return base, found

    def readers(self, tensor: str) -> list[str]:
        """The layers that compute with a tensor in integers."""
        v = next(v for v in self.placement.tensors if v.name == tensor)
        return [layer(n) for n in v.uses if n in self.placement.nodes]

    def cost(self, tensors: Iterable[str]) -> float:
        """The share of the model's work that is in wider types if these tensors are."""
        named = {name for t in tensors for name in self.readers(t)}
        every = sum(self.work.values()) or 1
        return sum(self.work.get(name, 0) for name in named) / every

    def layers(self, promoted: Mapping[str, str]) -> dict[str, str]:
        """The precision of every layer that reads a promoted tensor: the widest that one needs."""
        made: dict[str, str] = {}
        for t, level in promoted.items():
            for name in self.readers(t):
                made[name] = max(made.get(name, level), level, key=self.how.wider.index)
        return made

    def time(self, layers: Mapping[str, str]) -> float:
        """What the products take beside all of them in the usual precision."""
        chip, every = self.placement.chip, sum(self.work.values()) or 1
        usual = chip.in_precision(self.how.precision).cost
        more = {name: chip.in_precision(p).cost / usual - 1 for name, p in layers.items()}
        return 1 + sum(self.work.get(name, 0) * by for name, by in more.items()) / every

    def meet(self, schemes: Schemes, cosine: float, wanted: Mapping[str, str]) -> Found:
        """Promote what it takes, the most error for the least work first, to match by `cosine`."""
        allowed = 2 * (1 - cosine)  # as a squared error: cos = 1 - e / 2 while e is small
        now = self.errors(schemes)
        start = Point((), 0.0, _cosine(now), True)
        found = Found(cosine=start.cosine, curve=[start])
        if max(now.values(), default=0.0) <= allowed:
            return found
        base, single = self.sensitivities(schemes, allowed / 20)
        ranked = self.ranked(base, single, allowed)
        promoted: dict[str, str] = {}
        for t in ranked[:SINGLY]:  # what one tensor causes is not to cost its successors too
            for level in self.how.wider:  # the cheapest that helps
                if max(now.values()) <= allowed or t in promoted:
                    break
                after, point = self._promoted({**promoted, t: level}, schemes, wanted)
                if total(after) < HELPS * total(now):
                    promoted, now = {**promoted, t: level}, after
                    found.curve.append(point)
        rest = [t for t in ranked if t not in promoted]
        for i in range(ROUNDS):
            if max(now.values()) <= allowed or not rest or not self.how.wider:
                break
            many = max(len(ranked) // 20, 1) << i
            promoted |= dict.fromkeys(rest[:many], self.how.wider[-1])
            rest = rest[many:]
            now, point = self._promoted(promoted, schemes, wanted)
            found.curve.append(point)
        found.cosine = _cosine(now)
        found.layers = self.layers(promoted)
        found.notes = [self._words(t, single[t], level) for t, level in promoted.items()]
        if found.cosine < cosine:
            why = (
                "rounded weights or the model itself stand in the way"
                if self.how.wider
                else f"{self.placement.chip.name} has nothing wider than {self.how.precision}"
            )
            found.notes.append(
                f"the outputs match by {found.cosine:.4f} only; {cosine:g} was asked for: {why}"
            )
        return found

    def _promoted(
        self, promoted: Mapping[str, str], schemes: Schemes, wanted: Mapping[str, str]
    ) -> tuple[Errors, Point]:
        """What remains where the readers of these tensors compute in something wider."""
        layers = self.layers(promoted)
        left = self._left({**wanted, **layers})
        errors = self.errors(
            {n: self._widened(t, left[n]) for n, t in schemes.items() if n in left}
        )
        point = Point(tuple(layers), self.cost(promoted), _cosine(errors), True, self.time(layers))
        return errors, point

    def _widened(self, t: TensorScheme, precision: str) -> TensorScheme:
        """The same range in the type of a wider precision."""
        dtype = self.how.tensors[precision]
        if (
            precision == self.how.precision
            or dtypes.TABLE[t.dtype].bits >= dtypes.TABLE[dtype].bits
        ):
            return t
        return affine(t.lo, t.hi, dtype, precision in self.how.symmetric)

    def ranked(self, base: Errors, single: Mapping[str, Errors], allowed: float) -> list[str]:
        """Tensors, the one first that takes most error away for the work it costs in floats."""
        whole = {p: base[p] + sum(e[p] for e in single.values()) for p in base}
        bad = {p: w for p, w in whole.items() if w > allowed * SLACK} or whole

        def worth(t: str) -> float:
            return max(single[t][p] / bad[p] for p in bad) / (self.cost([t]) + 0.01)

        free = [t for t in single if t not in self.fixed and self.readers(t)]
        free = [t for t in free if self.fixed.isdisjoint(self.readers(t))]
        return sorted(free, key=lambda t: -worth(t))

    def curve(self, schemes: Schemes, points: int = 8) -> list[Point]:
        """Accuracy against work: what promoting ever more tensors comes to, each measured."""
        base, single = self.sensitivities(schemes, total(self.errors(schemes)) / 200)
        ranked = self.ranked(base, single, 0.0)
        made = []
        for k in sorted({round(len(ranked) * (i / points) ** 2) for i in range(points + 1)}):
            level = self.how.wider[-1] if self.how.wider else self.how.precision
            made.append(self._promoted(dict.fromkeys(ranked[:k], level), schemes, {})[1])
        return made

    def _left(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """The tensors that are still quantised if layers are as in `wanted`, and how wide."""
        placed = place(self.graph, wanted, self.placement.chip, self.how.precision)
        return {v.name: precision_of(v, placed) for v in placed.tensors}

    def _words(self, tensor: str, errors: Errors, level: str) -> str:
        part = max(errors, key=errors.__getitem__)
        return (
            f"'{tensor}' is too coarse in {self.how.precision}: alone it costs '{part}' "
            f"{np.sqrt(errors[part]):.1%}; {', '.join(map(repr, self.readers(tensor)))} in {level}"
        )


def _cosine(errors: Errors) -> float:
    return 1 - max(errors.values(), default=0.0) / 2


def subject(graph: Graph, reference: Reference) -> str:
    """What a search is about: the model, its weights, and what it makes of the samples."""
    parts = [str(graph)]
    parts += [str(zlib.crc32(v.data.tobytes())) for v in graph.values() if v.data is not None]
    parts += [str(zlib.crc32(a.tobytes())) for o in reference.outputs for a in o.values()]
    return "\n".join(parts)


def some_of(samples: Sequence[Any], count: int = SAMPLES) -> list[Any]:
    """A few of the samples, evenly spread."""
    return [samples[i] for i in some_at(len(samples), count)]


def some_at(samples: int, count: int = SAMPLES) -> list[int]:
    """Which of so many samples `some_of` takes."""
    return [int(i) for i in np.unique(np.linspace(0, samples - 1, count).round())]
