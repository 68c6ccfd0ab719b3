"""Measuring the ways to compute a layer, in turns, with caches as cold as in the model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

import numpy as np

from intaglio import dtypes, session
from intaglio.ir import Array, Type
from intaglio.package import Package

LEAST, MOST = 4, 40  # turns
AWHILE = 10  # turns after which a way that is clearly slower is left out


def race(ways: Mapping[str, Package], threads: int, cold: int, seconds: float) -> dict[str, float]:
    """Microseconds that each way takes, measured in about `seconds` for all.

    Ways take turns, so that a busy machine slows all of them. Before every run `cold` bytes are
    read: in a model, the other layers' weights have taken the caches since a layer ran last. Its
    inputs are written anew, as by the layer before. The lower quartile counts: more is due to other
    programs, and less to a memory that is rarely as quick.
    """
    end = time.perf_counter() + seconds
    others = np.ones(max(cold // 8, 1))
    taken: dict[str, list[float]] = {way: [] for way in ways}

    def quartile(way: str) -> float:
        return sorted(taken[way])[len(taken[way]) // 4]

    with contextlib.ExitStack() as stack:
        opened = {w: stack.enter_context(_Runner(p, threads)) for w, p in ways.items()}
        racing = list(ways)
        for turn in range(MOST):
            for way in racing:
                others.sum()
                taken[way].append(opened[way].run())
            if turn + 1 < LEAST:
                continue
            limit = min(map(quartile, ways)) * (2.0 if turn < AWHILE else 1.3)
            racing = [w for w in racing if quartile(w) <= limit]
            if len(racing) < 2 or time.perf_counter() > end:
                break
    return {way: quartile(way) for way in ways}


class _Runner:
    """A session with arrays of its own, whose steps are timed without what is around them."""

    def __init__(self, package: Package, threads: int):
        self.session = session.open(package, threads=threads, profile=True, verify=False)
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
