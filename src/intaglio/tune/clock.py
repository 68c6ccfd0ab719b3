"""Measuring the ways to compute a layer, in turns, with caches as cold as in the model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

import numpy as np

from intaglio import dtypes, session
from intaglio.ir import Array, Type
from intaglio.package import Package

PLACES, BUSY = 3, 1.3
FEWEST, MOST = 4, 100  # turns
# From these turns on, ways that take so many times as long as the fastest are left out.
SLOWER = ((12, 2.0), (20, 1.3), (40, 1.15), (70, 1.08))


def race(ways: Mapping[str, Package], threads: int, cold: int, seconds: float) -> dict[str, float]:
    """Microseconds that each way takes, measured in about `seconds` for all.

    Ways take turns, so that a busy machine slows all of them. Before every run `cold` bytes are
    read: in a model, the other layers' weights have taken the caches since a layer ran last. Its
    inputs are written anew, as by the layer before. Each way has its weights in several places, as
    luck with addresses lasts. The lower quartile counts, as the memory is rarely as quick as in
    the fastest run; but no more than `BUSY` times that, which only other programs explain.
    """
    end = time.perf_counter() + seconds
    others = np.ones(max(cold // 8, 1))
    taken: dict[str, list[float]] = {way: [] for way in ways}

    def usual(way: str) -> float:
        return min(sorted(taken[way])[len(taken[way]) // 4], BUSY * min(taken[way]))

    with contextlib.ExitStack() as stack:
        opened = {
            way: [stack.enter_context(_Runner(package, threads)) for _ in range(PLACES)]
            for way, package in ways.items()
        }
        racing = list(ways)
        for turn in range(1, MOST + 1):
            for way in racing:
                for _ in range(2):  # after the first, as much is in the caches as in the model
                    others.sum()
                    last = opened[way][turn % PLACES].run()
                taken[way].append(last)
            late = time.perf_counter() > end
            for least, slower in SLOWER:
                if turn >= least:
                    limit = min(map(usual, ways)) * slower
                    racing = [w for w in racing if usual(w) <= limit]
            if len(racing) < 2 or (late and turn >= FEWEST):
                break
    return {way: usual(way) for way in ways}


class _Runner:
    """A session with arrays of its own, whose steps are timed without what is around them."""

    def __init__(self, package: Package, threads: int):
        data = bytes(bytearray(package.bytes))  # at an address of its own
        self.session = session.open(data, threads=threads, profile=True, verify=False)
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
