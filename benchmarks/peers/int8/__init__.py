"""The same engines with integers: one file each, with the names that benchmarks/peers asks for.

All of them quantise by themselves what they were given in f32, from the same calibration samples
(`case.samples`), in the setting that their makers recommend for this CPU. Where there are several,
`keep_fastest` has each of them run and keeps the best one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.models import Case
from benchmarks.peers import Array, Refused, Runner
from benchmarks.table import cosine

SAMPLES = 16  # calibration samples; the weights are random, so that more of them tell nothing new
SECONDS = 1.0  # to find the fastest variant
ALIKE = 0.9  # the least cosine to f32 with which a fast variant is preferred to a slow one


def keep_fastest(
    case: Case,
    load: Callable[[Path, dict[str, Array], int], Runner],
    right: Sequence[Array],
    variants: Mapping[str, Callable[[], Path]],
) -> Path:
    """Make every variant and return the fastest whose outputs look like the `right` ones."""
    made: dict[str, tuple[bool, float, Path]] = {}
    reasons = []
    for name, make in variants.items():
        try:
            file = make()
            runner = load(file, case.feeds, 1)
            runner.run()
            near = min(map(cosine, runner.outputs(), right), default=1.0)
            made[name] = (near < ALIKE, _least(runner), file)
        except Exception as e:  # tools raise anything, and the next variant may do
            reasons.append(f"{name}: {type(e).__name__}: {(str(e).splitlines() or [''])[0][:120]}")
    if not made:
        raise Refused("; ".join(reasons))
    best = min(made, key=lambda name: made[name][:2])
    for name, (_, _, file) in made.items():
        if name != best:
            file.unlink()
    return made[best][2]


def _least(runner: Runner, at_least: int = 5) -> float:
    """Seconds of processor time of the quickest run."""
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(taken) < at_least or time.perf_counter() < end:
        start = time.process_time()
        runner.run()
        taken.append(time.process_time() - start)
    return min(taken)
