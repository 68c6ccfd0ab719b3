"""What a graph is as a package: its bytes, and its time on the target."""

from __future__ import annotations

import time
from dataclasses import dataclass

import intaglio
from intaglio.analysis.agreement import sample
from intaglio.ir import Graph
from intaglio.package import Package

SECONDS = 0.2  # of measuring on a CPU
FEWEST = 5  # runs


@dataclass(frozen=True)
class Deployed:
    """Bytes of the package; milliseconds measured on this CPU, or predicted for a chip."""

    bytes: int
    milliseconds: float | None  # None: a chip that runs none of the layers


def deployed(graph: Graph, target: str) -> Deployed:
    """Compile a graph, and measure or predict its time."""
    package = intaglio.compile(graph.copy(), target=target)
    ms = None
    if target == "cpu":
        ms = _fastest(package)
    elif "npu" in package.meta and "partition" in package.meta:
        ms = float(package.performance().milliseconds)
    return Deployed(len(package.bytes), ms)


def _fastest(package: Package) -> float:
    """Milliseconds of the fastest run on one thread."""
    feeds = {n: sample(t) for n, t in package.inputs.items()}
    with intaglio.open(package, 1) as session:
        session.run(feeds)
        times: list[float] = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(times) < FEWEST:
            start = time.perf_counter()
            session.run(feeds)
            times.append(time.perf_counter() - start)
    return min(times) * 1e3
