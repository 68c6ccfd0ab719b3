"""Mixed precision: find the layers that must not be int8, by output error removed per work added.

Errors that the rounding of single tensors causes in the outputs add up. So groups of tensors are
tried, and only groups whose error matters are split. A unit of promotion is all readers of a tensor
and of its slices and views; its gain is the rounding that then disappears, up to the products
before and after it.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ops.registry import REGISTRY
from intaglio.quant.placement.output_heads import serve_only
from intaglio.quant.placement.place import PRODUCTS, layer, place
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.placement.shared_rounding import SharedRoundings, shared_roundings
from intaglio.quant.ranges.affine import affine
from intaglio.quant.ranges.assign import precision_of
from intaglio.quant.search.method_search import Search
from intaglio.quant.search.trial import Errors
from intaglio.targets.precision import Precision

TRIALS = 60  # to find the tensors that matter,
MORE_TRIALS = 120  # and where scores count
FLOOR = 0.05  # share of what is allowed below which a group of tensors is not split,
LITTLE = 0.003  # and below which a unit is not promoted where scores count
ADDS_UP = 0.1  # squared error below which one half of a group tells what the other costs
AIM = 0.8  # share of what is allowed that predicted errors are to come to
NEEDLESS = 0.5  # share of what is allowed that errors come to without it, at most
BACK = 8  # promotions that are tried to be taken back
SUITS = 0.5  # share of what is allowed that scores may lose with nothing promoted
STRICT = 10.0  # times that scores beside other numbers are to be closer than anything else, if more
CLOSER = 40.0  # likewise, where nothing but rounded tensors stands in the way
SHARP = 0.1  # share of what is allowed that rounded weights alone may cost scores for that
RUINED = 10.0  # times what is allowed: where int8 loses that, what is left is to be STRICT closer
FUTILE = 1.5  # times what rounded weights alone cost: scores are not held closer than that
MOST_TIME = (1.5, 1.8)  # of all layers in int8: what STRICT and CLOSER may cost
HEAD = 0.1  # likewise, what the last layers of nothing but scores may take, to go first
HEAVY = 0.5  # share of what is allowed that rounded weights cost, above which trials tell theirs
TINY = 1e-6  # of a goal: where nothing is known to help, the cheapest is first
PER_NUMBER = 25  # multiplications that a layer takes as long as, at least, for what it makes
CONVERSION = 0.01  # share of the model's work that going to another precision and back counts as

Schemes = Mapping[str, TensorScheme]


@dataclass(frozen=True)
class Point:
    """One step of the trade-off: so many layers wider, so much work of them, so good a match."""

    layers: tuple[str, ...]
    share: float  # of the model's multiplications that are in wider types
    cosine: float  # of the worst part of an output
    measured: bool
    time: float = 1.0  # of the products by the target's costs, beside those of all layers in int8
    kept: bool = False  # it is what the model became

    def to_dict(self) -> dict[str, Any]:
        return {
            "layers": list(self.layers),
            "share": self.share,
            "time": self.time,
            "cosine": self.cosine,
            "measured": self.measured,
            "kept": self.kept,
        }


@dataclass
class Found:
    """What a search came to."""

    methods: dict[str, str] = field(default_factory=dict)  # of ranges, by tensor
    room: float = 1.0  # times that ranges reach beyond what was seen
    deep_room: float = 1.0  # times more for the later half of the tensors
    layers: dict[str, str] = field(default_factory=dict)  # precision of those that are not int8
    cosine: float = 1.0  # of the worst part of an output
    curve: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Unit:
    """Layers that become wider together, because they read one tensor."""

    tensor: str
    layers: frozenset[str]
    frees: frozenset[str]  # tensors that are not rounded (to bytes) any more


class Guard:
    """Promotes what it takes to keep the outputs; `wanted` is what the user decided already."""

    def __init__(
        self,
        search: Search,
        schemes: Schemes,
        wanted: Mapping[str, str],
        cosine: float,
        closer: bool = False,
        highest: bool = False,
    ):
        """`closer`: scores are to be held as close as detections need it, for more time;
        `highest`: it is the highest of them that are judged, and none need be closer than that."""
        self.closer, self.highest, self.timed = closer, highest, closer or highest
        self.search, self.schemes, self.wanted, self.cosine = search, schemes, wanted, cosine
        self.how, self.placement = search.how, search.placement
        self.products = {layer(n): n for n in search.graph.nodes() if n.op in PRODUCTS}
        self.work = {name: REGISTRY[n.op].macs(n) for name, n in self.products.items()}
        self.pace = {
            name: max(macs, PER_NUMBER * self.products[name].outputs[0].type.size)
            for name, macs in self.work.items()
        }
        self.once = (
            shared_roundings(search.placement, schemes)
            if self.timed
            else SharedRoundings({n: frozenset([n]) for n in schemes})
        )
        self.level = self.how.wider[0] if self.how.wider else None
        allowed = 2 * (1 - cosine)  # as a squared error: cos = 1 - e / 2 while e is small
        strict = self.strict = search.trial.reference.scores()
        self.near = search.how.near if self.timed else ()
        self.hard = dict.fromkeys(search.trial.reference.names(), allowed)
        times, fine = (1.0, 1.0) if highest else (CLOSER if closer else STRICT, SUITS)
        self.goal = {p: e / times if p in strict else e for p, e in self.hard.items()}
        self.fine = {p: e * fine if p in strict else e for p, e in self.hard.items()}
        self.exact = False  # weights of wider layers are not rounded in trials either: slower

    @functools.cached_property
    def now(self) -> Errors:
        """What all of it costs with nothing promoted."""
        return self.search.errors(self.schemes)

    # ---- what is to be reached -------------------------------------------------------------------
    def over(self, errors: Errors, hard: bool = False) -> float:
        """How many times the worst part of an output is further off than it may be."""
        limits = self.hard if hard else self.goal
        return max((e / limits[p] for p, e in errors.items()), default=0.0)

    def suits(self) -> bool:
        """Is the model good enough as it is?"""
        return all(e <= self.fine[p] for p, e in self.now.items())

    def can_be_closer(self) -> bool:
        """Do scores miss the goal, but not by what rounded weights alone cost them?"""
        if not self.strict or self.suits():
            return False
        weights = self.search.errors({})
        return all(weights[p] <= SHARP * self.hard[p] for p in self.strict)

    def weights_matter(self, share: float) -> bool:
        """Do the outputs miss the goal, and rounded weights alone cost a good part of that?"""
        if self.suits():
            return False
        return self.over(self.search.errors({})) > share

    # ---- what causes it --------------------------------------------------------------------------
    def sensitivities(self, all_of_them: Errors) -> tuple[Errors, dict[str, Errors]]:
        """What rounded weights alone cost, and what each tensor adds to that: the worst first."""
        base = self.search.errors({})
        if self.timed and len(self.once) <= MORE_TRIALS:
            return base, {n: self.search.alone(self.part([n])) for n in self.once}
        whole = _less(all_of_them, base)
        found: dict[str, Errors] = {}
        count = 0
        heap = [(-self.over(whole), 0, list(self.once), whole)]
        while heap:
            size, _, group, added = heapq.heappop(heap)
            if len(group) == 1 or count >= TRIALS or -size < FLOOR:
                found |= {n: {p: e / len(group) for p, e in added.items()} for n in group}
                continue
            half, rest = group[: len(group) // 2], group[len(group) // 2 :]
            one = self.added(half, base)
            small = max(added.values()) < ADDS_UP
            other = _less(added, one) if small else self.added(rest, base)
            count += 1 if small else 2
            for part, e in ((half, one), (rest, other)):
                heapq.heappush(heap, (-self.over(e), 2 * count + (part is half), part, e))
        return base, found

    def added(self, tensors: list[str], base: Errors) -> Errors:
        """What rounding these adds to what rounded weights cost."""
        return _less(self.search.errors(self.part(tensors)), base)

    def part(self, tensors: list[str]) -> dict[str, TensorScheme]:
        """The schemes of these, and of all that is rounded with them."""
        names = {n for t in tensors for n in self.once[t]}
        return {n: t for n, t in self.schemes.items() if n in names}

    # ---- what can be done ------------------------------------------------------------------------
    def units(self) -> list[Unit]:
        """Every tensor whose readers could be wider, with what that frees of rounding."""
        made: dict[frozenset[str], Unit] = {}
        by_name = {v.name: v for v in self.placement.tensors}
        for name, members in self.once.items():
            uses = [n for m in members if m not in self.once.before for n in by_name[m].uses]
            readers = frozenset(layer(n) for n in uses if n in self.placement.nodes)
            fixed = not self.search.fixed.isdisjoint({*members, *readers})
            if not readers or readers in made or fixed:
                continue
            left = self.left(dict.fromkeys(readers, self.level or ""))
            usual = self.how.precision
            frees = {n for n in self.schemes if n not in left or left[n] != usual}
            made[readers] = Unit(name, readers, frozenset(frees))
        return list(made.values())

    def left(self, layers: Mapping[str, str]) -> dict[str, str]:
        """The tensors that are still quantised with layers so, and in which precision."""
        wanted = {**self.wanted, **layers}
        placed = place(self.search.graph, wanted, self.placement.chip, self.how.precision)
        return {v.name: precision_of(v, placed) for v in placed.tensors}

    def share(self, layers: Iterable[str]) -> float:
        """The part of the model's work that these layers are."""
        return sum(self.work.get(name, 0) for name in layers) / (sum(self.work.values()) or 1)

    def time(self, layers: Mapping[str, str]) -> float:
        """What the products take beside all of them in the usual precision."""
        chip = self.placement.chip
        usual = chip.in_precision(self.how.precision)

        def takes(name: str, p: Precision) -> float:
            if not self.timed:
                return self.work[name] * p.cost
            return self.pace[name] * p.takes(self.products[name])

        whole = sum(takes(name, usual) for name in self.work)
        more = sum(
            takes(name, chip.in_precision(p)) - takes(name, usual)
            for name, p in layers.items()
            if name in self.work
        )
        return 1 + more / (whole or 1)

    def level_of(self, name: str) -> str:
        """What a layer is promoted to: where scores need it, what is fastest of those that do."""
        node = self.products.get(name)
        if node is None or not self.level:
            return self.level or ""
        chip = self.placement.chip
        return min((self.level, *self.near), key=lambda p: chip.in_precision(p).takes(node))

    # ---- doing it --------------------------------------------------------------------------------
    def meet(self) -> Found:
        """Promote layers, the most error for the least work first, and take back what need not."""
        now = self.now
        found = Found(cosine=_cosine(now), curve=[Point((), 0.0, _cosine(now), True)])
        if self.suits():
            return found
        if self.highest and self.over(now) > RUINED:  # few tensors do that, and all others add up
            self.goal = {p: e / STRICT for p, e in self.hard.items()}
        base, single = self.sensitivities(now)
        self.exact = not self.closer and self.over(base, hard=True) > HEAVY
        for p, e in base.items():
            self.goal[p] = min(max(self.goal[p], FUTILE * e), self.hard[p])
        ranked = self.ranked(base, single) if self.level else []
        many = self.enough(base, single, ranked) if ranked else 0
        some = self.in_time(ranked, many)
        predicted = self._remaining(base, single, ranked[:some])
        if self.timed and self.over(predicted, hard=True) <= 1:
            many = some
        chosen, step, short = list[Unit](), 1, 0
        while len(chosen) < len(ranked) and self.over(now) > 1:
            if self.over(now, hard=True) <= 1:
                many = self.in_time(ranked, many)
            if many <= len(chosen):
                break
            short, chosen = len(chosen), ranked[:many]
            now = self.measured(chosen, found)
            many, step = min(many + step, len(ranked)), 2 * step
        while self.exact and self.over(now) <= 1 and len(chosen) - short > 1:
            fewer = ranked[: (short + len(chosen)) // 2]
            after = self.measured(fewer, found)
            if self.over(after) <= 1:
                chosen, now = fewer, after
            else:
                short = len(fewer)
        if self.over(now) <= 1:
            chosen, now = self.taken_back(chosen, single, now, found)
        layers = self.layers(chosen)
        for level in self.how.wider[1:]:  # where the first is not enough
            if self.over(now, hard=True) > 1:
                self.level = level
                layers, now = self.layers(chosen), self.measured(chosen, found)
        found.layers, found.cosine = layers, _cosine(now)
        found.curve = [
            replace(p, kept=set(p.layers) == set(layers) and p.cosine == found.cosine)
            for p in sorted(found.curve, key=lambda p: p.time)
        ]
        found.notes = [self.words(u, single) for u in chosen]
        if self.over(now, hard=True) > 1:
            why = (
                "rounded weights or the model itself stand in the way"
                if self.how.wider
                else f"{self.placement.chip.name} has nothing wider than {self.how.precision}"
            )
            said = f"{found.cosine:.6g} only; {self.cosine:g} was asked for: {why}"
            found.notes.insert(0, f"the outputs match by {said}")
        return found

    def ranked(self, base: Errors, single: Mapping[str, Errors]) -> list[Unit]:
        """Units in the order in which each takes most off for what it costs beside those before."""
        units = self.units()
        made = self.head(units)
        freed, done = {n for u in made for n in u.frees}, {n for u in made for n in u.layers}
        units = [u for u in units if not u.frees <= freed]
        while units:
            remain = self._remaining(base, single, made)
            bad = {p for p, e in remain.items() if e > AIM * self.goal[p]} or set(base)

            off = [self._off(self._gone(u.frees | freed, freed), single, bad) for u in units]
            if self.closer and max(off) < LITTLE and self.over(remain, hard=True) <= 1:
                break
            cost = [self.price(u.layers - done) for u in units]
            best = units[int(np.argmax(np.divide(np.array(off) + TINY, cost)))]
            made.append(best)
            freed |= best.frees
            done |= best.layers
            units = [u for u in units if not u.frees <= freed]
        return made

    def price(self, layers: Set[str]) -> float:
        """What it counts as to make these wider: time where it matters, or else work."""
        more = self.time(self._leveled(layers)) - 1 if self.timed else self.share(layers)
        return more + CONVERSION

    def head(self, units: list[Unit]) -> list[Unit]:
        """What reads tensors that serve nothing but scores, from the end, while it takes little.

        They tell classes apart, of which samples show few: ranges say little of what is to come.
        """
        made = list[Unit]()
        if self.closer:
            parts = self.search.trial.reference.parts
            only = serve_only(self.search.graph, parts, self.strict)
            for u in reversed([u for u in units if u.tensor in only]):
                if self.time(self.layers([*made, u])) <= 1 + HEAD:
                    made.append(u)
        return made

    def _gone(self, freed: Set[str], before: Set[str] = frozenset()) -> list[str]:
        """What of all that is rounded once is no longer rounded, but was `before`."""
        return [n for n, all_of in self.once.items() if all_of <= freed and not all_of <= before]

    def _remaining(self, base: Errors, single: Mapping[str, Errors], units: list[Unit]) -> Errors:
        """What is left, by what is known of each tensor, where these units are wider."""
        freed = {n for u in units for n in u.frees}
        kept = [single[n] for n, all_of in self.once.items() if not all_of <= freed]
        return self._without({p: base[p] + sum(e[p] for e in kept) for p in base}, base, units)

    def _without(self, errors: Errors, base: Errors, units: list[Unit]) -> Errors:
        """Less what rounded weights of wider layers cost, where that counts: they are not rounded,
        but in trials all are. Each layer has its part in it by its work."""
        if not self.timed and not self.exact:
            return errors
        less = self.share({n for u in units for n in u.layers})
        return {p: max(e - less * base[p], 0.0) for p, e in errors.items()}

    def _off(
        self, tensors: Iterable[str], single: Mapping[str, Errors], parts: Iterable[str]
    ) -> float:
        """What these come to together, in goals of the part that gains most."""
        errors = [single[n] for n in tensors]
        return max(sum(e[p] for e in errors) / self.goal[p] for p in parts)

    def enough(self, base: Errors, single: Mapping[str, Errors], ranked: list[Unit]) -> int:
        """How many of the units should do, by what is known of each."""
        for k in range(1, len(ranked) + 1):
            if self.over(self._remaining(base, single, ranked[:k])) <= AIM:
                return k
        return len(ranked)

    def in_time(self, units: list[Unit], many: int) -> int:
        """How many of the first `many` units go into the time that scores may take."""
        while many > 0 and self.time(self.layers(units[:many])) > MOST_TIME[self.closer]:
            many -= 1
        return many

    def taken_back(
        self, chosen: list[Unit], single: Mapping[str, Errors], now: Errors, found: Found
    ) -> tuple[list[Unit], Errors]:
        """Without those that are not needed: the costliest for their gain are tried first."""

        def gain(u: Unit) -> float:
            others = {n for o in chosen if o is not u for n in o.frees}
            return self._off(self._gone(u.frees | others, others), single, self.goal)

        by_worth = sorted(chosen, key=lambda u: gain(u) / self.price(u.layers))
        for u in by_worth[:BACK]:
            if self.over(now) + gain(u) / 2 > NEEDLESS:
                continue
            fewer = [o for o in chosen if o is not u]
            after = self.measured(fewer, found)
            if self.over(after) <= NEEDLESS:
                chosen, now = fewer, after
        return chosen, now

    def layers(self, units: Iterable[Unit]) -> dict[str, str]:
        return self._leveled(name for u in units for name in sorted(u.layers))

    def _leveled(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.level_of(name) for name in names}

    def measured(self, units: list[Unit], found: Found) -> Errors:
        """What remains where these are wider."""
        layers = self.layers(units)
        kept = self.kept(self.schemes, layers)
        if self.exact:
            reals = {n for n, p in layers.items() if self.placement.chip.in_precision(p).is_float}
            errors = self.search.errors_without(kept, reals)
        else:
            errors = self._without(self.search.errors(kept), self.search.errors({}), units)
        found.curve.append(
            Point(tuple(layers), self.share(layers), _cosine(errors), True, self.time(layers))
        )
        return errors

    def kept(self, schemes: Schemes, layers: Mapping[str, str]) -> dict[str, TensorScheme]:
        """What is still rounded with layers so, and how."""
        left = self.left(layers)
        return {n: self._widened(t, left[n]) for n, t in schemes.items() if n in left}

    def _widened(self, t: TensorScheme, precision: str) -> TensorScheme:
        """The same range in the type of a wider precision."""
        dtype = self.how.tensors[precision]
        if (
            precision == self.how.precision
            or dtypes.TABLE[t.dtype].bits >= dtypes.TABLE[dtype].bits
        ):
            return t
        return affine(t.lo, t.hi, dtype, precision in self.how.symmetric)

    def words(self, unit: Unit, single: Mapping[str, Errors]) -> str:
        """What was promoted, and what it would have cost."""
        freed = [single[n] for n in self._gone(unit.frees) or [unit.tensor]]
        errors = {p: sum(e[p] for e in freed) for p in self.goal}
        part = max(errors, key=errors.__getitem__)
        by_level: dict[str, list[str]] = {}
        for name in sorted(unit.layers):
            by_level.setdefault(self.level_of(name), []).append(repr(name))
        return (
            f"'{unit.tensor}' is too coarse in {self.how.precision}: it costs '{part}' "
            f"{np.sqrt(errors[part]):.1%}; "
            + ", ".join(f"{', '.join(names)} in {p}" for p, names in by_level.items())
        )


def _less(a: Errors, b: Errors) -> Errors:
    return {p: max(e - b[p], 0.0) for p, e in a.items()}


def _cosine(errors: Errors) -> float:
    return 1 - max(errors.values(), default=0.0) / 2
