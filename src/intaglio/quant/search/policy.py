"""The bounds of the search for settings, in one place, each with its meaning and its evidence.

A bound that trades accuracy for time is chosen by leaving one model out: the value is chosen on all
other models and reported on the one left out (`benchmarks/policy.py`; docs/quantization.md has the
table). Bounds of effort only make the search shorter.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Bounds of the search. Errors are relative and squared: cosine = 1 - error / 2."""

    # ---- a detector's scores ---------------------------------------------------------------------
    # Mean AP50 of eight detectors: 99.14 in 1.26 times the time of int8; with 0.125 99.34 in 2.00
    # times, with 0.35 98.91 in 1.16 times. If the other models choose, it is 98.92 in 1.18 times.
    score_scale: float = 0.25  # error of a score: change of its square root, relative to this
    # Definitions, not measured: a threshold lies among the highest scores.
    score_share: float = 1 / 1000  # share of all scores that is judged: the highest ones
    score_count: int = 64  # least number of scores that is judged

    # ---- all trials (effort) ---------------------------------------------------------------------
    trial_samples: int = 24  # samples on which settings are tried

    # ---- range methods (effort) ------------------------------------------------------------------
    method_skip: float = 0.001  # error of minmax below which no other method is tried
    method_blocks: int = 6  # runs of consecutive tensors; each may get a range method of its own

    # ---- weights (effort: both cost time, and none at run time) ----------------------------------
    rounding_share: float = 0.25  # share of the allowed error: weights that cost more are rounded
    # by second moments of their inputs
    exact_share: float = 0.5  # share of the allowed error: if rounded weights cost more, trials
    # keep the float weights of promoted layers

    # ---- mixed precision -------------------------------------------------------------------------
    removal: float = 0.5  # share of the allowed error that must hold after taking a promotion back
    conversion: float = 0.01  # share of the model's time that a change of precision costs
    macs_per_output: int = 25  # a layer takes at least as long as this many MACs an output element
    # Effort:
    sensitivity_samples: int = 8  # samples on which sensitivities are measured: the worst ones
    passes: int = 3  # times that sensitivities are measured: again if the promotions were too few
    trial_budget: int = 60  # most trials of a pass to find the tensors that cause the error
    negligible: float = 0.05  # share of the allowed error below which a group is not split
    additive: float = 0.1  # errors below this add up: one half of a group tells the other's error
    aim: float = 0.8  # share of the allowed error that a prediction must reach
    removals: int = 8  # promotions that are tried to be taken back


POLICY = Policy()
FAST = {"trial_samples": 8, "method_blocks": 0}  # bounds of a shorter search
