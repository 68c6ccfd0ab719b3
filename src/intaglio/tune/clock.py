"""Timing the implementations of a layer in turns, with caches as cold as in the model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

import numpy as np

from intaglio import dtypes, open_session
from intaglio.ir import Array, Type
from intaglio.package import Package

COPIES = 3  # of each package, at different addresses
MAX_OVER_FASTEST = 1.3  # times the fastest run; anything above is due to other programs
MIN_TURNS, MAX_TURNS = 4, 100
# (turn, ratio): from this turn on, drop implementations slower than ratio times the fastest.
ELIMINATION = ((12, 2.0), (20, 1.3), (40, 1.15), (70, 1.08))


def race(
    packages: Mapping[str, Package], threads: int, evicted: int, seconds: float
) -> dict[str, float]:
    """Time each implementation in microseconds, in about `seconds` for all.

    Implementations take turns, so that a busy machine slows all of them. Before every run,
    `evicted` bytes are read: in a model, the weights of the other layers evict those of this layer
    from the caches. The inputs are written before each run, as the previous layer does. Each
    implementation has several copies of its weights, because the effect of an address persists.
    The result is the lower quartile, because memory is rarely as fast as in the fastest run, but at
    most MAX_OVER_FASTEST times the fastest run.
    """
    end = time.perf_counter() + seconds
    other_weights = np.ones(max(evicted // 8, 1))
    times: dict[str, list[float]] = {name: [] for name in packages}

    def typical(name: str) -> float:
        quartile = sorted(times[name])[len(times[name]) // 4]
        return min(quartile, MAX_OVER_FASTEST * min(times[name]))

    with contextlib.ExitStack() as stack:
        opened = {
            name: [stack.enter_context(_Runner(package, threads)) for _ in range(COPIES)]
            for name, package in packages.items()
        }
        racing = list(packages)
        for turn in range(1, MAX_TURNS + 1):
            for name in racing:
                for _ in range(2):  # the second run finds the caches as they are in the model
                    other_weights.sum()
                    last = opened[name][turn % COPIES].run()
                times[name].append(last)
            late = time.perf_counter() > end
            for first_turn, ratio in ELIMINATION:
                if turn >= first_turn:
                    limit = min(map(typical, packages)) * ratio
                    racing = [name for name in racing if typical(name) <= limit]
            if len(racing) < 2 or (late and turn >= MIN_TURNS):
                break
    return {name: typical(name) for name in packages}


class _Runner:
    """A session with its own arrays; only its steps are timed, not the call around them."""

    def __init__(self, package: Package, threads: int):
        data = bytes(bytearray(package.bytes))  # a copy at another address
        self.session = open_session.open(data, threads=threads, profile=True, verify=False)
        self.source = {name: _sample(t) for name, t in self.session.inputs.items()}
        self.inputs = {name: a.copy() for name, a in self.source.items()}

    def run(self) -> float:
        for name, a in self.inputs.items():
            np.copyto(a, self.source[name])
        self.session.reset_profile()
        self.session.run(self.inputs)
        return sum(s.milliseconds for s in self.session.profile() if not s.plan) * 1e3

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.session.close()


def _sample(t: Type) -> Array:
    numbers = np.random.default_rng(0).random(t.shape, np.float32) - 0.5
    return numbers.astype(dtypes.numpy_of(t.dtype))
