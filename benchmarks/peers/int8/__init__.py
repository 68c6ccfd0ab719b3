"""The peers with int8: one file each, with the same four names as in benchmarks/peers.

Each engine quantises the f32 model with its own tools, from the same calibration samples
(`case.samples`), with the settings that its makers recommend for this CPU. If there are several
settings, `keep_fastest` measures each and keeps the fastest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.models import Case
from benchmarks.peers import Array, Refused, Runner
from benchmarks.table import cosine

SAMPLES = 16  # calibration samples; weights are random, so more samples add nothing
SECONDS = 1.0  # to find the fastest variant
ALIKE = 0.9  # the lowest cosine to f32 at which a faster variant is preferred


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
        except Exception as e:  # tools raise anything; try the next variant
            reasons.append(f"{name}: {type(e).__name__}: {(str(e).splitlines() or [''])[0][:120]}")
    if not made:
        raise Refused("; ".join(reasons))
    best = min(made, key=lambda name: made[name][:2])
    for name, (_, _, file) in made.items():
        if name != best:
            file.unlink()
    return made[best][2]


def _least(runner: Runner, at_least: int = 5) -> float:
    """Minimum processor time of a run in seconds."""
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(taken) < at_least or time.perf_counter() < end:
        start = time.process_time()
        runner.run()
        taken.append(time.process_time() - start)
    return min(taken)
