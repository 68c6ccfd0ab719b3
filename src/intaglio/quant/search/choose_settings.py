"""Choose settings by output error: range methods, weight rounding, mixed precision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from intaglio.ir import Array, Node
from intaglio.quant.options import Options
from intaglio.quant.placement.place import layer
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.search.method_search import Cache, Search, subject
from intaglio.quant.search.mixed_precision import Found, MixedPrecision, allowed_error
from intaglio.quant.search.output_error import Reference
from intaglio.quant.search.trial import PrecompiledTrial, Trial
from intaglio.quant.weights.integers import from_integers
from intaglio.quant.weights.storage import bias_shifts, rounded_by_data

if TYPE_CHECKING:
    from intaglio.quant.state import Calibration


def choose_settings(
    calibration: Calibration, reference: Reference, ahead: PrecompiledTrial | None = None
) -> Found:
    """Choose range methods, weight rounding and mixed precision, in this order.

    If rounded weights cost the outputs too much, they are rounded again by the samples, in place.
    `ahead` is the trial's model, if it was compiled before.
    """
    options = calibration.options
    if not worth_trying(calibration):
        return Found()
    trials = Trials(calibration, reference, ahead)
    try:
        trials.choose_methods()
        if options.accuracy is None:
            return Found(trials.methods)
        precisions = trials.mixed_precision()
        if options.rounding == "auto" and precisions.weights_matter():
            trials.round_by_data()
            precisions = trials.mixed_precision()
        return replace(precisions.meet(), methods=trials.methods)
    finally:
        trials.search.trial.close()


def worth_trying(calibration: Calibration) -> bool:
    """Is there a setting left to choose by trial?"""
    if calibration.options.method != "auto" and calibration.options.accuracy is None:
        return False
    return not all(v.name in calibration.fixed_tensors for v in calibration.placement.tensors)


class Trials:
    """The trials of one calibration, and the settings chosen so far."""

    def __init__(
        self, calibration: Calibration, reference: Reference, ahead: PrecompiledTrial | None
    ):
        self.calibration, self.reference = calibration, reference
        self.methods: dict[str, str] = {}
        self.auto = calibration.options.method == "auto"
        cache = None
        if calibration.options.resume:
            stored = [
                (*integers, calibration.bias_shifts.get(n))
                for n, integers in calibration.weights.items()
            ]
            cache = Cache(calibration.options.resume, subject(calibration.graph, reference, stored))
        if ahead:
            ahead.correct(calibration.placement, calibration.bias_shifts)
        self.search = Search(
            calibration.graph,
            calibration.placement,
            self.trial(ahead=ahead),
            self.schemes,
            cache,
            {*calibration.fixed_tensors, *calibration.fixed_layers},
            calibration.formats,
            calibration.options.policy,
        )
        self.search.trial_without = self.trial

    def trial(self, exact: Collection[str] = (), ahead: PrecompiledTrial | None = None) -> Trial:
        """The trial's model; layers in `exact` keep their float weights."""
        c = self.calibration

        def weights(node: Node) -> tuple[Array, Array | None]:
            if layer(node) in exact:
                return node.inputs[1].data, None  # type: ignore[union-attr,return-value]
            return from_integers(*c.weights[node]), c.bias_shifts.get(node)

        return Trial(c.graph, c.placement, weights, self.reference, ahead)

    def schemes(self, methods: Mapping[str, str]) -> dict[str, TensorScheme]:
        """Schemes by these range methods."""
        calibration, options = self.calibration, self.calibration.options
        chosen = {**methods, **self._whole_outputs(), **options.methods}
        ranges = calibration.ranges(replace(options, methods=chosen))
        return {name: t for name, t in calibration.schemes(ranges).items() if t.scale}

    def _whole_outputs(self) -> dict[str, str]:
        """Outputs keep their extremes: where several scores are clipped, the best one is lost."""
        outputs = {v.name for v in self.calibration.graph.outputs}
        return {v.name: "minmax" for v in self.calibration.placement.tensors if v.name in outputs}

    def choose_methods(self) -> None:
        """Choose the range method of each tensor, unless the user fixed it."""
        if self.auto:
            accuracy = self.calibration.options.accuracy or Options.accuracy
            assert accuracy is not None
            self.methods = self.search.choose_methods(allowed_error(accuracy))
            self.methods |= self._whole_outputs()
            self.search.expect("trying settings")

    def mixed_precision(self) -> MixedPrecision:
        """The search for layers to promote, with the range methods that were chosen."""
        calibration, result = self.calibration, self.schemes(self.methods)
        assert calibration.options.accuracy is not None
        return MixedPrecision(
            self.search, result, calibration.fixed_layers, calibration.options.accuracy
        )

    def round_by_data(self) -> None:
        """Round weights by the samples: least output error of every product."""
        c = self.calibration
        c.weights |= rounded_by_data(c.graph, c.weights, c.samples, c.options, c.progress)
        if c.options.bias_correction:
            c.bias_shifts |= bias_shifts(c.weights, c.observations)
        self.search.trial.close()
        self.search.trial = self.trial()
        if self.search.cache:
            self.search.cache.weights = "data"
