"""Headroom: the factor by which ranges exceed the observed values, chosen by cross-validation.

Unseen inputs may exceed the observed range and are then clipped, which hurts most where a model is
surest. A wider range costs all values precision. So the factor is chosen by the error on samples
that are left out of the ranges in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intaglio.ir import Value
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.samples.subset import evenly_spaced_indices
from intaglio.quant.search.method_search import Search
from intaglio.quant.search.trial import total

FOLDS = 4  # parts of the samples; each is evaluated with the ranges of the other parts
FACTORS = (1.0, 1.15, 1.3)  # of the observed range
GAIN = 0.9  # a larger factor is taken if the error falls below this share
STABLE = 0.99  # a range that keeps this share without any one fold gets no headroom

Range = tuple[float, float]
Ranges = Mapping[Value, Range]


def without_fold(
    ranges: Ranges, seen: Mapping[Value, Observation], fold: int
) -> dict[Value, Range]:
    """The ranges without the samples of one fold (every fourth sample)."""
    made = {}
    for v, (lo, hi) in ranges.items():
        most = _most(seen[v], fold)
        made[v] = (max(lo, -most), min(hi, most))
    return made


def with_headroom(
    ranges: Ranges, seen: Mapping[Value, Observation], factor: float
) -> dict[Value, Range]:
    """The ranges times `factor`, except ranges that do not depend on the choice of samples."""
    return {
        v: (lo * factor, hi * factor) if factor > 1 and varies(seen[v]) else (lo, hi)
        for v, (lo, hi) in ranges.items()
    }


def varies(o: Observation) -> bool:
    """Does the range depend on which samples were observed?"""
    return min(_most(o, f) for f in range(FOLDS)) < STABLE * max(o.largest, default=0.0)


def _most(o: Observation, fold: int) -> float:
    return max((x for i, x in enumerate(o.largest) if i % FOLDS != fold), default=0.0)


def choose_factor(
    search: Search, samples: int, make: Callable[[float, int], dict[str, TensorScheme]]
) -> float:
    """The factor with the least error on samples left out of the ranges.

    `make` gives the schemes for a factor and the fold that is left out.
    """
    if samples < 2 * FOLDS:  # too few to leave some out
        return FACTORS[0]
    best, least = FACTORS[0], float("inf")
    for factor in FACTORS:
        folds = [make(factor, f) for f in range(FOLDS)]
        error = total(search.held_out([folds[i % FOLDS] for i in evenly_spaced_indices(samples)]))
        if error < GAIN * least:
            best, least = factor, error
    return best
