"""How far ranges should reach beyond what was seen: by leaving some of the samples out.

Samples that a range was not made of are what the model will meet. Where they reach beyond it they
are cut off, which costs most where a model is surest; a wider range costs all others precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intaglio.ir import Value
from intaglio.quant.placement.scheme import TensorScheme
from intaglio.quant.ranges.observe import Observation
from intaglio.quant.samples.subset import evenly_spaced_indices
from intaglio.quant.search.method_search import Search
from intaglio.quant.search.trial import total

FOLDS = 4  # parts of the samples, each of which is judged by the ranges of all others
ROOMS = (1.0, 1.15, 1.3)  # times the range that was seen
CLEARLY = 0.9  # of the error: what more room has to come to
STEADY = 0.99  # of the range: where leaving samples out leaves that much, it needs no room

Range = tuple[float, float]
Ranges = Mapping[Value, Range]


def without(ranges: Ranges, seen: Mapping[Value, Observation], fold: int) -> dict[Value, Range]:
    """Ranges as they would be if every fourth sample had not been seen."""
    made = {}
    for v, (lo, hi) in ranges.items():
        most = _most(seen[v], fold)
        made[v] = (max(lo, -most), min(hi, most))
    return made


def with_room(ranges: Ranges, seen: Mapping[Value, Observation], room: float) -> dict[Value, Range]:
    """Ranges that are `room` times as wide, if they depend on which samples were seen."""
    return {
        v: (lo * room, hi * room) if room > 1 and varies(seen[v]) else (lo, hi)
        for v, (lo, hi) in ranges.items()
    }


def varies(o: Observation) -> bool:
    """Would the range be another one if some of the samples had not been seen?"""
    return min(_most(o, f) for f in range(FOLDS)) < STEADY * max(o.largest, default=0.0)


def _most(o: Observation, fold: int) -> float:
    return max((x for i, x in enumerate(o.largest) if i % FOLDS != fold), default=0.0)


def choose(
    search: Search, samples: int, make: Callable[[float, int], dict[str, TensorScheme]]
) -> float:
    """The room that errs least on samples that ranges were not made of.

    `make` gives schemes by room and the fold of all `samples` that is left out.
    """
    if samples < 2 * FOLDS:  # too few to leave some out
        return ROOMS[0]
    best, least = ROOMS[0], float("inf")
    for room in ROOMS:
        folds = [make(room, f) for f in range(FOLDS)]
        error = total(search.held_out([folds[i % FOLDS] for i in evenly_spaced_indices(samples)]))
        if error < CLEARLY * least:
            best, least = room, error
    return best
