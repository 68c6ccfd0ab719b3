"""Mixed precision: promote the layers whose rounding costs the outputs most for the least time.

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

import numpy as np

from intaglio import dtypes
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.placement.shared_rounding import shared_roundings
from intaglio.quant.ranges.affine import affine
from intaglio.quant.search.method_search import Search
from intaglio.quant.search.promotion import Point as Point
from intaglio.quant.search.promotion import Promotions, Unit
from intaglio.quant.search.trial import Errors

NO_GAIN = 1e-6  # of the allowed error: ranks units of unknown gain by price

Schemes = Mapping[str, TensorScheme]


@dataclass
class Found:
    """The settings that a search chose."""

    methods: dict[str, str] = field(default_factory=dict)  # range method by tensor
    layers: dict[str, str] = field(default_factory=dict)  # precision of promoted layers
    cosine: float = 1.0  # of the worst part of an output
    curve: list[Point] = field(default_factory=list)  # every combination that was tried
    notes: list[str] = field(default_factory=list)


class MixedPrecision:
    """Promotes layers until every part of every output keeps the cosine that was asked for.

    `wanted` is the precision of layers that the user decided.
    """

    def __init__(self, search: Search, schemes: Schemes, wanted: Mapping[str, str], cosine: float):
        self.search, self.schemes, self.cosine = search, schemes, cosine
        self.how, self.policy = search.how, search.policy
        self.promotions = Promotions(
            search.graph, search.placement, search.how, wanted, search.fixed, search.policy
        )
        self.roundings = shared_roundings(search.placement, schemes)
        self.allowed = allowed_error(cosine)
        self.exact = False  # trials keep the float weights of promoted layers: one compile a trial

    @functools.cached_property
    def now(self) -> Errors:
        """The errors with nothing promoted."""
        return self.search.errors(self.schemes)

    def over(self, errors: Errors) -> float:
        """The worst error as a multiple of the allowed one."""
        return max(errors.values(), default=0.0) / self.allowed

    def weights_matter(self) -> bool:
        """Do the outputs miss the goal, and do rounded weights alone cost a good part of it?"""
        if self.over(self.now) <= 1:
            return False
        return self.over(self.search.errors({})) > self.policy.rounding_share

    # ---- sensitivity -----------------------------------------------------------------------------
    def sensitivities(
        self, base: Errors, chosen: list[Unit]
    ) -> tuple[dict[str, Errors], dict[str, Errors]]:
        """The error that each tensor adds to `base`, the error of rounded weights alone, with
        `chosen` promoted; apart from them tensors of groups that there were no trials to split.

        The group with the largest error is split in two until its error is negligible. Groups are
        tried on the samples with the largest part of the error, and the results are scaled to all.
        """
        left = self.kept(self.schemes, self.layers(chosen))
        whole = _less(self.search.errors(left), base)
        groups = Groups(self, left, whole)
        found: dict[str, Errors] = {}
        unsplit: dict[str, Errors] = {}
        count = 0
        heap = [(-self.over(whole), 0, groups.every, whole)]
        while heap:
            size, _, group, added = heapq.heappop(heap)
            fine = len(group) <= 1 or -size < self.policy.negligible
            if fine or count >= self.policy.trial_budget:
                each = {n: {p: e / len(group) for p, e in added.items()} for n in group}
                (found if fine else unsplit).update(each)
                continue
            half, rest = group[: len(group) // 2], group[len(group) // 2 :]
            one = groups.added(half)
            small = max(added.values()) < self.policy.additive
            other = _less(added, one) if small else groups.added(rest)
            count += 1 if small else 2
            for part, e in ((half, one), (rest, other)):
                heapq.heappush(heap, (-self.over(e), 2 * count + (part is half), part, e))
        return found, unsplit

    # ---- promotion -------------------------------------------------------------------------------
    def meet(self) -> Found:
        """Promote layers, the most error for the least time first; then undo needless ones."""
        now = self.now
        found = Found(cosine=_cosine(now), curve=[Point((), 0.0, _cosine(now), True)])
        if self.over(now) <= 1:
            return found
        base, costs = self.search.errors({}), dict[str, Errors]()
        self.exact = self.over(base) > self.policy.exact_share
        chosen, now = self.promoted(base, now, costs, found)
        if self.over(now) <= 1:
            chosen, now = self.without_needless(chosen, costs, now, found)
        layers = self.layers(chosen)
        for level in self.how.wider[1:]:  # the first wider precision was not enough
            if self.over(now) > 1:
                self.promotions.level = level
                layers, now = self.layers(chosen), self.measured(chosen, found)
        found.layers, found.cosine = layers, _cosine(now)
        found.curve = [
            replace(p, kept=set(p.layers) == set(layers) and p.cosine == found.cosine)
            for p in sorted(found.curve, key=lambda p: p.time)
        ]
        found.notes = [self.words(u, costs) for u in chosen]
        if self.over(now) > 1:
            found.notes.insert(0, self.missed(found.cosine))
        return found

    def promoted(
        self, base: Errors, now: Errors, costs: dict[str, Errors], found: Found
    ) -> tuple[list[Unit], Errors]:
        """Units that are enough, and the errors with them; `costs` gets the error by tensor.

        If the units that should be enough are not, the tensors that are left are searched again.
        """
        chosen, ranked, short = list[Unit](), list[Unit](), 0
        for _ in range(self.policy.passes if self.promotions.level else 0):
            self.search.expect("trying tensors in floats", 2 * self.policy.trial_budget)
            single = self.to_blame(base, chosen, costs)
            self.search.expect("trying layers in floats")
            ranked, short = self.ranked(base, single, chosen), len(chosen)
            chosen = ranked[: self.enough(base, single, ranked, short)]
            if not chosen:
                break
            now = self.measured(chosen, found)
            if self.over(now) <= 1 or len(chosen) == len(ranked):
                break
        return self.shortest(ranked, short, chosen, now, found)

    def to_blame(
        self, base: Errors, chosen: list[Unit], costs: dict[str, Errors]
    ) -> dict[str, Errors]:
        """The error by tensor with `chosen` promoted. Groups that were not split count only if
        single tensors are not to blame."""
        single, unsplit = self.sensitivities(base, chosen)
        costs |= single | unsplit
        none = dict.fromkeys(self.roundings, dict.fromkeys(base, 0.0))
        if self.over(self._remaining(base, none | single, chosen)) <= self.policy.aim:
            single |= unsplit
        return none | single

    def shortest(
        self, ranked: list[Unit], short: int, chosen: list[Unit], now: Errors, found: Found
    ) -> tuple[list[Unit], Errors]:
        """The first units of `ranked` that are enough: more if `chosen` are not, and no more than
        needed. The first `short` are too few."""
        step, sufficient = 1, self.over(now) <= 1
        while self.over(now) > 1 and len(chosen) < len(ranked):
            short, chosen = len(chosen), ranked[: len(chosen) + step]
            now, step = self.measured(chosen, found), 2 * step
        if sufficient and not self.exact:  # predicted well: seldom too many
            return chosen, now
        while self.over(now) <= 1 and len(chosen) - short > 1:
            fewer = ranked[: (short + len(chosen)) // 2]
            after = self.measured(fewer, found)
            if self.over(after) <= 1:
                chosen, now = fewer, after
            else:
                short = len(fewer)
        return chosen, now

    def ranked(self, base: Errors, single: Mapping[str, Errors], chosen: list[Unit]) -> list[Unit]:
        """All units, `chosen` first: each removes the most error for its price beside those
        before it."""
        freed = {n for u in chosen for n in u.frees}
        done = {n for u in chosen for n in u.layers}
        every = self.promotions.units(self.roundings, self.schemes)
        units, made = [u for u in every if not u.frees <= freed], list(chosen)
        while units:
            remain = self._remaining(base, single, made)
            bad = {p for p, e in remain.items() if e > self.policy.aim * self.allowed} or set(base)
            gain = [self._gain(u, freed, single, bad) for u in units]
            price = [self.promotions.price(u.layers - done) for u in units]
            best = units[int(np.argmax(np.divide(np.array(gain) + NO_GAIN, price)))]
            made.append(best)
            freed |= best.frees
            done |= best.layers
            units = [u for u in units if not u.frees <= freed]
        return made

    def enough(
        self, base: Errors, single: Mapping[str, Errors], ranked: list[Unit], short: int
    ) -> int:
        """How many of the units should do, predicted from the sensitivities; more than `short`."""
        for count in range(short + 1, len(ranked)):
            if self.over(self._remaining(base, single, ranked[:count])) <= self.policy.aim:
                return count
        return len(ranked)

    def without_needless(
        self, chosen: list[Unit], single: Mapping[str, Errors], now: Errors, found: Found
    ) -> tuple[list[Unit], Errors]:
        """Drop promotions that are not needed: those with the least gain for their price first."""

        def gain(u: Unit) -> float:
            others = {n for o in chosen if o is not u for n in o.frees}
            return self._gain(u, others, single, now)

        by_worth = sorted(chosen, key=lambda u: gain(u) / self.promotions.price(u.layers))
        for u in by_worth[: self.policy.removals]:
            if self.over(now) + gain(u) / 2 > self.policy.removal:
                continue
            fewer = [o for o in chosen if o is not u]
            after = self.measured(fewer, found)
            if self.over(after) <= self.policy.removal:
                chosen, now = fewer, after
        return chosen, now

    def measured(self, units: list[Unit], found: Found) -> Errors:
        """The errors with these units promoted, from a trial."""
        layers = self.layers(units)
        kept = self.kept(self.schemes, layers)
        if self.exact:
            chip = self.promotions.placement.chip
            in_float = {n for n, p in layers.items() if chip.in_precision(p).is_float}
            errors = self.search.errors_without(kept, in_float)
        else:
            errors = self._without(self.search.errors(kept), self.search.errors({}), units)
        share, time = self.promotions.share(layers), self.promotions.time(layers)
        found.curve.append(Point(tuple(layers), share, _cosine(errors), True, time))
        return errors

    def layers(self, units: Iterable[Unit]) -> dict[str, str]:
        """The precision of every layer of these units."""
        level = self.promotions.level or ""
        return {name: level for u in units for name in sorted(u.layers)}

    def kept(self, schemes: Schemes, layers: Mapping[str, str]) -> dict[str, TensorScheme]:
        """The tensors that are still rounded with these layers promoted, and how."""
        left = self.promotions.quantized(layers)
        return {n: self._widened(t, left[n]) for n, t in schemes.items() if n in left}

    def _widened(self, t: TensorScheme, precision: str) -> TensorScheme:
        """The same range in the type of a wider precision."""
        dtype = self.how.tensors[precision]
        wide = dtypes.TABLE[t.dtype].bits >= dtypes.TABLE[dtype].bits
        if precision == self.how.precision or wide:
            return t
        return affine(t.lo, t.hi, dtype, self.how.is_symmetric(precision, t.lo))

    # ---- prediction ------------------------------------------------------------------------------
    def _removed(self, freed: Set[str], before: Set[str] = frozenset()) -> list[str]:
        """The roundings that `freed` removes and `before` does not."""
        items = self.roundings.items()
        return [n for n, members in items if members <= freed and not members <= before]

    def _gain(
        self, unit: Unit, freed: Set[str], single: Mapping[str, Errors], parts: Iterable[str]
    ) -> float:
        """The error that a unit removes beside `freed`, in the part of the outputs that gains most,
        as a multiple of the allowed error."""
        errors = [single[n] for n in self._removed(unit.frees | freed, freed)]
        return max(sum(e[p] for e in errors) for p in parts) / self.allowed

    def _remaining(self, base: Errors, single: Mapping[str, Errors], units: list[Unit]) -> Errors:
        """The errors with these units promoted, predicted from the sensitivities."""
        freed = {n for u in units for n in u.frees}
        kept = [single[n] for n, members in self.roundings.items() if not members <= freed]
        return self._without({p: base[p] + sum(e[p] for e in kept) for p in base}, base, units)

    def _without(self, errors: Errors, base: Errors, units: list[Unit]) -> Errors:
        """Errors less the rounding of the promoted layers' weights: trials round all weights.

        Each layer's part in the error of rounded weights is taken to be its share of the work.
        """
        less = self.promotions.share({n for u in units for n in u.layers})
        return {p: max(e - less * base[p], 0.0) for p, e in errors.items()}

    # ---- words -----------------------------------------------------------------------------------
    def words(self, unit: Unit, single: Mapping[str, Errors]) -> str:
        """What was promoted, and the error that int8 would cause."""
        freed = [single[n] for n in self._removed(unit.frees) or [unit.tensor]]
        errors = {p: sum(e[p] for e in freed) for p in self.now}
        part = max(errors, key=errors.__getitem__)
        return (
            f"'{unit.tensor}' is too coarse in {self.how.precision}: it costs '{part}' "
            f"{np.sqrt(errors[part]):.1%}; {', '.join(map(repr, sorted(unit.layers)))} "
            f"in {self.promotions.level}"
        )

    def missed(self, cosine: float) -> str:
        """Why the outputs do not keep the cosine that was asked for."""
        chip = self.promotions.placement.chip.name
        why = (
            "rounded weights or the model itself stand in the way"
            if self.how.wider
            else f"{chip} has nothing wider than {self.how.precision}"
        )
        return f"the outputs match by {cosine:.6g} only; {self.cosine:g} was asked for: {why}"


class Groups:
    """Groups of the tensors that are `left` to round, tried on the samples that err most."""

    def __init__(self, of: MixedPrecision, left: Schemes, whole: Errors):
        self.search, self.left, self.roundings = of.search, left, of.roundings
        self.every = [n for n, members in of.roundings.items() if not members.isdisjoint(left)]
        self.samples = self.search.trial.hardest(left, of.policy.sensitivity_samples)
        self.base = self.search.errors({}, only=self.samples)
        self.scale = dict.fromkeys(whole, 1.0)  # error on all samples / error on these
        there = self.added(self.every)
        self.scale = {p: e / there[p] if there[p] else 1.0 for p, e in whole.items()}

    def added(self, tensors: list[str]) -> Errors:
        """The error that rounding these tensors adds to the error of rounded weights."""
        names = {n for t in tensors for n in self.roundings[t]}
        part = {n: t for n, t in self.left.items() if n in names}
        added = _less(self.search.errors(part, only=self.samples), self.base)
        return {p: e * self.scale[p] for p, e in added.items()}


def allowed_error(cosine: float) -> float:
    """The squared error that a cosine allows: cosine = 1 - error / 2 while the error is small."""
    return 2 * (1 - cosine)


def _less(a: Errors, b: Errors) -> Errors:
    return {p: max(e - b[p], 0.0) for p, e in a.items()}


def _cosine(errors: Errors) -> float:
    return 1 - max(errors.values(), default=0.0) / 2
