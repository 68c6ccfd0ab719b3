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
from intaglio.quant.search.mixed_precision import Found, MixedPrecision
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.trial import PrecompiledTrial, Trial
from intaglio.quant.weights.integers import from_integers
from intaglio.quant.weights.storage import bias_shifts, rounded_by_data

if TYPE_CHECKING:
    from intaglio.quant.state import Calibration


def choose_settings(
    draft: Calibration, reference: Reference, ahead: PrecompiledTrial | None = None
) -> Found:
    """Choose range methods, weight rounding, mixed precision and headroom, in this order.

    If rounded weights cost the outputs too much, they are rounded again by the samples, in the
    draft. `ahead` is the trial's model, if it was compiled before.
    """
    options = draft.options
    if not worth_trying(draft):
        return Found(room=options.room or 1.0)
    trials = Trials(draft, reference, ahead)
    try:
        trials.choose_methods()
        if options.accuracy is None:
            return Found(trials.methods, options.room or 1.0)
        precisions = trials.mixed_precision()
        if options.rounding == "auto" and precisions.weights_matter():
            trials.round_by_data()
            precisions = trials.mixed_precision()
        return trials.with_headroom(precisions, precisions.meet())
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
            draft.options.policy,
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
        by = replace(options, methods={**methods, **options.methods}, room=1.0)
        ranges = draft.ranges(by)
        if left_out is not None:
            ranges = headroom.without(ranges, draft.seen, left_out)
        wide = headroom.with_room(ranges, draft.seen, more or options.room or 1.0)
        return {name: t for name, t in draft.schemes(wide).items() if t.scale}

    def choose_methods(self) -> None:
        """Range each tensor as it errs least, where that is not the user's choice."""
        if self.auto:
            self.methods = self.search.choose_methods()

    def mixed_precision(self) -> MixedPrecision:
        """The search for layers to promote, with the range methods that were chosen."""
        draft, made = self.draft, self.schemes(self.methods)
        assert draft.options.accuracy is not None
        return MixedPrecision(self.search, made, draft.wanted, draft.options.accuracy)

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

    def with_headroom(self, precisions: MixedPrecision, found: Found) -> Found:
        """The settings with the range methods, and the headroom that suits unseen samples."""
        options = self.draft.options
        found.methods, found.room = self.methods, options.room or 1.0
        if self.auto and options.room is None:

            def kept(more: float, fold: int) -> dict[str, TensorScheme]:
                return precisions.kept(self.schemes(self.methods, more, fold), found.layers)

            found.room = headroom.choose(self.search, self.draft.count, kept)
        return found
