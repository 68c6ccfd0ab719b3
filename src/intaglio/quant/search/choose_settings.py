"""Choose settings by output error: range methods, headroom, weight rounding, mixed precision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from intaglio.ir import Array, Node
from intaglio.quant.placement.place import layer
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges import headroom
from intaglio.quant.search.method_search import Cache, Search, subject
from intaglio.quant.search.mixed_precision import Found, Guard
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.trial import PrecompiledTrial, Trial
from intaglio.quant.weights.integers import from_integers
from intaglio.quant.weights.storage import bias_shifts, rounded_by_data

if TYPE_CHECKING:
    from intaglio.quant.state import Calibration

WEIGHTY = 0.25  # share of what the outputs may lose that makes rounding weights by data worth it
WORSE = 2.0  # times the error that late tensors' room may come to


def choose_settings(
    draft: Calibration, reference: Reference, ahead: PrecompiledTrial | None = None
) -> Found:
    """The methods, room and wider layers that a model needs.

    Where rounding the weights costs the outputs too much, samples decide it, in the draft. `ahead`
    is the model to try things with, if it is there already.
    """
    options = draft.options
    if not worth_trying(draft):
        return Found(room=options.room or 1.0, deep_room=options.deep_room)
    trials = Trials(draft, reference, ahead)
    try:
        trials.choose_methods()
        if options.accuracy is None:
            return Found(trials.methods, options.room or 1.0, options.deep_room)
        guard = trials.guard()
        if options.rounding == "auto" and guard.weights_matter(WEIGHTY):
            trials.round_by_data()
            guard = trials.guard()
        return trials.met(trials.for_scores(guard))
    finally:
        trials.search.trial.close()


def worth_trying(draft: Calibration) -> bool:
    """Is anything left to be found by trying?"""
    if draft.options.method != "auto" and draft.options.accuracy is None:
        return False
    return not all(v.name in draft.given for v in draft.placement.tensors)


class Trials:
    """What is tried on one draft, and what was found by it so far."""

    def __init__(self, draft: Calibration, reference: Reference, ahead: PrecompiledTrial | None):
        self.draft, self.reference = draft, reference
        self.methods: dict[str, str] = {}
        self.deep = draft.options.deep_room
        self.auto = draft.options.method == "auto"
        cache = None
        if draft.options.resume:
            stored = [(*integers, draft.shifts.get(n)) for n, integers in draft.weights.items()]
            cache = Cache(draft.options.resume, subject(draft.graph, reference, stored))
        if ahead:
            ahead.correct(draft.placement, draft.shifts)
        self.search = Search(
            draft.graph,
            draft.placement,
            self.trial(ahead=ahead),
            self.schemes,
            cache,
            draft.progress,
            {*draft.given, *draft.wanted},
            draft.how,
        )
        self.search.trial_without = self.trial

    def trial(self, exact: Collection[str] = (), ahead: PrecompiledTrial | None = None) -> Trial:
        """The model to try things with; layers in `exact` have their own weights."""

        def weights(node: Node) -> tuple[Array, Array | None]:
            if layer(node) in exact:
                return node.inputs[1].data, None  # type: ignore[union-attr,return-value]
            return from_integers(*self.draft.weights[node]), self.draft.shifts.get(node)

        return Trial(self.draft.graph, self.draft.placement, weights, self.reference, ahead)

    def schemes(
        self, methods: Mapping[str, str], more: float | None = None, left_out: int | None = None
    ) -> dict[str, TensorScheme]:
        """Tensors ranged by these methods, with `more` room, as if a fold of samples was unseen."""
        draft, options = self.draft, self.draft.options
        by = replace(options, methods={**methods, **options.methods}, room=1.0, deep_room=1.0)
        ranges = draft.ranges(by)
        if left_out is not None:
            ranges = headroom.without(ranges, draft.seen, left_out)
        wide = headroom.with_room(ranges, draft.seen, more or options.room or 1.0, self.deep)
        return {name: t for name, t in draft.schemes(wide).items() if t.scale}

    def choose_methods(self) -> None:
        """Range each tensor as it errs least, where that is not the user's choice."""
        if self.auto:
            self.methods = self.search.choose_methods(many=self.draft.many)

    def guard(self, closer: bool = False, highest: bool = False) -> Guard:
        """What promotes layers, by what was found so far."""
        draft, made = self.draft, self.schemes(self.methods)
        assert draft.options.accuracy is not None
        return Guard(self.search, made, draft.wanted, draft.options.accuracy, closer, highest)

    def round_by_data(self) -> None:
        """Round weights so that every product errs least on the samples."""
        d = self.draft
        d.weights |= rounded_by_data(d.graph, d.weights, d.samples, d.options, d.progress)
        if d.options.correct:
            d.shifts |= bias_shifts(d.weights, d.seen)
        self.search.trial.close()
        self.search.trial = self.trial()
        if self.search.cache:
            self.search.cache.weights = "data"

    def for_scores(self, guard: Guard) -> Guard:
        """The guard that a detector's scores need, or this one where there are none."""
        few = self.auto and headroom.few(self.draft.count)
        if few and guard.can_be_closer():
            # few samples show few of what scores are high for: nothing is cut off
            self.methods = dict.fromkeys(self.methods, "minmax")
            self.deep = max(self.deep, headroom.DEEP)
            self.search.compare_roots(guard.strict)
            return self.guard(closer=True)
        if not guard.strict:
            return guard
        self.search.compare_highest(guard.strict)
        guard, deep = self.guard(highest=True), self.deep
        if few:
            self.deep = max(deep, headroom.DEEP)
            roomy = self.guard(highest=True)
            if roomy.over(roomy.now) <= max(1.0, WORSE * guard.over(guard.now)):
                return roomy
            self.deep = deep
        return guard

    def met(self, guard: Guard) -> Found:
        """All that was found, with the layers that the guard promotes."""
        options = self.draft.options
        found = replace(
            guard.meet(), methods=self.methods, room=options.room or 1.0, deep_room=self.deep
        )
        if self.auto and options.room is None:

            def kept(more: float, fold: int) -> dict[str, TensorScheme]:
                return guard.kept(self.schemes(self.methods, more, fold), found.layers)

            found.room = headroom.choose(self.search, self.draft.count, kept)
        return found
