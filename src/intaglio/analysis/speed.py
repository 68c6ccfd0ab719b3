"""Compare the speed of models on a machine that may be busy, or say that it cannot be told.

Runs are interleaved, so that all models see the same load. A run counts only if its thread had a
core all the time, that is if it took hardly longer than the CPU time that it used. Other programs
would otherwise slow long runs more than short ones, which flatters the faster model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

UNDISTURBED = 1.05  # most time of a run that counts, relative to its CPU time
AGREEING = 3  # runs of each model that must agree with its fastest run
SPREAD = 1.1  # most time of these runs, relative to the fastest
SHORTEST, LONGEST = 0.5, 3.0  # seconds of a measurement
ENOUGH = 100  # rounds after which a measurement may end before SHORTEST

Clock = Callable[[], tuple[float, float]]  # seconds, and seconds of CPU time of this thread


@dataclass(frozen=True)
class Speeds:
    """The fastest run of each model in milliseconds, or why there is none."""

    milliseconds: tuple[float, ...] = ()
    why_unknown: str = ""


def read_clock() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def compare_speeds(runs: Sequence[Callable[[], object]], clock: Clock = read_clock) -> Speeds:
    """Run all in turns until the fastest runs of each agree. Each must run on this thread."""
    counted: list[list[float]] = [[] for _ in runs]
    start, rounds = clock()[0], 0
    while True:
        for times, run in zip(counted, runs, strict=True):
            wall, cpu = _timed(run, clock)
            if wall <= UNDISTURBED * cpu:
                times.append(wall)
        rounds += 1
        taken = clock()[0] - start
        if (taken >= SHORTEST or rounds >= ENOUGH) and all(map(_agrees, counted)):
            return Speeds(tuple(1e3 * min(times) for times in counted))
        if taken >= LONGEST and rounds >= AGREEING:
            return Speeds(why_unknown=_words(counted, rounds))


def _timed(run: Callable[[], object], clock: Clock) -> tuple[float, float]:
    wall, cpu = clock()
    run()
    wall_after, cpu_after = clock()
    return wall_after - wall, cpu_after - cpu


def _agrees(times: Sequence[float]) -> bool:
    """Do several runs agree with the fastest?"""
    return sum(t <= SPREAD * min(times) for t in times) >= AGREEING


def _words(counted: Sequence[Sequence[float]], rounds: int) -> str:
    every, fine = rounds * len(counted), sum(map(len, counted))
    return (
        f"other programs keep this CPU busy: {every - fine} of {every} runs had to wait for a core"
        if fine < every
        else f"the times of {every} runs vary by more than {SPREAD - 1:.0%}"
    )
