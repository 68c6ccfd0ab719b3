"""The time of a model or of its part: predicted for a chip, measured on this CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

import intaglio
from intaglio.analysis.agreement import sample
from intaglio.analysis.whatif import Model, WhatIf
from intaglio.ir import Graph
from intaglio.package import Package

LEAST_RUNS = 5


class Machine(Protocol):
    """What runs one side."""

    name: str  # of the target

    @property
    def basis(self) -> str:
        """How its times are known."""

    def milliseconds(self, graph: Graph) -> float:
        """The time of one run."""

    def layers(self, graph: Graph) -> list[tuple[str, float]]:
        """Name and milliseconds of each layer, in order of execution."""

    def compile(self, graph: Graph) -> Package: ...


@dataclass
class Chip:
    """A chip, by its cycle model."""

    name: str
    cores: int = 1

    @property
    def basis(self) -> str:
        return "predicted"

    def milliseconds(self, graph: Graph) -> float:
        return Model(graph).performance(self.name, WhatIf(cores=self.cores)).milliseconds

    def layers(self, graph: Graph) -> list[tuple[str, float]]:
        found = Model(graph).performance(self.name, WhatIf(cores=self.cores))
        return [(r.name, r.microseconds / 1e3) for r in found.layers]

    def compile(self, graph: Graph) -> Package:
        return intaglio.compile(graph, target=self.name, cores=self.cores)


@dataclass
class Cpu:
    """This machine's CPU, or one that is `speed` times as fast."""

    speed: float = 1.0
    threads: int = 1
    seconds: float = 0.2  # that each part is run for
    name: str = field(default="cpu", init=False)

    @property
    def basis(self) -> str:
        faster = "" if self.speed == 1 else f", divided by {self.speed:g}"
        return f"measured here, {self.threads} thread{'s' * (self.threads > 1)}{faster}"

    def milliseconds(self, graph: Graph) -> float:
        package = self.compile(graph)
        feeds = {n: sample(t) for n, t in package.inputs.items()}
        with intaglio.open(package, self.threads) as session:
            session.run(feeds)
            return min(_times(lambda: session.run(feeds), self.seconds)) / self.speed

    def layers(self, graph: Graph) -> list[tuple[str, float]]:
        package = self.compile(graph)
        feeds = {n: sample(t) for n, t in package.inputs.items()}
        with intaglio.open(package, self.threads, profile=True) as session:
            session.run(feeds)
            session.reset_profile()
            runs = len(_times(lambda: session.run(feeds), self.seconds))
            steps = session.profile()
        return [(s.origin, s.milliseconds / runs / self.speed) for s in steps]

    def compile(self, graph: Graph) -> Package:
        return intaglio.compile(graph)


def _times(run: object, seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < LEAST_RUNS:
        start = time.perf_counter()
        run()  # type: ignore[operator]
        times.append((time.perf_counter() - start) * 1e3)
    return times
